package zklock_test

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/internal/locktest"
	"github.com/zklock/locker/zklock"
	"github.com/zklock/locker/zktest"
)

// Scenarios 24 to 26: the order. 27 and 28 are in scenario_wake_test.go.

// queued is a number of Lock calls that have entered one after the other.
type queued struct {
	s     *locktest.Sim
	calls []*locktest.Call

	mu    sync.Mutex // guards order
	order []int      // the calls that got the lock, in that order
}

// enter starts n more calls, on the mutexes in turn, each after the one before it has its place.
func (l *queued) enter(n int, ms ...*zklock.Mutex) {
	for range n {
		i := len(l.calls)
		m := ms[i%len(ms)]
		l.calls = append(l.calls, locktest.Go(l.s.Context(), func(ctx context.Context) (*zklock.Hold, error) {
			h, err := m.Lock(ctx)
			l.mu.Lock()
			defer l.mu.Unlock()
			l.order = append(l.order, i)
			return h, err
		}))
		synctest.Wait()
	}
}

// drain makes each call get the lock and release it, and returns their order.
func (l *queued) drain() []int {
	l.s.Helper()
	for n := 0; n < len(l.calls); n++ {
		synctest.Wait()
		l.mu.Lock()
		order := slices.Clone(l.order)
		l.mu.Unlock()
		require.Len(l.s, order, n+1, "one holder at a time")
		l.s.Unlock(l.calls[order[n]].Get(l.s))
	}
	return l.order
}

func upTo(n int) []int {
	all := make([]int, n)
	for i := range all {
		all[i] = i
	}
	return all
}

// scenario 24: ids sort differently from the numbers behind them; the order is that of the numbers only.
func TestScenario24_TheOrderIsThatOfTheNumbersOnly(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		dir, a, b := s.Dir("/locks/a"), s.Client(), s.Client()
		first := s.Lock(a.Mutex(dir))
		l := &queued{s: s}
		l.enter(20, a.Mutex(dir), b.Mutex(dir))
		names := locktest.Contenders(s.Server.Children(dir))
		require.False(s, slices.IsSorted(names), "the names sort as the numbers do: this shows nothing")
		s.Unlock(first)
		require.Equal(s, upTo(20), l.drain())
	})
}

// scenario 24, with other clients' names: whatever is before the number, the lower number comes first.
func TestScenario24_OtherClientsNamesAreOrderedByTheirNumbersToo(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		dir, c, other := s.Dir("/locks/a"), s.Client(), s.Stranger()
		names := []string{ // in the order of their numbers, and in no other
			"zzz-lock-0000000002", "lock-0000000003", "0f0e0d0c0b0a09080706050403020100__lock__0000000004",
			"_c_00000000-0000-4000-8000-000000000000-lock-0000000005", "_c_ffffffff-ffff-4fff-8fff-ffffffffffff-lock-0000000010",
		}
		for _, name := range slices.Backward(names) {
			s.Plant(other, dir+"/"+name)
		}
		s.Plant(other, dir+"/_c_00000000-0000-4000-8000-000000000000-lock-0000000012")
		require.NoError(s, s.Server.SetSequence(dir, 11))
		call := locktest.Go(s.Context(), c.Mutex(dir).Lock)
		for i := len(names) - 1; i >= 0; i-- {
			require.False(s, call.Over())
			require.Contains(s, s.Watched(c.SessionID()), dir+"/"+names[i], "the one immediately before it")
			require.NoError(s, other.Delete(s.Context(), dir+"/"+names[i], -1))
		}
		require.True(s, call.Over(), "a greater number is behind it")
		require.Equal(s, "0000000011", number(call.Get(s)))
	})
}

// scenario 25: a waiter in the middle gives up: the contender behind it watches the next one down, and no other waiter is woken.
func TestScenario25_TheFollowerOfAWaiterThatGivesUpWatchesTheNextOneDown(t *testing.T) {
	for _, waited := range []time.Duration{0, 5 * time.Minute} {
		t.Run(waited.String(), func(t *testing.T) {
			locktest.Simulate(t, func(s *locktest.Sim) {
				dir := s.Dir("/locks/a")
				const n, leaver = 6, 3
				clients, calls := make([]*locktest.Client, n), make([]*locktest.Call, n)
				ctx, leave := context.WithCancel(s.Context())
				defer leave()
				for i := range n {
					clients[i] = s.Client()
					c := s.Context()
					if i == leaver {
						c = ctx
					}
					calls[i] = locktest.Go(c, clients[i].Mutex(dir).Lock)
					synctest.Wait()
				}
				time.Sleep(waited)
				synctest.Wait() // what else is due at that instant
				line := locktest.Contenders(s.Server.Children(dir))
				heard, asked := make([]int, n), make([]int, n)
				asks := func(c *locktest.Client) int {
					info, _ := s.Server.Session(c.SessionID())
					return info.Requests[zktest.OpGetChildren2] + info.Requests[zktest.OpSetWatches]
				}
				for i, c := range clients {
					heard[i], asked[i] = s.Notified(c.SessionID()), asks(c)
				}
				leave()
				require.True(s, calls[leaver].Over())
				require.ErrorIs(s, calls[leaver].Err, context.Canceled)
				for i, c := range clients {
					switch i {
					case leaver + 1:
						require.Equal(s, heard[i]+1, s.Notified(c.SessionID()), "the follower is woken")
						require.Equal(s, asked[i]+2, asks(c), "it looks again, and watches the next one down")
						require.Contains(s, s.Watched(c.SessionID()), dir+"/"+line[leaver-1])
						require.NotContains(s, s.Watched(c.SessionID()), dir+"/"+line[leaver])
					case leaver:
						require.Empty(s, s.Watched(c.SessionID()), "nothing is left of who gave up")
					default:
						require.Equal(s, heard[i], s.Notified(c.SessionID()), "contender %d", i)
						require.Equal(s, asked[i], asks(c), "contender %d", i)
					}
				}
				for i := range n {
					if i != leaver {
						s.Unlock(calls[i].Get(s))
					}
				}
				require.Zero(s, s.Server.WatchCount())
			})
		})
	}
}

