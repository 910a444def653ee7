package zklock_test

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/tests/locktest"
	"github.com/zklock/locker/zklock"
	"github.com/zklock/locker/zktest/fault"
)

// lockByMany has workers lock and unlock m, n times each.
func lockByMany(s *locktest.Sim, m *zklock.Mutex, workers, n int) {
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for range n {
				_, h, err := m.Lock(s.Context())
				if err == nil {
					err = h.Unlock()
				}
				if err != nil {
					s.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
}

// waitInVainFor makes n calls for a lock that is held, which give up after up to 0.7 s, 20 at a
// time.
func waitInVainFor(s *locktest.Sim, held *zklock.Mutex, n int) {
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(s.Context(), time.Duration(i%100)*7*time.Millisecond)
			defer cancel()
			if _, _, err := held.Lock(ctx); !errors.Is(err, context.DeadlineExceeded) {
				s.Errorf("wait %d: %v", i, err)
			}
		})
		if i%20 == 19 {
			wg.Wait()
		}
	}
	wg.Wait()
}

// Nothing grows: scenario 15.

// scenario 15, scaled down: contended lock cycles, and waits that time out on a long-held lock, all
// in one session: the watches on the server, those that the client keeps, goroutines and memory
// return to where they began.
func TestScenario15_NothingGrowsWithThePastCycles(t *testing.T) {
	const workers, cycles, waits = 5, 400, 500
	locktest.SimulateAlone(t, func(s *locktest.Sim) {
		s.Dir("/locks/a")
		s.Dir("/locks/long")
		c := s.Client()
		id, m, long := c.SessionID(), c.Mutex("/locks/a"), c.Mutex("/locks/long")
		held := s.Lock(long)

		contend := func(n int) { lockByMany(s, m, workers, n) }
		timeOut := func(n int) { waitInVainFor(s, long, n) }
		contend(20) // everything that is allocated once has been allocated
		timeOut(20)
		time.Sleep(time.Second)
		watches, goroutines, memory := s.Server.WatchCount(), locktest.Goroutines(), heap()
		require.Equal(s, []string{held.Node()}, s.Watched(id), "the holder watches its own znode")

		contend(cycles)
		timeOut(waits)
		time.Sleep(time.Second)
		synctest.Wait()
		require.Equal(s, id, c.SessionID())
		require.Empty(s, s.Server.Children("/locks/a"))
		require.Len(s, s.Server.Children("/locks/long"), 1)
		require.Equal(s, watches, s.Server.WatchCount(), "watches on the server")
		require.Equal(s, goroutines, locktest.Goroutines(), "goroutines")
		// A watch that is forgotten costs the client 200 bytes and more.
		require.Less(s, (heap()-memory)/(workers*cycles+waits), int64(60),
			"bytes of memory for each past call")

		// A reconnection shows what the client still watches: it sets exactly these watches again.
		before := s.Server.Requests()
		s.Server.DropConnections()
		s.Until(3*time.Second, "the client is back", func() bool { return len(s.Watched(id)) > 0 })
		require.Equal(s, []string{held.Node()}, s.Watched(id), "watches that the client keeps")
		require.Equal(s, before[fault.OpExists], s.Server.Requests()[fault.OpExists])
		require.Equal(s, before[fault.OpSetWatches]+1, s.Server.Requests()[fault.OpSetWatches])
		s.Unlock(held)
		synctest.Wait()
		s.Server.DropConnections()
		s.Unlock(s.Lock(m))
		require.Zero(s, s.Server.WatchCount())
		require.Equal(s, before[fault.OpSetWatches]+1, s.Server.Requests()[fault.OpSetWatches],
			"nothing is left to watch")
	})
}

// heap returns how much memory is in use.
func heap() int64 {
	synctest.Wait()
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// scenario 15, with trouble: watches and goroutines return to where they began also when
// connections drop, sessions end, waiters give up and znodes vanish in between.
func TestScenario15_NothingGrowsWithPastTrouble(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		dir, c := s.Dir("/locks/a"), s.Client()
		m := c.Mutex(dir)
		s.Unlock(s.Lock(m))
		time.Sleep(time.Second)
		goroutines := locktest.Goroutines()
		for i := range 60 {
			ctx, cancel := context.WithCancel(s.Context())
			h := s.Lock(m)
			var calls sync.WaitGroup
			for _, ctx := range []context.Context{ctx, s.Context(), ctx} {
				calls.Go(func() {
					if _, h, err := m.Lock(ctx); err == nil {
						_ = h.Unlock() // it may have been lost
					}
				})
				synctest.Wait()
			}
			synctest.Wait()
			if i%2 == 0 {
				time.Sleep(time.Second)
			}
			switch i % 6 {
			case 0:
				s.Server.DropConnections()
			case 1:
				require.NoError(s, s.Server.Expire(c.SessionID()))
			case 2:
				require.NoError(s, s.Server.Delete(h.Node()))
			case 3:
				s.RemoveDir(dir, true)
			case 4:
				for _, name := range locktest.Contenders(s.Server.Children(dir)) {
					require.NoError(s, s.Server.SetData(dir+"/"+name, []byte{1}))
				}
			}
			cancel()
			if err := h.Unlock(); h.Err() == nil {
				require.NoError(s, err)
			}
			calls.Wait()
			s.Empty(20*time.Second, dir)
		}
		time.Sleep(15 * time.Second)
		require.Zero(s, s.Server.WatchCount())
		require.Equal(s, goroutines, locktest.Goroutines())
		setWatches := s.Server.Requests()[fault.OpSetWatches]
		s.Server.DropConnections()
		s.Unlock(s.Lock(m))
		require.Equal(s, setWatches, s.Server.Requests()[fault.OpSetWatches],
			"nothing is left to watch")
	})
}
