package zklock_test

import (
	"context"
	"fmt"
	"path"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/internal/session"
	"github.com/zklock/locker/tests/locktest"
	"github.com/zklock/locker/zklock"
	"github.com/zklock/locker/zktest"
	"github.com/zklock/locker/zktest/fault"
)

// Scenarios 17 to 20: when a hold ends. 21 to 23 are in scenario_stale_test.go.

// cutOffs are the ways in which a holder can be cut off from the leader. Each takes effect when it is called.
var cutOffs = map[string]func(s *locktest.Sim, c *locktest.Client, f *zktest.Member){
	"link dead": func(s *locktest.Sim, c *locktest.Client, _ *zktest.Member) {
		s.Server.Inject(fault.Freeze().Session(c.SessionID()))
	},
	"requests get stuck": func(s *locktest.Sim, c *locktest.Client, _ *zktest.Member) {
		s.Server.Inject(fault.FreezeRequests().Session(c.SessionID()))
	},
	"replies get stuck": func(s *locktest.Sim, c *locktest.Client, _ *zktest.Member) {
		s.Server.Inject(fault.FreezeReplies().Session(c.SessionID()))
	},
	"requests get lost": func(s *locktest.Sim, c *locktest.Client, _ *zktest.Member) {
		s.Server.Inject(fault.DropRequest().Session(c.SessionID()))
	},
	"replies get lost": func(s *locktest.Sim, c *locktest.Client, _ *zktest.Member) {
		s.Server.Inject(fault.DropReply().Session(c.SessionID()))
	},
	"its server is dead": func(s *locktest.Sim, c *locktest.Client, f *zktest.Member) { f.Down() },
	"its server is cut off from the leader, and goes on answering": func(s *locktest.Sim, c *locktest.Client, f *zktest.Member) {
		f.CutOff()
	},
	"its server is cut off, and then dies": func(s *locktest.Sim, c *locktest.Client, f *zktest.Member) {
		f.CutOff()
		time.AfterFunc(5*time.Second, f.Down)
	},
}

// stoppedInTime checks that the context ended so long before SafeUntil that the work can stop, and that the next hold did not
// begin before it. A server that is asked to take the session over, and does not answer, may have granted no more than two
// ticks: then SafeUntil moves back, and so does the end.
func stoppedInTime(s *locktest.Sim, promised time.Time, loss locktest.Loss, next time.Time, timeout, tick time.Duration) {
	s.Helper()
	if loss.Safe.Before(promised) {
		require.GreaterOrEqual(s, loss.Safe.Sub(loss.At), min(timeout, 2*tick)/20, "for the work to stop")
	} else {
		promised = loss.Safe
	}
	require.GreaterOrEqual(s, promised.Sub(loss.At), timeout/20, "for the work to stop")
	require.False(s, next.Before(promised), "the next began %v before SafeUntil", promised.Sub(next))
}

// scenario 17: the holder's session expires: its context is cancelled, with a cause, before the ensemble gives the lock to the
// next waiter, and so early that the work can stop. Also scenario 18: most of these holders are never notified, and rely on
// the lease clock alone.
func TestScenario17_TheHoldersContextEndsBeforeTheLockGoesToTheNext(t *testing.T) {
	for name, cut := range cutOffs {
		for _, held := range []time.Duration{0, 250 * time.Millisecond, 1900 * time.Millisecond, 3 * time.Second, 5 * time.Minute} {
			t.Run(fmt.Sprintf("%s after %v", name, held), func(t *testing.T) {
				locktest.Simulate(t, func(s *locktest.Sim) {
					f, dir, b := s.Follower(), s.Dir("/locks/a"), s.Client()
					a := s.ClientAt(f)
					h := s.Lock(a.Mutex(dir))
					lost := locktest.LossOf(h)
					next := locktest.Go(s.Context(), b.Mutex(dir).Lock)
					require.False(s, next.Over())
					time.Sleep(held)
					require.NoError(s, h.Err())
					promised := h.SafeUntil()
					cut(s, a, f)
					began := time.Now()
					after := next.Get(s)
					loss := <-lost
					require.ErrorIs(s, loss.Cause, zklock.ErrLeaseOver)
					require.ErrorIs(s, h.Err(), zklock.ErrLost)
					require.True(s, loss.At.Before(next.At), "lost %v after the next began", loss.At.Sub(next.At))
					stoppedInTime(s, promised, loss, next.At, session.DefaultTimeout, 2*time.Second)
					require.Greater(s, after.Token(), h.Token())
					require.Less(s, next.At.Sub(began), 40*time.Second, "and it does go to the next")
					f.Heal()
					f.Up()
				})
			})
		}
	}
}

