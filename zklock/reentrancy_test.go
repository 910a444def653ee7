package zklock_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/tests/locktest"
	"github.com/zklock/locker/zklock"
	"github.com/zklock/locker/zktest"
)

func TestReentrancyFromManyGoroutines(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T, srv *zktest.Server) {
		m := locktest.Dial(t, srv).Mutex("/l", zklock.WithReentrancy())
		for range 20 {
			first := locktest.Lock(t, m)
			var wg sync.WaitGroup
			for range 10 {
				wg.Go(func() {
					_, h, err := m.Lock(context.WithoutCancel(first.Context()))
					if err != nil {
						t.Error(err)
						return
					}
					if err := h.Unlock(); err != nil {
						t.Error(err)
					}
				})
			}
			locktest.Unlock(t, first) // a call that comes later queues for its own hold
			wg.Wait()
			synctest.Wait()
			require.Empty(t, srv.Children("/l"))
		}
	})
}
