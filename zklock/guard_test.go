package zklock_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/internal/locktest"
	"github.com/zklock/locker/zklock"
)

// orderPath is the path of an order.
func orderPath(order string) (string, error) { return zklock.KeyPath("/orders", order), nil }

func TestAGuardPassesArgumentsResultsAndErrors(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		c, oops := s.Client(), errors.New("oops")
		type key struct{}
		work := zklock.Guard(c.Client, orderPath, func(ctx context.Context, order string) (int, error) {
			require.Len(s, s.Server.Children("/orders/"+order), 1, "it is called while the lock is held")
			require.Equal(s, "value", ctx.Value(key{}))
			if order == "bad" {
				return 7, oops
			}
			return len(order), nil
		})
		ctx := context.WithValue(s.Context(), key{}, "value")
		n, err := work(ctx, "four")
		require.NoError(s, err)
		require.Equal(s, 4, n)
		n, err = work(ctx, "bad")
		require.Equal(s, oops, err)
		require.Equal(s, 7, n, "the result is passed beside an error")
		s.Empty(0, "/orders/four")
		s.Empty(0, "/orders/bad")
	})
}

func TestAGuardRefusesWhatHasNoPathBeforeAnyRequest(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		c, oops := s.Client(), errors.New("no such order")
		cost := cost(s, c)
		never := func(context.Context, string) (int, error) { panic("called") }
		for name, g := range map[string]struct {
			path func(string) (string, error)
			want error
		}{
			"path's own error": {func(string) (string, error) { return "/x", oops }, oops},
			"empty path":       {func(string) (string, error) { return "", nil }, zklock.ErrPath},
			"empty key":        {orderPath, zklock.ErrPath},
			"empty key, root":  {func(key string) (string, error) { return zklock.KeyPath("/", key), nil }, zklock.ErrPath},
			"bad path":         {func(string) (string, error) { return "x", nil }, zklock.ErrPath},
		} {
			n, err := zklock.Guard(c.Client, g.path, never)(s.Context(), "")
			require.ErrorIs(s, err, g.want, name)
			require.Zero(s, n)
		}
		_, err := zklock.Guard(c.Client, orderPath, never, zklock.WithMaxHold(-1))(s.Context(), "a")
		require.ErrorIs(s, err, zklock.ErrOption)
		require.Empty(s, cost())
	})
}

// Called concurrently: calls with the same key run one after the other, calls with different keys at the same time.
func TestAGuardIsCalledConcurrently(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		c := s.Client()
		var mu sync.Mutex
		inside, most := map[string]int{}, 0
		work := zklock.Guard(c.Client, orderPath, func(_ context.Context, order string) (struct{}, error) {
			mu.Lock()
			inside[order]++
			if inside[order] > 1 {
				t.Error("two calls with the key", order)
			}
			sum := 0
			for _, n := range inside {
				sum += n
			}
			most = max(most, sum)
			mu.Unlock()
			time.Sleep(time.Second)
			mu.Lock()
			defer mu.Unlock()
			inside[order]--
			return struct{}{}, nil
		})
		var all sync.WaitGroup
		began := time.Now()
		for i := range 40 {
			all.Go(func() {
				if _, err := work(s.Context(), fmt.Sprint(i%4)); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		require.Equal(s, 4, most)
		require.Equal(s, 10*time.Second, time.Since(began))
	})
}

func TestAGuardsOptionsBoundWaitingAndHolding(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		c, other := s.Client(), s.Client()
		work := zklock.Guard(c.Client, orderPath, func(ctx context.Context, _ string) (string, error) {
			<-ctx.Done()
			return "late", ctx.Err()
		}, zklock.WithWait(3*time.Second), zklock.WithMaxHold(5*time.Second))
		h := s.Lock(other.Mutex("/orders/a"))
		began := time.Now()
		got, err := work(s.Context(), "a")
		require.ErrorIs(s, err, zklock.ErrBusy)
		require.Empty(s, got)
		require.Equal(s, 3*time.Second, time.Since(began))
		s.Unlock(h)

		began = time.Now()
		got, err = work(s.Context(), "a")
		require.ErrorIs(s, err, zklock.ErrMaxHold)
		require.Equal(s, "late", got)
		require.Equal(s, 5*time.Second, time.Since(began))
		synctest.Wait()
		require.Empty(s, s.Server.Children("/orders/a"))

		require.PanicsWithValue(s, "oops", func() {
			_, _ = zklock.Guard(c.Client, orderPath, func(context.Context, string) (int, error) { panic("oops") })(s.Context(), "a")
		})
		s.Empty(0, "/orders/a")
	})
}
