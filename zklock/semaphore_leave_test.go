package zklock_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/internal/locktest"
	"github.com/zklock/locker/zklock"
	"github.com/zklock/locker/zktest"
)

// Tests of waiters that give up, and of holders and waiters that are lost.

// semaphoreScene is a semaphore of two with two holders and three that wait.
type semaphoreScene struct {
	s       *locktest.Sim
	dir     string
	holders [2]*locktest.Client
	holds   [2]*zklock.Hold
	waiters [3]*locktest.Client
	calls   [3]*locktest.Call
	leave   [3]context.CancelFunc
}

func newSemaphoreScene(s *locktest.Sim) *semaphoreScene {
	sc := &semaphoreScene{s: s, dir: s.Dir("/locks/a")}
	for i := range sc.holds {
		sc.holders[i] = s.Client()
		sc.holds[i] = s.Take(locktest.Permits(sc.holders[i].Semaphore(sc.dir, 2), 1))
	}
	for i := range sc.calls {
		sc.waiters[i] = s.Client()
		var ctx context.Context
		ctx, sc.leave[i] = context.WithCancel(s.Context())
		s.Cleanup(sc.leave[i])
		sc.calls[i] = locktest.Go(ctx, locktest.Permits(sc.waiters[i].Semaphore(sc.dir, 2), 1))
		synctest.Wait()
	}
	return sc
}

// drain releases the holders, and requires that the remaining waiters hold in their order, each at once.
func (sc *semaphoreScene) drain(holds []*zklock.Hold, waiting ...int) {
	sc.s.Helper()
	for i, w := range waiting {
		for _, later := range waiting[i:] {
			require.False(sc.s, sc.calls[later].Over(), "waiter %d before its turn", later)
		}
		sc.s.Unlock(holds[0])
		require.True(sc.s, sc.calls[w].Over(), "waiter %d has its turn", w)
		holds = append(holds[1:], sc.calls[w].Get(sc.s))
	}
	for _, h := range holds {
		sc.s.Unlock(h)
	}
	sc.s.NothingLeft(sc.dir)
}

// A waiter gives up, anywhere in line: those behind it move up, and none is forgotten.
func TestAWaiterForPermitsThatGivesUpLeavesItsPlaceToTheNext(t *testing.T) {
	rest := [][]int{{1, 2}, {0, 2}, {0, 1}}
	for _, waited := range []time.Duration{0, time.Minute} {
		for i, place := range []string{"the head", "one in the middle", "the last"} {
			t.Run(place+" after "+waited.String(), func(t *testing.T) {
				locktest.Simulate(t, func(s *locktest.Sim) {
					sc := newSemaphoreScene(s)
					time.Sleep(waited)
					sc.leave[i]()
					require.True(s, sc.calls[i].Over())
					require.ErrorIs(s, sc.calls[i].Err, context.Canceled)
					require.ErrorContains(s, sc.calls[i].Err, []string{"2nd", "3rd", "4th"}[i]+" in line")
					synctest.Wait()
					require.Empty(s, s.Watched(sc.waiters[i].SessionID()), "nothing is left of who gave up")
					sc.drain(sc.holds[:], rest[i]...)
				})
			})
		}
	}
}

// A head that wants many permits gives up: those behind it can hold, though there was no release.
func TestALargeHeadThatGivesUpLetsThoseBehindItIn(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		dir := s.Dir("/locks/a")
		h := s.Take(locktest.Permits(s.Client().Semaphore(dir, 4), 1))
		ctx, cancel := context.WithCancel(s.Context())
		defer cancel()
		large := locktest.Go(ctx, locktest.Permits(s.Client().Semaphore(dir, 4), 4))
		synctest.Wait()
		var small []*locktest.Call
		for range 4 {
			small = append(small, s.Start(locktest.Permits(s.Client().Semaphore(dir, 4), 1)))
		}
		cancel()
		require.True(s, large.Over())
		for i, call := range small {
			require.Equal(s, i < 3, call.Over(), "contender %d", i)
		}
		s.Unlock(h)
		for _, call := range small {
			s.Unlock(call.Get(s))
		}
		s.NothingLeft(dir)
	})
}

// A waiter's session expires: it queues again at the end of the line, and those behind it move up.
func TestAWaiterForPermitsWhoseSessionExpiresQueuesAgain(t *testing.T) {
	rest := [][]int{{1, 2, 0}, {0, 2, 1}, {0, 1, 2}}
	for i, place := range []string{"the head", "one in the middle", "the last"} {
		t.Run(place, func(t *testing.T) {
			locktest.Simulate(t, func(s *locktest.Sim) {
				sc := newSemaphoreScene(s)
				require.NoError(s, s.Server.Expire(sc.waiters[i].SessionID()))
				s.Until(time.Minute, "it has queued again", func() bool { return len(s.Server.Children(sc.dir)) == 5 })
				sc.drain(sc.holds[:], rest[i]...)
			})
		})
	}
}