// scenario 26: the counter passes 2147483647: the order survives.
func TestScenario26_TheOrderSurvivesTheWrapOfTheCounter(t *testing.T) {
	for _, from := range []int32{math.MaxInt32 - 5, math.MaxInt32, math.MinInt32, -5, -1, -999999999 - 3} {
		t.Run(fmt.Sprint(from), func(t *testing.T) {
			locktest.Simulate(t, func(s *locktest.Sim) {
				dir, a, b := closedParent(s, from), s.Client(), s.Client()
				first := s.Lock(a.Mutex(dir))
				require.Equal(s, fmt.Sprintf("%010d", from), first.Node()[len(first.Node())-len(fmt.Sprintf("%010d", from)):])
				l := &queued{s: s}
				l.enter(10, a.Mutex(dir), b.Mutex(dir))
				_, err := b.Mutex(dir).TryLock(s.Context())
				require.ErrorIs(s, err, zklock.ErrBusy)
				time.Sleep(time.Second)
				ctx, cancel := context.WithTimeout(s.Context(), time.Second)
				defer cancel()
				_, err = b.Mutex(dir).Lock(ctx)
				require.ErrorContains(s, err, "12th in line")
				s.Unlock(first)
				require.Equal(s, upTo(10), l.drain())
				h, err := b.Mutex(dir).TryLock(s.Context())
				require.NoError(s, err)
				s.Unlock(h)
				require.Empty(s, s.Server.Children(dir))
			})
		})
	}
}

// scenario 26, equal numbers: the czxid decides, so that the contender that came first holds.
func TestScenario26_EqualNumbersAreToldApartByTheirCzxid(t *testing.T) {
	const twin = "/_c_00000000-0000-4000-8000-000000000000-lock-0000000007"
	t.Run("the other came first", func(t *testing.T) {
		locktest.Simulate(t, func(s *locktest.Sim) {
			dir, c, other := s.Dir("/locks/a"), s.Client(), s.Stranger()
			s.Plant(other, dir+twin)
			require.NoError(s, s.Server.SetSequence(dir, 7))
			call := locktest.Go(s.Context(), c.Mutex(dir).Lock)
			time.Sleep(time.Minute)
			require.False(s, call.Over())
			require.Contains(s, s.Watched(c.SessionID()), dir+twin)
			require.NoError(s, other.Delete(s.Context(), dir+twin, -1))
			require.Equal(s, "0000000007", number(call.Get(s)))
			s.Owned(c, call.Hold)
		})
	})
	t.Run("the other came later", func(t *testing.T) {
		locktest.Simulate(t, func(s *locktest.Sim) {
			dir, c, other := s.Dir("/locks/a"), s.Client(), s.Stranger()
			require.NoError(s, s.Server.SetSequence(dir, 5))
			before := []*zklock.Hold{s.Lock(c.Mutex(dir))}
			l := &queued{s: s}
			l.enter(2, c.Mutex(dir))
			s.Plant(other, dir+twin)
			s.Unlock(before[0])
			require.Equal(s, "0000000006", number(l.calls[0].Get(s)))
			s.Plant(other, dir+"/lock-0000000006") // also of a contender that holds already
			synctest.Wait()
			s.Owned(c, l.calls[0].Hold)
			require.False(s, l.calls[1].Over())
			require.NoError(s, other.Delete(s.Context(), dir+"/lock-0000000006", -1))
			s.Unlock(l.calls[0].Hold)
			require.Equal(s, "0000000007", number(l.calls[1].Get(s)))
			s.Owned(c, l.calls[1].Hold)
		})
	})
	t.Run("several came first", func(t *testing.T) {
		locktest.Simulate(t, func(s *locktest.Sim) {
			dir, c, other := s.Dir("/locks/a"), s.Client(), s.Stranger()
			s.Plant(other, dir+twin)
			s.Plant(other, dir+"/lock-0000000007")
			require.NoError(s, s.Server.SetSequence(dir, 7))
			call := locktest.Go(s.Context(), c.Mutex(dir).Lock)
			require.False(s, call.Over())
			require.NoError(s, other.Delete(s.Context(), dir+twin, -1))
			require.False(s, call.Over())
			require.NoError(s, other.Delete(s.Context(), dir+"/lock-0000000007", -1))
			s.Owned(c, call.Get(s))
		})
	})
}