// scenario 17, by force: another client ends the session, and the holder learns of it as soon as a server answers. A server
// that still has the connection reports the deletion of the znode before the end of the session, so that either may be the
// cause.
func TestScenario17_AForcedExpiryEndsTheHoldAtOnceWithItsCause(t *testing.T) {
	for _, held := range []time.Duration{0, time.Second, locktest.LongTime} {
		t.Run(held.String(), func(t *testing.T) {
			locktest.Simulate(t, func(s *locktest.Sim) {
				var told []zklock.LockInfo
				dir, b := s.Dir("/locks/a"), s.Client()
				a := s.Client(zklock.WithHooks(zklock.Hooks{Lost: func(i zklock.LockInfo) { told = append(told, i) }}))
				h := s.Lock(a.Mutex(dir))
				time.Sleep(held)
				lost := locktest.LossOf(h)
				refused := s.Server.Inject(fault.Refuse()) // at first it only sees that the connection is closed
				require.NoError(s, s.Server.Expire(a.SessionID()))
				expired := time.Now()
				synctest.Wait()
				refused.Remove()
				loss := <-lost
				want := zklock.ErrSessionExpired
				if held > 300*time.Millisecond {
					want = zklock.ErrNodeDeleted // it was watched
				}
				require.ErrorIs(s, loss.Cause, want)
				require.ErrorIs(s, loss.Cause, zklock.ErrLost)
				require.Less(s, loss.At.Sub(expired), 2*time.Second)
				s.Owned(b, s.Lock(b.Mutex(dir)))
				synctest.Wait()
				require.Len(s, told, 1)
				require.ErrorIs(s, told[0].Err, want)
				require.Equal(s, h.Token(), told[0].Token)
			})
		})
	}
}

// scenario 18: a holder that is cut off and never learns of the expiry relies on its lease clock alone, whatever the
// session timeout and the tick.
func TestScenario18_AHolderThatHearsNothingGoesByItsLeaseClock(t *testing.T) {
	for _, tick := range []time.Duration{100 * time.Millisecond, 500 * time.Millisecond, 2 * time.Second} {
		for _, ticks := range []int{2, 3, 5, 20} {
			timeout := time.Duration(ticks) * tick
			t.Run(fmt.Sprintf("%v at a tick of %v", timeout, tick), func(t *testing.T) {
				locktest.Simulate(t, func(s *locktest.Sim) {
					opts := []zklock.Option{zklock.WithSessionTimeout(timeout), zklock.WithTickTime(tick)}
					dir, a, b := s.Dir("/locks/a"), s.Client(opts...), s.Client(opts...)
					h := s.Lock(a.Mutex(dir))
					lost := locktest.LossOf(h)
					next := locktest.Go(s.Context(), b.Mutex(dir).Lock)
					time.Sleep(7 * timeout)
					require.NoError(s, h.Err(), "it lasts as long as it is heard of")
					require.False(s, next.Over())
					promised := h.SafeUntil()
					s.Server.Inject(fault.Freeze().Session(a.SessionID()))
					cut := time.Now()
					loss := <-lost
					require.Equal(s, zklock.ErrLeaseOver, loss.Cause)
					require.LessOrEqual(s, loss.At.Sub(cut), timeout)
					require.False(s, next.Over(), "the ensemble has not expired the session yet")
					next.Get(s)
					require.True(s, loss.At.Before(next.At))
					stoppedInTime(s, promised, loss, next.At, timeout, tick)
				}, zktest.WithTick(tick))
			})
		}
	}
}

