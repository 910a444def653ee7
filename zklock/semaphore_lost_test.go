package zklock_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/tests/locktest"
	"github.com/zklock/locker/zklock"
	"github.com/zklock/locker/zktest/fault"
)

// Tests of a semaphore's size under faults during a Resize, or of its directory.

// Scenario 60: the reply to a Resize is lost, or its caller dies at any moment of it, while others hold by the larger size.
// A later waiter is behind a holder that it cannot distinguish from a waiter: a release of any other holder that makes room
// must let it in.
func TestAResizeThatIsCutOffLosesNoWakeUp(t *testing.T) {
	for _, k := range []struct {
		name  string
		dies  bool
		fault fault.Fault
	}{
		{"nothing goes wrong", false, fault.Delay(0)},
		{"the reply is lost", false, fault.CloseAfter()},
		{"the request is lost", false, fault.CloseBefore()},
		{"it dies behind its write", true, fault.CloseAfter()},
		{"it dies before its write", true, fault.CloseBefore()},
	} {
		t.Run(k.name, func(t *testing.T) {
			locktest.Simulate(t, func(s *locktest.Sim) {
				dir, a := s.Dir("/locks/a"), s.Client()
				first, second := s.Take(locktest.Permits(s.Client().Semaphore(dir, 4), 1)), s.Take(locktest.Permits(s.Client().Semaphore(dir, 4), 1))
				held := s.Server.Inject(fault.Hold().Op(fault.OpSetData).Path(dir).Session(a.SessionID()))
				s.Server.Inject(k.fault.Op(fault.OpSetData).Path(dir).Session(a.SessionID()).Once())
				resized := make(chan error, 1)
				go func() { resized <- a.Semaphore(dir, 4).Resize(s.Context(), 2) }()
				<-held.Hit()
				third, fourth := s.Take(locktest.Permits(s.Client().Semaphore(dir, 4), 1)), s.Take(locktest.Permits(s.Client().Semaphore(dir, 4), 1))
				if k.dies {
					away := s.Server.Inject(fault.Refuse())
					held.Remove()
					synctest.Wait()
					id := a.SessionID()
					require.NoError(s, s.Server.Expire(id))
					require.NoError(s, a.Close())
					away.Remove()
					require.Error(s, <-resized)
				} else {
					held.Remove()
					require.NoError(s, <-resized)
				}
				late := s.Client()
				m := late.Semaphore(dir, 2)
				want := 2
				if n, _ := s.Server.Node(dir); string(n.Data) == `{"size":4}` { // it was never made
					m, want = late.Semaphore(dir, 4), 4
				}
				last := s.Start(locktest.Permits(m, 1))
				time.Sleep(time.Minute)
				require.False(s, last.Over())
				for i, h := range []*zklock.Hold{first, second, third} {
					s.Unlock(h)
					require.Equal(s, 3-i+1 <= want, last.Over(), "%d of %d permits are held", 3-i, want)
				}
				s.Unlock(fourth)
				s.Unlock(last.Get(s))
				s.NothingLeft(dir)
			})
		})
	}
}

// Scenario 60: a contender whose znode was made while the size was low, and which reads the size when it is high again,
// holds without having waited. A contender behind it that has seen the low size, and waits, is notified.
func TestASizeThatGoesDownAndUpBetweenTwoLooksLosesNoWakeUp(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		dir, a, b := s.Dir("/locks/a"), s.Client(), s.Client()
		m := a.Semaphore(dir, 5)
		h := s.Take(locktest.Permits(m, 1))
		s.Unlock(s.Take(locktest.Permits(b.Semaphore(dir, 5), 1))) // it knows the size
		create := s.Server.Inject(fault.Hold().Op(fault.OpCreate).Session(b.SessionID()).Once())
		quick := locktest.Go(s.Context(), locktest.Permits(b.Semaphore(dir, 5), 1))
		<-create.Hit()
		require.NoError(s, m.Resize(s.Context(), 1))
		look := s.Server.Inject(fault.Hold().Op(fault.OpGetData).Path(dir).Session(b.SessionID()).Once())
		create.Release()
		<-look.Hit()
		behind := s.Start(locktest.Permits(s.Client().Semaphore(dir, 1), 1))
		require.False(s, behind.Over())
		require.NoError(s, m.Resize(s.Context(), 5))
		look.Release()
		require.True(s, quick.Over())
		require.True(s, behind.Over(), "three of five")
		s.Unlock(quick.Get(s))
		s.Unlock(behind.Get(s))
		s.Unlock(h)
		s.NothingLeft(dir)
	})
}

