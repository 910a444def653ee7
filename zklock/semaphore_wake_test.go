package zklock_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/zklock"
	"github.com/zklock/locker/zktest"
)

// Who waits for permits, who is woken, and when.

// Permits are given in the order of arrival: small requests do not pass a large one that waits.
func TestALargeRequestIsNotStarvedBySmallOnes(t *testing.T) {
	simTest(t, func(s *sim) {
		dir := s.dir("/locks/a")
		const size = 4
		held := []*zklock.Hold{semTake(s, s.client().Semaphore(dir, size), 1), semTake(s, s.client().Semaphore(dir, size), 2)}
		large := semAside(s, s.client().Semaphore(dir, size), size)
		var small []*simCall
		for range 5 {
			small = append(small, semAside(s, s.client().Semaphore(dir, size), 1))
		}
		time.Sleep(time.Hour)
		require.False(s, large.over())
		for _, call := range small {
			require.False(s, call.over(), "there is a permit, and somebody before it")
		}
		s.unlock(held[0])
		require.False(s, large.over())
		s.unlock(held[1])
		require.True(s, large.over())
		require.False(s, small[0].over())
		s.unlock(large.get(s))
		for i, call := range small {
			require.Equal(s, i < size, call.over())
		}
		for _, call := range small {
			s.unlock(call.get(s))
		}
		semNothingLeft(s, dir)
	})
}

// Any release that makes room lets the head in at once, whichever holder it came from.
func TestAnyHoldersReleaseLetsTheHeadIn(t *testing.T) {
	for leaver := range 4 {
		for _, settled := range []time.Duration{0, time.Minute} {
			t.Run(fmt.Sprintf("holder %d, after %v", leaver, settled), func(t *testing.T) {
				simTest(t, func(s *sim) {
					dir := s.dir("/locks/a")
					var holds []*zklock.Hold
					for range 4 {
						holds = append(holds, semTake(s, s.client().Semaphore(dir, 4), 1))
					}
					head, next := semAside(s, s.client().Semaphore(dir, 4), 1), semAside(s, s.client().Semaphore(dir, 4), 1)
					time.Sleep(settled)
					at := time.Now()
					s.unlock(holds[leaver])
					require.True(s, head.over())
					require.Equal(s, at, time.Now())
					require.False(s, next.over())
					other := (leaver + 2) % 4
					s.unlock(holds[other])
					require.True(s, next.over(), "the one behind has become the head")
					for i, h := range holds {
						if i != leaver && i != other {
							s.unlock(h)
						}
					}
					s.unlock(next.get(s))
					s.unlock(head.get(s))
					semNothingLeft(s, dir)
				})
			})
		}
	}
}

// Five hundred wait, and a release wakes two of their clients at most: the one that comes in, and the one behind it,
// which is the head now.
func TestAReleaseWakesAtMostTwoOfFiveHundredWaiters(t *testing.T) {
	const waiters, size = 500, 5
	simTest(t, func(s *sim) {
		dir := s.dir("/locks/a")
		var holds []*zklock.Hold
		holder := s.client()
		for range size {
			holds = append(holds, semTake(s, holder.Semaphore(dir, size), 1))
		}
		ctx, cancel := context.WithCancel(s.Context())
		var cs []*simClient
		var calls []*simCall
		for i := range waiters {
			if i < 20 {
				cs = append(cs, s.client())
			}
			calls = append(calls, simGo(ctx, semAcquire(cs[i%20].Semaphore(dir, size), 1)))
		}
		in := func() (n int) { // how many have come in
			synctest.Wait()
			for _, call := range calls {
				select {
				case <-call.done:
					n++
				default:
				}
			}
			return n
		}
		require.Zero(s, in())
		require.Len(s, s.srv.Children(dir), waiters+size)
		time.Sleep(10 * time.Second) // all have settled
		for round, leaver := range []int{size - 1, 0, 2, 1, 3} {
			before, asked := map[int]int{}, s.srv.Requests()
			for i, c := range cs {
				before[i] = s.notified(c.id())
			}
			s.unlock(holds[leaver])
			require.Equal(s, round+1, in(), "the head comes in")
			woken := 0
			for i, c := range cs {
				if s.notified(c.id()) > before[i] {
					woken++
				}
			}
			require.LessOrEqual(s, woken, 2, "clients woken by release %d", round)
			asks := s.srv.Requests()
			require.LessOrEqual(s, asks[zktest.OpGetChildren2]-asked[zktest.OpGetChildren2], 5, "lists")
			require.LessOrEqual(s, asks[zktest.OpSetWatches]+asks[zktest.OpExists]-asked[zktest.OpSetWatches]-asked[zktest.OpExists], 5, "watches set")
		}
		cancel()
		for _, call := range calls {
			<-call.done
			if call.err == nil {
				s.unlock(call.hold)
			} else {
				require.ErrorIs(s, call.err, context.Canceled)
			}
		}
		semNothingLeft(s, dir)
	})
}

