package zklock_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/zklock"
	"github.com/zklock/locker/zktest"
)

// Waiters that give up, and holders and waiters that are lost.

// semScene is a semaphore of two with two holders and three that wait.
type semScene struct {
	s       *sim
	dir     string
	holders [2]*simClient
	holds   [2]*zklock.Hold
	waiters [3]*simClient
	calls   [3]*simCall
	leave   [3]context.CancelFunc
}

func newSemScene(s *sim) *semScene {
	sc := &semScene{s: s, dir: s.dir("/locks/a")}
	for i := range sc.holds {
		sc.holders[i] = s.client()
		sc.holds[i] = semTake(s, sc.holders[i].Semaphore(sc.dir, 2), 1)
	}
	for i := range sc.calls {
		sc.waiters[i] = s.client()
		var ctx context.Context
		ctx, sc.leave[i] = context.WithCancel(s.Context())
		s.Cleanup(sc.leave[i])
		sc.calls[i] = simGo(ctx, semAcquire(sc.waiters[i].Semaphore(sc.dir, 2), 1))
		synctest.Wait()
	}
	return sc
}

// drain lets the holders go, and demands that those who still wait come in, in their order, each at once.
func (sc *semScene) drain(holds []*zklock.Hold, waiting ...int) {
	sc.s.Helper()
	for i, w := range waiting {
		for _, later := range waiting[i:] {
			require.False(sc.s, sc.calls[later].over(), "waiter %d before its turn", later)
		}
		sc.s.unlock(holds[0])
		require.True(sc.s, sc.calls[w].over(), "waiter %d has its turn", w)
		holds = append(holds[1:], sc.calls[w].get(sc.s))
	}
	for _, h := range holds {
		sc.s.unlock(h)
	}
	semNothingLeft(sc.s, sc.dir)
}

// A waiter gives up, wherever it stands: those behind it take its place, and nobody is forgotten.
func TestAWaiterForPermitsThatGivesUpLeavesItsPlaceToTheNext(t *testing.T) {
	rest := [][]int{{1, 2}, {0, 2}, {0, 1}}
	for _, waited := range []time.Duration{0, time.Minute} {
		for i, place := range []string{"the head", "one in the middle", "the last"} {
			t.Run(place+" after "+waited.String(), func(t *testing.T) {
				simTest(t, func(s *sim) {
					sc := newSemScene(s)
					time.Sleep(waited)
					sc.leave[i]()
					require.True(s, sc.calls[i].over())
					require.ErrorIs(s, sc.calls[i].err, context.Canceled)
					require.ErrorContains(s, sc.calls[i].err, []string{"2nd", "3rd", "4th"}[i]+" in line")
					synctest.Wait()
					require.Empty(s, s.watched(sc.waiters[i].id()), "nothing is left of who gave up")
					sc.drain(sc.holds[:], rest[i]...)
				})
			})
		}
	}
}

// A large head that gives up makes room for those behind it, though nobody has released anything.
func TestALargeHeadThatGivesUpLetsThoseBehindItIn(t *testing.T) {
	simTest(t, func(s *sim) {
		dir := s.dir("/locks/a")
		h := semTake(s, s.client().Semaphore(dir, 4), 1)
		ctx, cancel := context.WithCancel(s.Context())
		defer cancel()
		large := simGo(ctx, semAcquire(s.client().Semaphore(dir, 4), 4))
		synctest.Wait()
		var small []*simCall
		for range 4 {
			small = append(small, semAside(s, s.client().Semaphore(dir, 4), 1))
		}
		cancel()
		require.True(s, large.over())
		for i, call := range small {
			require.Equal(s, i < 3, call.over(), "contender %d", i)
		}
		s.unlock(h)
		for _, call := range small {
			s.unlock(call.get(s))
		}
		semNothingLeft(s, dir)
	})
}

