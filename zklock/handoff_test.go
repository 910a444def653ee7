package zklock_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/tests/locktest"
	"github.com/zklock/locker/zklock"
)

func TestManyLocalWaitersAreServedInOrderOfArrivalAndNoCallerBarges(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		m := s.Client().Mutex("/l", zklock.WithLocalHandoff())
		h := s.Lock(m)
		var mu sync.Mutex
		var order []int
		var all sync.WaitGroup
		for i := range 20 {
			all.Go(func() {
				_, h, err := m.Lock(s.Context())
				if err != nil {
					s.Error(err)
					return
				}
				mu.Lock()
				order = append(order, i)
				mu.Unlock()
				if err := h.Unlock(); err != nil {
					s.Error(err)
				}
			})
			synctest.Wait()
		}
		s.Unlock(h)
		late := s.Lock(m) // last in line, although it calls at the moment of the release
		mu.Lock()
		require.Len(s, order, 20)
		mu.Unlock()
		s.Unlock(late)
		all.Wait()
		for i := range order {
			require.Equal(s, i, order[i])
		}
	})
}

func TestWhenTheLastWaiterGoesTheZnodeGoes(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		other := s.Client()
		outside := s.Lock(other.Mutex("/l"))
		c := s.Client()
		before := locktest.Goroutines()
		m := c.Mutex("/l", zklock.WithLocalHandoff())
		for round := range 10 {
			ctx, cancel := context.WithCancel(s.Context())
			var calls []*locktest.Call
			for range 100 {
				calls = append(calls, locktest.Go(ctx, m.Lock))
			}
			// from before its create until it watches
			time.Sleep(time.Duration(round) * 50 * time.Millisecond)
			cancel()
			for _, w := range calls {
				require.True(s, w.Over())
				require.ErrorIs(s, w.Err, context.Canceled)
			}
			require.Len(s, s.Server.Children("/l"), 1, "round %d", round)
			require.Empty(s, s.Watched(c.SessionID()))
			require.Zero(s, zklock.LocalQueues(c.Client))
			require.Equal(s, before, locktest.Goroutines())
			_, _, err := m.TryLock(s.Context())
			require.ErrorIs(s, err, zklock.ErrBusy)
		}
		s.Unlock(outside)
		_, h, err := m.TryLock(s.Context())
		require.NoError(s, err)
		s.Unlock(h)
	})
}
