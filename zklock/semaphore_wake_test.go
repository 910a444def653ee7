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

// Tests of which calls wait for permits, and which are woken when.

// Of five hundred waiters a release wakes two at most: the one that holds now, and the one behind it, which is the new head.
func TestAReleaseWakesAtMostTwoOfFiveHundredWaiters(t *testing.T) {
	const waiters, size = 500, 5
	locktest.Simulate(t, func(s *locktest.Sim) {
		dir := s.Dir("/locks/a")
		var holds []*zklock.Hold
		holder := s.Client()
		for range size {
			holds = append(holds, s.Take(locktest.Permits(holder.Semaphore(dir, size), 1)))
		}
		ctx, cancel := context.WithCancel(s.Context())
		var cs []*locktest.Client
		var calls []*locktest.Call
		for i := range waiters {
			if i < 20 {
				cs = append(cs, s.Client())
			}
			calls = append(calls, locktest.Go(ctx, locktest.Permits(cs[i%20].Semaphore(dir, size), 1)))
		}
		in := func() (n int) { // how many hold
			synctest.Wait()
			for _, call := range calls {
				select {
				case <-call.Done:
					n++
				default:
				}
			}
			return n
		}
		require.Zero(s, in())
		require.Len(s, s.Server.Children(dir), waiters+size)
		time.Sleep(10 * time.Second) // all have settled
		for round, leaver := range []int{size - 1, 0, 2, 1, 3} {
			before, asked := map[int]int{}, s.Server.Requests()
			for i, c := range cs {
				before[i] = s.Notified(c.SessionID())
			}
			s.Unlock(holds[leaver])
			require.Equal(s, round+1, in(), "the head comes in")
			woken := 0
			for i, c := range cs {
				if s.Notified(c.SessionID()) > before[i] {
					woken++
				}
			}
			require.LessOrEqual(s, woken, 2, "clients woken by release %d", round)
			asks := s.Server.Requests()
			require.LessOrEqual(s, asks[fault.OpGetChildren2]-asked[fault.OpGetChildren2], 5, "lists")
			require.LessOrEqual(s, asks[fault.OpSetWatches]+asks[fault.OpExists]-asked[fault.OpSetWatches]-asked[fault.OpExists], 5, "watches set")
		}
		cancel()
		for _, call := range calls {
			<-call.Done
			if call.Err == nil {
				s.Unlock(call.Hold)
			} else {
				require.ErrorIs(s, call.Err, context.Canceled)
			}
		}
		s.NothingLeft(dir)
	})
}

// The predecessor begins to hold between our list and our watch: its announcement comes before the watch, and must not be
// needed.
func TestAWaiterWhosePredecessorBeginsToHoldBetweenItsListAndItsWatch(t *testing.T) {
	for _, at := range []fault.Op{fault.OpSetWatches, fault.OpGetData} {
		t.Run(at.String(), func(t *testing.T) {
			locktest.Simulate(t, func(s *locktest.Sim) {
				dir := s.Dir("/locks/a")
				a, b, c := s.Client(), s.Client(), s.Client()
				m := c.Semaphore(dir, 2)
				s.Unlock(s.Take(locktest.Permits(m, 1))) // it knows the size
				one, two := s.Take(locktest.Permits(a.Semaphore(dir, 2), 1)), s.Take(locktest.Permits(a.Semaphore(dir, 2), 1))
				before := s.Start(locktest.Permits(b.Semaphore(dir, 2), 1))
				f := fault.Hold().Op(at).Session(c.SessionID())
				if at == fault.OpGetData {
					f = f.After(1) // the first is of the size, before it queues
				}
				in := s.Server.Inject(f.Once())
				waiter := locktest.Go(s.Context(), locktest.Permits(m, 1))
				<-in.Hit()
				s.Unlock(one)
				require.True(s, before.Over())
				synctest.Wait() // it has announced that it holds
				in.Release()
				require.False(s, waiter.Over())
				s.Unlock(two)
				require.True(s, waiter.Over(), "it is the head, and there is room")
				s.Unlock(waiter.Get(s))
				s.Unlock(before.Get(s))
				s.NothingLeft(dir)
			})
		})
	}
}

