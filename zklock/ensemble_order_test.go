package zklock_test

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/internal/locktest"
	"github.com/zklock/locker/zklock"
)

// Many clients, each with its own session, take turns at one lock on three servers. No two hold at once; tokens grow from holder
// to holder; and the client that queued first holds first.
func TestManyClientsTakeTurnsInOrder(t *testing.T) {
	clients, cycles := 64, 40
	if locktest.Long() {
		cycles = 500
	}
	s := locktest.SiteOf(t, 3)
	path := s.Path(t)
	var turns locktest.Exclusion
	var shared atomic.Int64 // each holder reads it and writes it back: two holders at once would lose an increment
	var workers sync.WaitGroup
	all := make([]*zklock.Client, clients)
	for i := range all {
		all[i] = s.Client(t)
	}
	ctx := locktest.Late(t)
	began := time.Now()
	for _, c := range all {
		workers.Go(func() {
			m := c.Mutex(path)
			for range cycles {
				h, err := m.Lock(ctx)
				if err != nil {
					t.Error(err)
					return
				}
				turns.Enter(h)
				n := shared.Load()
				runtime.Gosched() // gives a second holder time to appear
				shared.Store(n + 1)
				turns.Leave(h)
				if err := h.Unlock(ctx); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	workers.Wait()
	took := time.Since(began)
	require.NoError(t, turns.Err())
	require.Equal(t, clients*cycles, turns.Count())
	require.Equal(t, int64(clients*cycles), shared.Load())
	t.Logf("%d clients × %d cycles in %v: %v each, %.0f a second", clients, cycles, locktest.Millis(took),
		(took / time.Duration(clients*cycles)).Round(time.Microsecond), float64(clients*cycles)/took.Seconds())
}