// scenario 18, with misleading answers: a server that has lost its leader still answers pings. None of them prolongs the
// lease, at any phase of the server's tick and of the heartbeats.
func TestScenario18_AServerWithoutItsLeaderDoesNotProlongTheLease(t *testing.T) {
	for phase := time.Duration(0); phase < 2*time.Second; phase += 150 * time.Millisecond {
		for _, held := range []time.Duration{30 * time.Second, 31 * time.Second} {
			t.Run(fmt.Sprint(phase, " ", held), func(t *testing.T) {
				locktest.Simulate(t, func(s *locktest.Sim) {
					f, dir, b := s.Follower(), s.Dir("/locks/a"), s.Client()
					a := s.ClientAt(f)
					time.Sleep(phase)
					h := s.Lock(a.Mutex(dir))
					lost := locktest.LossOf(h)
					next := locktest.Go(s.Context(), b.Mutex(dir).Lock)
					time.Sleep(held)
					f.CutOff()
					pings := s.Server.Requests()[fault.OpPing]
					next.Get(s)
					loss := <-lost
					require.Greater(s, s.Server.Requests()[fault.OpPing], pings, "it goes on answering")
					require.Equal(s, zklock.ErrLeaseOver, loss.Cause)
					require.True(s, loss.At.Before(next.At), "lost %v after the next began", loss.At.Sub(next.At))
					require.False(s, next.At.Before(loss.Safe), "the next began %v before SafeUntil", loss.Safe.Sub(next.At))
					f.Heal()
				})
			})
		}
	}
}

// scenario 19: a waiter's session expires: it queues again in the next session, with a znode of that one, and nothing
// of the old one is waited on or left.
func TestScenario19_AWaiterWhoseSessionExpiresQueuesAgain(t *testing.T) {
	for _, waited := range []time.Duration{0, time.Second, locktest.LongTime} {
		t.Run(waited.String(), func(t *testing.T) {
			locktest.Simulate(t, func(s *locktest.Sim) {
				dir, a, b, c := s.Dir("/locks/a"), s.Client(), s.Client(), s.Client()
				h := s.Lock(a.Mutex(dir))
				call := locktest.Go(s.Context(), b.Mutex(dir).Lock)
				require.False(s, call.Over())
				behind := locktest.Go(s.Context(), c.Mutex(dir).Lock)
				require.False(s, behind.Over())
				time.Sleep(waited)
				old, line := b.SessionID(), locktest.Contenders(s.Server.Children(dir))
				require.NoError(s, s.Server.Expire(old))
				s.Until(5*time.Second, "b stands in line again", func() bool {
					return len(s.Server.Children(dir)) == 3 && b.SessionID() != old
				})
				now := locktest.Contenders(s.Server.Children(dir))
				require.Equal(s, line[0], now[0])
				require.Equal(s, line[2], now[1], "who stood behind it stands before it now")
				require.NotContains(s, now, line[1])
				synctest.Wait()
				require.Contains(s, s.Watched(b.SessionID()), dir+"/"+now[1])
				require.NotContains(s, s.Watched(c.SessionID()), dir+"/"+line[1])
				require.False(s, call.Over())
				s.Unlock(h)
				require.Equal(s, line[2], path.Base(behind.Get(s).Node()))
				require.False(s, call.Over())
				s.Unlock(behind.Hold)
				require.Equal(s, now[2], path.Base(call.Get(s).Node()))
				s.Owned(b, call.Hold)
				require.Equal(s, []string{now[2]}, s.Server.Children(dir))
			})
		})
	}
}

