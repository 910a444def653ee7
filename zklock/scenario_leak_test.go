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

	"github.com/zklock/locker/zktest"
)

// Nothing grows: scenario 15.

// scenario 15, scaled down: contended lock cycles, and waits that time out on a long-held lock, all in one session:
// the watches on the server, those that the client keeps, goroutines and memory return to where they began.
func TestScenario15_NothingGrowsWithThePastCycles(t *testing.T) {
	const workers, cycles, waits = 5, 400, 500
	simAlone(t, func(s *sim) {
		s.dir("/locks/a")
		s.dir("/locks/long")
		c := s.client()
		id, m, long := c.id(), c.Mutex("/locks/a"), c.Mutex("/locks/long")
		held := s.lock(long)

		contend := func(n int) {
			var wg sync.WaitGroup
			for range workers {
				wg.Go(func() {
					for range n {
						h, err := m.Lock(s.Context())
						if err == nil {
							err = h.Unlock(s.Context())
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
		timeOut := func(n int) {
			var wg sync.WaitGroup
			for i := range n {
				wg.Go(func() {
					ctx, cancel := context.WithTimeout(s.Context(), time.Duration(i%100)*7*time.Millisecond)
					defer cancel()
					if _, err := long.Lock(ctx); !errors.Is(err, context.DeadlineExceeded) {
						s.Errorf("wait %d: %v", i, err)
					}
				})
				if i%20 == 19 {
					wg.Wait()
				}
			}
			wg.Wait()
		}
		contend(20) // what is made once has been made
		timeOut(20)
		time.Sleep(time.Second)
		watches, goroutines, memory := s.srv.WatchCount(), simGoroutines(), heap()
		require.Equal(s, []string{held.Node()}, s.watched(id), "the holder watches its own znode")

		contend(cycles)
		timeOut(waits)
		time.Sleep(time.Second)
		synctest.Wait()
		require.Equal(s, id, c.id())
		require.Empty(s, s.srv.Children("/locks/a"))
		require.Len(s, s.srv.Children("/locks/long"), 1)
		require.Equal(s, watches, s.srv.WatchCount(), "watches on the server")
		require.Equal(s, goroutines, simGoroutines(), "goroutines")
		// A watch that is forgotten costs the client 200 bytes and more.
		require.Less(s, (heap()-memory)/(workers*cycles+waits), int64(60), "bytes of memory for each past call")

		// What the client still watches shows when it reconnects: it asks for those watches again, and no others.
		before := s.srv.Requests()
		s.srv.DropConnections()
		s.until(3*time.Second, "the client is back", func() bool { return len(s.watched(id)) > 0 })
		require.Equal(s, []string{held.Node()}, s.watched(id), "watches that the client keeps")
		require.Equal(s, before[zktest.OpExists], s.srv.Requests()[zktest.OpExists])
		require.Equal(s, before[zktest.OpSetWatches]+1, s.srv.Requests()[zktest.OpSetWatches])
		s.unlock(held)
		synctest.Wait()
		s.srv.DropConnections()
		s.unlock(s.lock(m))
		require.Zero(s, s.srv.WatchCount())
		require.Equal(s, before[zktest.OpSetWatches]+1, s.srv.Requests()[zktest.OpSetWatches], "nothing is left to watch")
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

// scenario 15, with trouble: watches and goroutines return to where they began also when connections drop, sessions
// end, waiters give up and znodes vanish in between.
func TestScenario15_NothingGrowsWithPastTrouble(t *testing.T) {
	simTest(t, func(s *sim) {
		dir, c := s.dir("/locks/a"), s.client()
		m := c.Mutex(dir)
		s.unlock(s.lock(m))
		time.Sleep(time.Second)
		goroutines := simGoroutines()
		for i := range 60 {
			ctx, cancel := context.WithCancel(s.Context())
			h := s.lock(m)
			var calls sync.WaitGroup
			for _, ctx := range []context.Context{ctx, s.Context(), ctx} {
				calls.Go(func() {
					if h, err := m.Lock(ctx); err == nil {
						_ = h.Unlock(s.Context()) // it may have been lost
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
				s.srv.DropConnections()
			case 1:
				require.NoError(s, s.srv.Expire(c.id()))
			case 2:
				require.NoError(s, s.srv.Delete(h.Node()))
			case 3:
				s.remove(dir, true)
			case 4:
				for _, name := range contenders(s.srv.Children(dir)) {
					require.NoError(s, s.srv.SetData(dir+"/"+name, []byte{1}))
				}
			}
			cancel()
			if err := h.Unlock(s.Context()); h.Err() == nil {
				require.NoError(s, err)
			}
			calls.Wait()
			s.empty(20*time.Second, dir)
		}
		time.Sleep(15 * time.Second)
		require.Zero(s, s.srv.WatchCount())
		require.Equal(s, goroutines, simGoroutines())
		setWatches := s.srv.Requests()[zktest.OpSetWatches]
		s.srv.DropConnections()
		s.unlock(s.lock(m))
		require.Equal(s, setWatches, s.srv.Requests()[zktest.OpSetWatches], "nothing is left to watch")
	})
}