// A waiter's znode is deleted by an administrator: it queues again.
func TestAWaiterForPermitsWhoseZnodeIsDeletedQueuesAgain(t *testing.T) {
	rest := [][]int{{1, 2, 0}, {0, 2, 1}, {0, 1, 2}}
	for i, place := range []string{"the head", "one in the middle", "the last"} {
		t.Run(place, func(t *testing.T) {
			locktest.Simulate(t, func(s *locktest.Sim) {
				sc := newSemaphoreScene(s)
				time.Sleep(time.Second)
				node := locktest.Contenders(s.Server.Children(sc.dir))[2+i]
				require.NoError(s, s.Server.Delete(sc.dir+"/"+node))
				s.Until(time.Minute, "it has queued again", func() bool { return len(s.Server.Children(sc.dir)) == 5 })
				require.NotContains(s, s.Server.Children(sc.dir), node)
				sc.drain(sc.holds[:], rest[i]...)
			})
		})
	}
}

// Any holder crashes: its permits go to the head as soon as the ensemble ends its session.
func TestThePermitsOfAHolderThatCrashedGoToTheHead(t *testing.T) {
	for i := range 2 {
		t.Run([]string{"the first", "the second"}[i], func(t *testing.T) {
			locktest.Simulate(t, func(s *locktest.Sim) {
				sc := newSemaphoreScene(s)
				crashed := s.Server.Inject(zktest.Freeze().Session(sc.holders[i].SessionID()))
				lost := sc.holds[i].Context().Done()
				began := time.Now()
				h := sc.calls[0].Get(s)
				select {
				case <-lost: // it knew before
				default:
					require.Fail(s, "two hold, and the one that is cut off does not know")
				}
				require.Less(s, time.Since(began), 20*time.Second, "the session timeout and a tick")
				require.ErrorIs(s, sc.holds[i].Err(), zklock.ErrLost)
				crashed.Remove()
				sc.drain([]*zklock.Hold{h, sc.holds[1-i]}, 1, 2)
			})
		})
	}
}

// All connections break and come back: each contender keeps its place, and notices what happened meanwhile.
func TestASemaphoresLineSurvivesABrokenConnection(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		sc := newSemaphoreScene(s)
		time.Sleep(time.Second)
		line := locktest.Contenders(s.Server.Children(sc.dir))
		for range 3 {
			s.Server.DropConnections()
			time.Sleep(3 * time.Second)
			require.Equal(s, line, locktest.Contenders(s.Server.Children(sc.dir)))
		}
		// The head is disconnected while a holder releases.
		m := s.Server.Inject(zktest.Refuse())
		s.Server.DropConnections()
		require.NoError(s, s.Server.Delete(sc.holds[1].Node()))
		time.Sleep(time.Second)
		m.Remove()
		s.Until(time.Minute, "all are connected again", func() bool {
			return !slices.ContainsFunc(s.Server.Sessions(), func(z zktest.Session) bool { return !z.Connected })
		})
		s.Until(10*time.Second, "the head comes in", sc.calls[0].Over)
		s.Until(10*time.Second, "the loss is known", func() bool { return sc.holds[1].Err() != nil })
		sc.drain([]*zklock.Hold{sc.holds[0], sc.calls[0].Get(s)}, 1, 2)
	})
}

// The number of watches returns to what it was, however many calls have waited, given up and held.
func TestWaitsForPermitsLeaveNoWatches(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		dir, a, b := s.Dir("/locks/a"), s.Client(), s.Client()
		h := s.Take(locktest.Permits(a.Semaphore(dir, 3), 3))
		time.Sleep(time.Second)
		before := s.Server.WatchCount()
		m := b.Semaphore(dir, 3, zklock.WithWait(400*time.Millisecond)) // longer than it takes to settle
		for range 20 {
			one, two := locktest.Go(s.Context(), locktest.Permits(m, 1)), locktest.Go(s.Context(), locktest.Permits(m, 2))
			<-one.Done
			<-two.Done
			require.Error(s, one.Err)
			require.Error(s, two.Err)
		}
		synctest.Wait()
		require.Equal(s, before, s.Server.WatchCount())
		s.Unlock(h)
		s.NothingLeft(dir)
	})
}
