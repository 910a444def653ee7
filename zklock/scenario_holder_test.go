package zklock_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/internal/session"
	"github.com/zklock/locker/internal/unsealed"
	"github.com/zklock/locker/tests/locktest"
	"github.com/zklock/locker/zklock"
	"github.com/zklock/locker/zktest"
	"github.com/zklock/locker/zktest/fault"
)

// Scenarios 17, 18, 22 and 80: when a hold ends. More of them are in testdata/scripts/holder.txt.

// cutOffs are the ways in which a holder can be cut off from the leader. Each takes effect when it
// is called.
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
	"its server is cut off from the leader, and goes on answering": func(s *locktest.Sim,
		c *locktest.Client, f *zktest.Member) {
		f.CutOff()
	},
	"its server is cut off, and then dies": func(s *locktest.Sim, c *locktest.Client,
		f *zktest.Member) {
		f.CutOff()
		time.AfterFunc(5*time.Second, f.Down)
	},
}

// stoppedInTime checks that the context ended so long before SafeUntil that the work can stop, and
// that the next hold did not begin before it. A server that is asked to take the session over, and
// does not answer, may have granted no more than two ticks: then SafeUntil moves back, and so does
// the end.
func stoppedInTime(
	s *locktest.Sim, promised time.Time, loss locktest.Loss, next time.Time, timeout,
	tick time.Duration,
) {
	s.Helper()
	if loss.Safe.Before(promised) {
		require.GreaterOrEqual(s, loss.Safe.Sub(loss.At), min(timeout, 2*tick)/20,
			"for the work to stop")
	} else {
		promised = loss.Safe
	}
	require.GreaterOrEqual(s, promised.Sub(loss.At), timeout/20, "for the work to stop")
	require.False(s, next.Before(promised), "the next began %v before SafeUntil",
		promised.Sub(next))
}

// scenario 17: the holder's session expires: its context is cancelled, with a cause, before the
// ensemble gives the lock to the next waiter, and so early that the work can stop. Also scenario
// 18: most of these holders are never notified, and rely on the lease clock alone.
func TestScenario17_TheHoldersContextEndsBeforeTheLockGoesToTheNext(t *testing.T) {
	for name, cut := range cutOffs {
		for _, held := range []time.Duration{0, 250 * time.Millisecond, 1900 * time.Millisecond,
			3 * time.Second, 5 * time.Minute} {
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
					require.ErrorIs(s, loss.Cause, zklock.ErrLeaseExpired)
					require.ErrorIs(s, h.Err(), zklock.ErrLost)
					require.True(s, loss.At.Before(next.At), "lost %v after the next began",
						loss.At.Sub(next.At))
					stoppedInTime(s, promised, loss, next.At, session.DefaultTimeout, 2*time.Second)
					require.Greater(s, after.Token(), h.Token())
					require.Less(s, next.At.Sub(began), 40*time.Second,
						"and it does go to the next")
					f.Heal()
					f.Up()
				})
			})
		}
	}
}

// scenario 18: a holder that is cut off and never learns of the expiry relies on its lease clock
// alone, whatever the session timeout and the tick.
func TestScenario18_AHolderThatHearsNothingGoesByItsLeaseClock(t *testing.T) {
	for _, tick := range []time.Duration{100 * time.Millisecond, 500 * time.Millisecond,
		2 * time.Second} {
		for _, ticks := range []int{2, 3, 5, 20} {
			timeout := time.Duration(ticks) * tick
			t.Run(fmt.Sprintf("%v at a tick of %v", timeout, tick), func(t *testing.T) {
				locktest.Simulate(t, func(s *locktest.Sim) {
					opts := []zklock.Option{zklock.WithSessionTimeout(timeout),
						zklock.WithTickTime(tick)}
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
					require.Equal(s, zklock.ErrLeaseExpired, loss.Cause)
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

// scenario 22, with Check: a znode of the same name that belongs to another session is not ours.
func TestScenario22_CheckComparesTheOwner(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		dir, c := s.Dir("/locks/a"), s.Client()
		h := s.Lock(c.Mutex(dir))
		require.NoError(s, s.Server.Delete(h.Node())) // a fresh hold does not watch its znode yet
		other := s.Stranger()
		_, err := other.Create(s.Context(), h.Node(), nil, session.Ephemeral, session.WorldACL())
		require.NoError(s, err)
		require.NoError(s, h.Err(), "it does not know yet")
		require.ErrorIs(s, h.Check(s.Context()), zklock.ErrNodeDeleted)
		require.ErrorIs(s, context.Cause(h.Context()), zklock.ErrNodeDeleted)
		require.NoError(s, other.Close())
	})
}

// scenario 80: a zoo.cfg without tickTime means ticks of 3 s, and others have other ticks. The
// client finds them out: a hold lasts, without the ensemble, as long as its lease for that tick
// allows.
func TestScenario80_ALeaseAllowsForTheServersTickWithoutAnOption(t *testing.T) {
	for tick, lasts := range map[time.Duration]struct{ least, most time.Duration }{
		500 * time.Millisecond: {5300 * time.Millisecond, 7900 * time.Millisecond},
		2 * time.Second:        {2100 * time.Millisecond, 4900 * time.Millisecond},
		3 * time.Second:        {1400 * time.Millisecond, 3900 * time.Millisecond},
	} {
		t.Run(tick.String(), func(t *testing.T) {
			for range 10 { // at another moment of the heartbeat each time
				locktest.Simulate(t, func(s *locktest.Sim) {
					dir, a, b := s.Dir("/locks/a"), s.Client(), s.Client()
					require.Equal(s, tick, a.SessionStatus().TickTime)
					h := s.Lock(a.Mutex(dir))
					lost := locktest.LossOf(h)
					next := locktest.Go(s.Context(), b.Mutex(dir).Lock)
					time.Sleep(20*time.Second + rand.N(10*time.Second))
					promised, cut := h.SafeUntil(), time.Now()
					refused := s.Server.Inject(fault.Refuse())
					s.Server.Inject(fault.Freeze().Session(a.SessionID()))
					loss := <-lost
					require.Equal(s, zklock.ErrLeaseExpired, loss.Cause)
					require.Greater(s, loss.At.Sub(cut), lasts.least)
					require.Less(s, loss.At.Sub(cut), lasts.most)
					refused.Remove()
					next.Get(s)
					stoppedInTime(s, promised, loss, next.At, 10*time.Second, tick)
				}, zktest.WithTick(tick), zktest.WithSessionTimeouts(2*tick, time.Minute))
			}
		})
	}
}

// The tick is found out by the first session of a client, also by Open, and used by the next ones.
func TestATickIsFoundOutOnceForEachClient(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T, srv *zktest.Server) {
		srv.Leader().Down()
		c, err := zklock.Open(srv.Addr(), zklock.WithDialer(srv.Dial))
		require.NoError(t, err)
		defer c.Close()
		require.Zero(t, c.SessionStatus().TickTime, "not known yet")
		srv.Leader().Up()
		for range 3 {
			s, err := unsealed.Session(locktest.Soon(t), c)
			require.NoError(t, err)
			require.Equal(t, 3*time.Second, c.SessionStatus().TickTime)
			require.Equal(t, 1, srv.Requests()[fault.OpCloseSession],
				"of the session that found it out")
			require.NoError(t, srv.Expire(s.ID()))
			<-s.Done()
		}
	}, zktest.WithTick(3*time.Second))
}