// Many may come in after one release of a holder of many: each in its turn, at once.
func TestTheReleaseOfManyPermitsLetsManyIn(t *testing.T) {
	simTest(t, func(s *sim) {
		dir := s.dir("/locks/a")
		h := semTake(s, s.client().Semaphore(dir, 6), 6)
		var calls []*simCall
		for _, n := range []int{1, 2, 3, 1, 1} {
			calls = append(calls, semAside(s, s.client().Semaphore(dir, 6), n))
		}
		at := time.Now()
		s.unlock(h)
		for i, call := range calls {
			require.Equal(s, i < 3, call.over(), "contender %d", i)
		}
		require.Equal(s, at, time.Now())
		for _, call := range calls {
			s.unlock(call.get(s))
		}
		semNothingLeft(s, dir)
	})
}

// The one before begins to hold between our list and our watch: its announcement comes too early to be heard, and must
// not be needed.
func TestAWaiterWhosePredecessorBeginsToHoldBetweenItsListAndItsWatch(t *testing.T) {
	for _, at := range []zktest.Op{zktest.OpSetWatches, zktest.OpGetData} {
		t.Run(at.String(), func(t *testing.T) {
			simTest(t, func(s *sim) {
				dir := s.dir("/locks/a")
				a, b, c := s.client(), s.client(), s.client()
				m := c.Semaphore(dir, 2)
				s.unlock(semTake(s, m, 1)) // it knows the size
				one, two := semTake(s, a.Semaphore(dir, 2), 1), semTake(s, a.Semaphore(dir, 2), 1)
				before := semAside(s, b.Semaphore(dir, 2), 1)
				f := zktest.Hold().Op(at).Session(c.id())
				if at == zktest.OpGetData {
					f = f.After(1) // the first is of the size, before it queues
				}
				in := s.srv.Inject(f.Once())
				waiter := simGo(s.Context(), semAcquire(m, 1))
				<-in.Hit()
				s.unlock(one)
				require.True(s, before.over())
				synctest.Wait() // it has announced that it holds
				in.Release()
				require.False(s, waiter.over())
				s.unlock(two)
				require.True(s, waiter.over(), "it is the head, and there is room")
				s.unlock(waiter.get(s))
				s.unlock(before.get(s))
				semNothingLeft(s, dir)
			})
		})
	}
}

// The announcement of one who begins to hold is lost: it is made again, until it is heard.
func TestAnAnnouncementThatIsLostIsMadeAgain(t *testing.T) {
	for name, f := range map[string]zktest.Fault{"the request": zktest.CloseBefore(), "the reply": zktest.CloseAfter()} {
		t.Run(name, func(t *testing.T) {
			simTest(t, func(s *sim) {
				dir := s.dir("/locks/a")
				a, b, c := s.client(), s.client(), s.client()
				one, two := semTake(s, a.Semaphore(dir, 2), 1), semTake(s, a.Semaphore(dir, 2), 1)
				head, next := semAside(s, b.Semaphore(dir, 2), 1), semAside(s, c.Semaphore(dir, 2), 1)
				in := s.srv.Inject(f.Op(zktest.OpSetData).Session(b.id()).Times(3))
				s.unlock(one)
				h := head.get(s)
				s.until(10*time.Second, "the announcement was lost three times", func() bool { return in.Hits() == 3 })
				time.Sleep(10 * time.Second)
				s.owned(b, h)
				s.unlock(two)
				require.True(s, next.over(), "it has heard that it is the head")
				s.unlock(next.get(s))
				s.unlock(h)
				semNothingLeft(s, dir)
			})
		})
	}
}

// One that begins to hold and ends before it could say so is heard of by its znode's end.
func TestAHolderThatEndsBeforeItsAnnouncementIsHeardOf(t *testing.T) {
	for name, end := range map[string]func(*sim, *simClient, *zklock.Hold){
		"released": func(s *sim, _ *simClient, h *zklock.Hold) { go func() { _ = h.Unlock(s.Context()) }() },
		"expired":  func(s *sim, c *simClient, _ *zklock.Hold) { require.NoError(s, s.srv.Expire(c.id())) },
		"deleted":  func(s *sim, _ *simClient, h *zklock.Hold) { require.NoError(s, s.srv.Delete(h.Node())) },
	} {
		t.Run(name, func(t *testing.T) {
			simTest(t, func(s *sim) {
				dir := s.dir("/locks/a")
				a, b, c := s.client(), s.client(), s.client()
				one, two := semTake(s, a.Semaphore(dir, 2), 1), semTake(s, a.Semaphore(dir, 2), 1)
				head, next := semAside(s, b.Semaphore(dir, 2), 1), semAside(s, c.Semaphore(dir, 2), 1)
				in := s.srv.Inject(zktest.Hold().Op(zktest.OpSetData).Session(b.id()).Once())
				s.unlock(one)
				<-in.Hit()
				end(s, b, head.get(s))
				synctest.Wait()
				in.Remove()
				s.until(time.Minute, "the one behind comes in", next.over)
				s.unlock(next.get(s))
				s.unlock(two)
				semNothingLeft(s, dir)
			})
		})
	}
}