// Scenario 75: a contender's own list comes after the release that makes room for it, and the waiter behind it has listed before that
// release. The first did not have to wait, and must say all the same that it holds: the waiter is the head now.
func TestScenario75_AWaiterIsToldOfAHolderWhoseListCameLate(t *testing.T) {
	for name, late := range map[string]func(s *locktest.Sim, late *locktest.Client) (resume func()){
		"its list is on its way": func(s *locktest.Sim, late *locktest.Client) func() {
			return s.Server.Inject(fault.Hold().Op(fault.OpGetChildren2).Session(late.SessionID()).Once()).Release
		},
		"its create's reply is lost": func(s *locktest.Sim, late *locktest.Client) func() {
			away := s.Server.Inject(fault.Refuse())
			s.Server.Inject(fault.CloseAfter().Op(fault.OpCreate).Session(late.SessionID()).Once())
			return away.Remove
		},
	} {
		t.Run(name, func(t *testing.T) {
			locktest.Simulate(t, func(s *locktest.Sim) {
				dir := s.Dir("/locks/a")
				a, b, c := s.Client(), s.Client(), s.Client()
				all := s.Take(locktest.Permits(a.Semaphore(dir, 2), 2))
				resume := late(s, b)
				before := s.Start(locktest.Permits(b.Semaphore(dir, 2), 1))
				require.Len(s, s.Server.Children(dir), 2, "it has its place")
				waiter := s.Start(locktest.Permits(c.Semaphore(dir, 2), 1))
				s.Unlock(all)
				require.False(s, waiter.Over(), "for all it knows the one before it waits")
				resume()
				h := before.Get(s)
				require.True(s, waiter.Over(), "one of two permits is free")
				s.Unlock(waiter.Get(s))
				s.Unlock(h)
				s.NothingLeft(dir)
			})
		})
	}
}

// The announcement of a contender that begins to hold is lost: it is repeated until it arrives.
func TestAnAnnouncementThatIsLostIsMadeAgain(t *testing.T) {
	for name, f := range map[string]fault.Fault{"the request": fault.CloseBefore(), "the reply": fault.CloseAfter()} {
		t.Run(name, func(t *testing.T) {
			locktest.Simulate(t, func(s *locktest.Sim) {
				dir := s.Dir("/locks/a")
				a, b, c := s.Client(), s.Client(), s.Client()
				one, two := s.Take(locktest.Permits(a.Semaphore(dir, 2), 1)), s.Take(locktest.Permits(a.Semaphore(dir, 2), 1))
				head, next := s.Start(locktest.Permits(b.Semaphore(dir, 2), 1)), s.Start(locktest.Permits(c.Semaphore(dir, 2), 1))
				in := s.Server.Inject(f.Op(fault.OpSetData).Session(b.SessionID()).Times(3))
				s.Unlock(one)
				h := head.Get(s)
				s.Until(10*time.Second, "the announcement was lost three times", func() bool { return in.Hits() == 3 })
				time.Sleep(10 * time.Second)
				s.Owned(b, h)
				s.Unlock(two)
				require.True(s, next.Over(), "it has heard that it is the head")
				s.Unlock(next.Get(s))
				s.Unlock(h)
				s.NothingLeft(dir)
			})
		})
	}
}

// A contender begins to hold and ends before it could announce that: the deletion of its znode is the notification.
func TestAHolderThatEndsBeforeItsAnnouncementIsHeardOf(t *testing.T) {
	for name, end := range map[string]func(*locktest.Sim, *locktest.Client, *zklock.Hold){
		"released": func(s *locktest.Sim, _ *locktest.Client, h *zklock.Hold) { go func() { _ = h.Unlock() }() },
		"expired": func(s *locktest.Sim, c *locktest.Client, _ *zklock.Hold) {
			require.NoError(s, s.Server.Expire(c.SessionID()))
		},
		"deleted": func(s *locktest.Sim, _ *locktest.Client, h *zklock.Hold) {
			require.NoError(s, s.Server.Delete(h.Node()))
		},
	} {
		t.Run(name, func(t *testing.T) {
			locktest.Simulate(t, func(s *locktest.Sim) {
				dir := s.Dir("/locks/a")
				a, b, c := s.Client(), s.Client(), s.Client()
				one, two := s.Take(locktest.Permits(a.Semaphore(dir, 2), 1)), s.Take(locktest.Permits(a.Semaphore(dir, 2), 1))
				head, next := s.Start(locktest.Permits(b.Semaphore(dir, 2), 1)), s.Start(locktest.Permits(c.Semaphore(dir, 2), 1))
				in := s.Server.Inject(fault.Hold().Op(fault.OpSetData).Session(b.SessionID()).Once())
				s.Unlock(one)
				<-in.Hit()
				end(s, b, head.Get(s))
				synctest.Wait()
				in.Remove()
				s.Until(time.Minute, "the one behind comes in", next.Over)
				s.Unlock(next.Get(s))
				s.Unlock(two)
				s.NothingLeft(dir)
			})
		})
	}
}

// Another client has set the data of a waiter's znode. When the waiter holds, those behind it hear of it all the same.
func TestAWaiterWhoseZnodeAnotherClientHasSetIsHeardOf(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		acquire := func(n int) *locktest.Call {
			return s.Start(locktest.Permits(s.Client().Semaphore("/s", 4), n))
		}
		first := acquire(3).Get(s)
		second, third := acquire(2), acquire(1)
		line := locktest.Contenders(s.Server.Children("/s"))
		_, err := s.Stranger().Set(s.Context(), "/s/"+line[1], []byte("set"), -1)
		require.NoError(s, err)
		require.False(s, third.Over())
		began := time.Now()
		s.Unlock(first)
		holds := []*zklock.Hold{second.Get(s), third.Get(s)}
		require.Equal(s, began, time.Now())
		for _, h := range holds {
			s.Unlock(h)
		}
	})
}
