package zklock_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/tests/locktest"
	"github.com/zklock/locker/zklock"
	"github.com/zklock/locker/zktest/fault"
)

// Scenario 25: the order when a waiter gives up. Package recipe tests 24 and 26; 27 and 28 are in scenario_wake_test.go.

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
		l.calls = append(l.calls, locktest.Go(l.s.Context(), func(ctx context.Context) (context.Context, *zklock.Hold, error) {
			ctx, h, err := m.Lock(ctx)
			l.mu.Lock()
			defer l.mu.Unlock()
			l.order = append(l.order, i)
			return ctx, h, err
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
					return info.Requests[fault.OpGetChildren2] + info.Requests[fault.OpSetWatches]
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