// After a Resize to fewer permits, a release still wakes at most two of the earlier waiters.
func TestAfterALowerSizeAReleaseWakesTwo(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		dir := s.Dir("/locks/a")
		m := s.Client().Semaphore(dir, 20)
		var holds []*zklock.Hold
		for range 20 {
			holds = append(holds, s.Take(locktest.Permits(m, 1)))
		}
		var waiters []*locktest.Call
		var clients []*locktest.Client
		for range 10 {
			clients = append(clients, s.Client())
			waiters = append(waiters, s.Start(locktest.Permits(clients[len(clients)-1].Semaphore(dir, 20), 1)))
		}
		require.NoError(s, m.Resize(s.Context(), 10))
		time.Sleep(time.Minute)
		woken := func() (n int) {
			for _, c := range clients {
				n += s.Notified(c.SessionID())
			}
			return n
		}
		for i, h := range holds[:19] {
			before := woken()
			s.Unlock(h)
			synctest.Wait()
			require.LessOrEqual(s, woken()-before, 4, "release %d", i) // two, and each wakes the next as it begins to hold
		}
		for _, w := range waiters {
			s.Unlock(w.Get(s))
		}
		s.Unlock(holds[19])
		s.NothingLeft(dir)
	})
}

// The directory of a semaphore is deleted at any moment of a call, as a container may be. The call goes on, and does not
// return an error of the ensemble.
func TestASemaphoreWhoseDirectoryGoesDuringACallGoesOn(t *testing.T) {
	for _, op := range []fault.Op{fault.OpGetData, fault.OpSetData, fault.OpCreate} {
		for _, what := range []string{"acquire", "try acquire", "resize"} {
			if op == fault.OpCreate && what == "resize" {
				continue // makes nothing
			}
			t.Run(op.String()+" of "+what, func(t *testing.T) {
				locktest.Simulate(t, func(s *locktest.Sim) {
					dir, c := s.Dir("/locks/a"), s.Client() // without a size: it is written
					if op != fault.OpSetData {
						s.Unlock(s.Take(locktest.Permits(s.Client().Semaphore(dir, 3, zklock.WithContainer()), 1)))
					}
					in := s.Server.Inject(fault.Hold().Op(op).Session(c.SessionID()).Once())
					m := c.Semaphore(dir, 3, zklock.WithContainer())
					call := locktest.Go(s.Context(), func(ctx context.Context) (context.Context, *zklock.Hold, error) {
						switch what {
						case "acquire":
							return m.Acquire(ctx, 2)
						case "try acquire":
							return m.TryAcquire(ctx, 2)
						}
						return ctx, nil, m.Resize(ctx, 7)
					})
					<-in.Hit()
					require.NoError(s, s.Server.Delete(dir))
					in.Release()
					<-call.Done
					require.NoError(s, call.Err)
					if call.Hold != nil {
						s.Owned(c, call.Hold)
						s.Unlock(call.Hold)
						return
					}
					s.Unlock(s.Take(locktest.Permits(s.Client().Semaphore(dir, 7), 7)))
				})
			})
		}
	}
}

// A size that Resize has written is not lost with a container: from then on the directory stays.
func TestASizeThatWasResizedOutlivesTheContainer(t *testing.T) {
	for _, first := range []bool{true, false} {
		t.Run(map[bool]string{true: "resized before use", false: "resized in use"}[first], func(t *testing.T) {
			locktest.Simulate(t, func(s *locktest.Sim) {
				s.Dir("/locks")
				const dir = "/locks/a"
				m := s.Client().Semaphore(dir, 2, zklock.WithContainer())
				if !first {
					s.Unlock(s.Take(locktest.Permits(m, 1)))
				}
				require.NoError(s, m.Resize(s.Context(), 5))
				require.NoError(s, m.Resize(s.Context(), 4), "again")
				s.Unlock(s.Take(locktest.Permits(m, 4)))
				time.Sleep(locktest.LongTime)
				fresh := s.Client()
				m = fresh.Semaphore(dir, 2, zklock.WithContainer())
				s.Unlock(s.Take(locktest.Permits(m, 1)))
				h := s.Take(locktest.Permits(m, 4))
				line, err := locktest.Queue(s.Context(), fresh.Client, dir)
				require.NoError(s, err)
				require.Len(s, line, 1)
				s.Unlock(h)
			})
		})
	}
	locktest.Simulate(t, func(s *locktest.Sim) { // one that was never resized
		s.Dir("/locks")
		s.Unlock(s.Take(locktest.Permits(s.Client().Semaphore("/locks/a", 2, zklock.WithContainer()), 1)))
		s.Until(time.Hour, "the container goes", func() bool { _, ok := s.Server.Node("/locks/a"); return !ok })
		s.Unlock(s.Take(locktest.Permits(s.Client().Semaphore("/locks/a", 3, zklock.WithContainer()), 3)))
	})
}