// A waiter's session expires: it queues again at the end of the line, and those behind it move up.
func TestAWaiterForPermitsWhoseSessionExpiresQueuesAgain(t *testing.T) {
	rest := [][]int{{1, 2, 0}, {0, 2, 1}, {0, 1, 2}}
	for i, place := range []string{"the head", "one in the middle", "the last"} {
		t.Run(place, func(t *testing.T) {
			simTest(t, func(s *sim) {
				sc := newSemScene(s)
				require.NoError(s, s.srv.Expire(sc.waiters[i].id()))
				s.until(time.Minute, "it has queued again", func() bool { return len(s.srv.Children(sc.dir)) == 5 })
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
			simTest(t, func(s *sim) {
				sc := newSemScene(s)
				time.Sleep(time.Second)
				node := contenders(s.srv.Children(sc.dir))[2+i]
				require.NoError(s, s.srv.Delete(sc.dir+"/"+node))
				s.until(time.Minute, "it has queued again", func() bool { return len(s.srv.Children(sc.dir)) == 5 })
				require.NotContains(s, s.srv.Children(sc.dir), node)
				sc.drain(sc.holds[:], rest[i]...)
			})
		})
	}
}

// A holder crashes, whichever it is: its permits go to the head as soon as the ensemble gives its session up.
func TestThePermitsOfAHolderThatCrashedGoToTheHead(t *testing.T) {
	for i := range 2 {
		t.Run([]string{"the first", "the second"}[i], func(t *testing.T) {
			simTest(t, func(s *sim) {
				sc := newSemScene(s)
				crashed := s.srv.Inject(zktest.Freeze().Session(sc.holders[i].id()))
				lost := sc.holds[i].Context().Done()
				began := time.Now()
				h := sc.calls[0].get(s)
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

// All connections break, and come back: everybody keeps its place, and whatever happened meanwhile is noticed.
func TestASemaphoresLineSurvivesABrokenConnection(t *testing.T) {
	simTest(t, func(s *sim) {
		sc := newSemScene(s)
		time.Sleep(time.Second)
		line := contenders(s.srv.Children(sc.dir))
		for range 3 {
			s.srv.DropConnections()
			time.Sleep(3 * time.Second)
			require.Equal(s, line, contenders(s.srv.Children(sc.dir)))
		}
		// The head is away while a holder releases.
		m := s.srv.Inject(zktest.Refuse())
		s.srv.DropConnections()
		require.NoError(s, s.srv.Delete(sc.holds[1].Node()))
		time.Sleep(time.Second)
		m.Remove()
		s.until(time.Minute, "all are connected again", func() bool {
			return !slices.ContainsFunc(s.srv.Sessions(), func(z zktest.Session) bool { return !z.Connected })
		})
		s.until(10*time.Second, "the head comes in", sc.calls[0].over)
		s.until(10*time.Second, "the loss is known", func() bool { return sc.holds[1].Err() != nil })
		sc.drain([]*zklock.Hold{sc.holds[0], sc.calls[0].get(s)}, 1, 2)
	})
}

// Watches come back to what they were, however many have waited, given up, and come in.
func TestWaitsForPermitsLeaveNoWatches(t *testing.T) {
	simTest(t, func(s *sim) {
		dir, a, b := s.dir("/locks/a"), s.client(), s.client()
		h := semTake(s, a.Semaphore(dir, 3), 3)
		time.Sleep(time.Second)
		before := s.srv.WatchCount()
		m := b.Semaphore(dir, 3, zklock.WithWait(400*time.Millisecond)) // longer than it takes to settle
		for range 20 {
			one, two := simGo(s.Context(), semAcquire(m, 1)), simGo(s.Context(), semAcquire(m, 2))
			<-one.done
			<-two.done
			require.Error(s, one.err)
			require.Error(s, two.err)
		}
		synctest.Wait()
		require.Equal(s, before, s.srv.WatchCount())
		s.unlock(h)
		semNothingLeft(s, dir)
	})
}