// scenario 19, the other way: the waiter's ctx ends while there is no session: its error says so, and nothing is left.
func TestScenario19_AWaiterWithoutASessionReturnsItsContextsError(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		dir, a, b := s.Dir("/locks/a"), s.Client(), s.Client()
		h := s.Lock(a.Mutex(dir))
		ctx, cancel := context.WithTimeout(s.Context(), 30*time.Second)
		defer cancel()
		call := locktest.Go(ctx, b.Mutex(dir).Lock)
		require.False(s, call.Over())
		a.LeadTo(s.Follower())
		s.Server.Leader().Down()
		time.Sleep(29 * time.Second)
		require.False(s, call.Over(), "its session is over, its ctx is not")
		<-call.Done
		require.ErrorIs(s, call.Err, context.DeadlineExceeded)
		require.NotErrorIs(s, call.Err, zklock.ErrLost, "it is not the loss that ended the call")
		require.Equal(s, 30*time.Second, call.Spent)
		require.NoError(s, h.Err())
		require.Equal(s, []string{path.Base(h.Node())}, s.Server.Children(dir))
		s.Server.Leader().Up()
	})
}

// scenario 20, when the client believes that it holds: the ensemble refuses the guarded write.
func TestScenario20_AGuardedWriteOfALostHoldIsRefusedByTheEnsemble(t *testing.T) {
	for name, c := range map[string]struct {
		lose func(s *locktest.Sim, a *locktest.Client, h *zklock.Hold)
		want error // of the write
	}{
		"znode deleted, and the word of it lost": {func(s *locktest.Sim, a *locktest.Client, h *zklock.Hold) {
			s.Server.Inject(fault.DropReply().Op(fault.OpNotify).Session(a.SessionID()))
			require.NoError(s, s.Server.Delete(h.Node()))
		}, zklock.ErrNodeDeleted},
		"session ends when the write arrives": {func(s *locktest.Sim, a *locktest.Client, h *zklock.Hold) {
			s.Server.Inject(fault.ExpireSession().Op(fault.OpMulti).Session(a.SessionID()))
		}, zklock.ErrUnknownOutcome}, // such a server closes the connection without an answer
	} {
		t.Run(name, func(t *testing.T) {
			locktest.Simulate(t, func(s *locktest.Sim) {
				dir, a := s.Dir("/locks/a"), s.Client()
				require.NoError(s, s.Server.Create("/data", []byte("guarded")))
				h := s.Lock(a.Mutex(dir))
				time.Sleep(time.Second)
				_, err := h.Multi(s.Context(), session.OpSet{Path: "/data", Data: []byte("held"), Version: -1})
				require.NoError(s, err)
				c.lose(s, a, h)
				synctest.Wait()
				require.NoError(s, h.Err(), "it does not know yet")
				stale := session.OpSet{Path: "/data", Data: []byte("stale"), Version: -1}
				_, err = h.Multi(s.Context(), stale)
				require.ErrorIs(s, err, c.want)
				s.Until(2*time.Second, "now it knows", func() bool { return h.Context().Err() != nil })
				require.ErrorIs(s, h.Err(), zklock.ErrLost)
				_, err = h.Multi(s.Context(), stale)
				require.ErrorIs(s, err, zklock.ErrLost)
				n, _ := s.Server.Node("/data")
				require.Equal(s, "held", string(n.Data))
			})
		})
	}
}

// scenario 66: a server answers a reconnection with another session, as one does that can't resume sessions. Its clients have
// to enter again, behind the znodes of the session that is lost.
func TestScenario66_AnotherSessionInPlaceOfOursEndsTheHold(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		c := s.Client()
		ours, m := c.SessionID(), c.Mutex(s.Dir("/locks/a"))
		h := s.Lock(m)
		s.Server.Inject(fault.Garble(func(b []byte) []byte {
			b[15]++ // behind version, timeout and the rest of the session's number
			return b
		}).Op(fault.OpConnect).Session(ours).Once())
		s.Server.DropConnections()
		require.ErrorIs(s, locktest.End(h), zklock.ErrLeaseOver)
		require.ErrorContains(s, h.Err(), "in place of")
		next := s.Lock(m)
		require.NotEqual(s, ours, c.SessionID())
		require.Greater(s, next.Token(), h.Token())
		s.Unlock(next)
		require.NoError(s, c.Close())
		synctest.Wait()
		require.Empty(s, s.Server.Sessions())
	})
}