// A size that was read from a server that lags behind must not make a call fail.
func TestASizeThatAServerHasNotHeardOfYetRefusesNoCaller(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		dir, a, b := s.Dir("/locks/a"), s.Client(), s.Client()
		s.Unlock(s.Take(locktest.Permits(a.Semaphore(dir, 2), 2)))
		f := s.Follower()
		b.LeadTo(f)
		s.Server.Leader().DropConnections()
		old, open := b.Semaphore(dir, 2), b.Semaphore(dir, 5)
		s.Unlock(s.Take(locktest.Permits(old, 2)))
		s.Until(10*time.Second, "both are connected", func() bool {
			info, ok := s.Server.Session(b.SessionID())
			return ok && info.Member == f && info.Connected && a.SessionStatus().Server != ""
		})
		f.Lag(1)
		require.NoError(s, a.Semaphore(dir, 2).Resize(s.Context(), 5))
		s.Unlock(s.Take(locktest.Permits(open, 1)))
		f.Lag(0)
		require.NoError(s, a.Semaphore(dir, 2).Resize(s.Context(), 6))
		f.Lag(1)
		require.NoError(s, a.Semaphore(dir, 2).Resize(s.Context(), 9))
		s.Unlock(s.Take(locktest.Permits(old, 9)))
	})
}

// Scenario 65: a call with the context of holds of the same semaphore would wait for itself if those holds leave too few
// permits. If they leave enough, or if the call does not wait, there is no deadlock.
func TestScenario65_ASemaphoreDoesNotWaitForItsOwnCaller(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		dir, c, other := s.Dir("/locks/a"), s.Client(), s.Client()
		m := c.Semaphore(dir, 3)
		one := s.Take(locktest.Permits(m, 1))
		under := func(h *zklock.Hold, m *zklock.Semaphore, n int) (context.Context, *zklock.Hold, error) {
			return m.Acquire(h.Context(), n)
		}

		_, _, err := under(one, m, 3)
		require.ErrorIs(s, err, zklock.ErrDeadlock)
		require.ErrorContains(s, err, "1 of 3 permits, and asks for 3 more")
		_, two, err := under(one, m, 1)
		require.NoError(s, err, "there is room for both")
		_, _, err = under(two, m, 2)
		require.ErrorIs(s, err, zklock.ErrDeadlock, "with the outer hold's")
		_, _, err = under(two, c.Semaphore(dir, 3, zklock.WithMaxWait(time.Minute)), 2)
		require.ErrorIs(s, err, zklock.ErrDeadlock)
		_, _, err = m.TryAcquire(two.Context(), 2)
		require.ErrorIs(s, err, zklock.ErrBusy, "it does not wait")
		_, elsewhere, err := under(two, c.Semaphore(s.Dir("/locks/b"), 1), 1)
		require.NoError(s, err, "another semaphore")
		s.Unlock(elsewhere)

		s.Unlock(two)
		_, three, err := under(two, m, 2) // its context has ended, and so the call has no time: but not for a deadlock
		require.ErrorIs(s, err, context.Canceled)
		require.NotErrorIs(s, err, zklock.ErrDeadlock)
		require.Nil(s, three)

		busy := s.Take(locktest.Permits(other.Semaphore(dir, 3), 2))
		wait := locktest.Go(one.Context(), locktest.Permits(m, 2))
		require.False(s, wait.Over(), "for somebody else, who will release")
		s.Unlock(busy)
		s.Unlock(wait.Get(s))

		require.NoError(s, m.Resize(s.Context(), 4))
		_, big, err := under(one, m, 3)
		require.NoError(s, err, "the size counts that is at the ensemble")
		s.Unlock(big)
		s.Unlock(one)
		require.NoError(s, c.Semaphore("/locks/c", 1).Do(s.Context(), 1, func(ctx context.Context) error {
			require.ErrorIs(s, c.Semaphore("/locks/c", 1).Do(ctx, 1, func(context.Context) error { return nil }), zklock.ErrDeadlock)
			return nil
		}))
		s.NothingLeft(dir)
	})
}
