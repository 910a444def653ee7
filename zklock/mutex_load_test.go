package zklock_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/internal/ensemble"
	"github.com/zklock/locker/internal/locktest"
	"github.com/zklock/locker/session"
	"github.com/zklock/locker/zklock"
)

// Scenario 15: contended lock cycles, and waits for a lock that time out, in one session. Afterwards the watches at the
// servers, the goroutines and the heap are as they were before.
func TestNothingGrowsWithThePastCyclesAndWaits(t *testing.T) {
	cycles, waits := 3_000, 1_200
	if locktest.Long() {
		cycles, waits = 100_000, 10_000
	}
	const workers, batch = 8, 100
	s := locktest.SiteOf(t, 3)
	dir := s.Path(t)
	keeper := s.Client(t) // holds the lock that the others wait for in vain, and reads the state of the servers
	longHeld := locktest.Lock(t, keeper.Mutex(dir+"/held"))
	c := s.Client(t)
	ses, err := c.Session(locktest.Soon(t))
	require.NoError(t, err)

	round := func(cycles, batch, waits int) {
		contend(t, c.Mutex(dir+"/contended"), workers, cycles)
		locktest.AwaitContenders(t, c, dir+"/contended", 0)
		for ; waits > 0; waits -= batch {
			waitInVain(t, c.Mutex(dir+"/held"), min(batch, waits))
			locktest.AwaitContenders(t, c, dir+"/held", 1) // a call whose context has ended leaves the deletion of its znode to the background
		}
		require.NoError(t, ses.Sync(locktest.Soon(t), dir)) // and so are the removals of watches, which were sent before
	}
	// Buffers, pools and maps grow to their final size. The runtime keeps a descriptor for each goroutine of the greatest
	// number that ever ran at once; hence more run here than later.
	round(4*workers, 4*batch, 8*batch)
	watches := steady(t, "watches", func() int { return s.Watches(t) })
	goroutines := steady(t, "goroutines", func() int { return locktest.Used().Goroutines })
	before := locktest.Used()

	began := time.Now()
	round(cycles, batch, waits)
	took := time.Since(began)

	ensemble.Until(t, locktest.Bound, "watches and goroutines to go back to where they began", func() error {
		if w, g := s.Watches(t), locktest.Used().Goroutines; w > watches || g > goroutines {
			return fmt.Errorf("%d watches, began with %d; %d goroutines, began with %d", w, watches, g, goroutines)
		}
		return nil
	})
	after := locktest.Used()
	t.Logf("%d contended cycles and %d timed-out waits in %v; watches %d → %d, goroutines %d → %d, heap %d KB → %d KB",
		cycles, waits, took.Round(time.Millisecond), watches, s.Watches(t), goroutines, after.Goroutines, before.Heap>>10, after.Heap>>10)
	require.NoError(t, ses.Err(), "all of it took place in one session")
	require.NoError(t, longHeld.Err())
	// The least that a call could leave behind is a pointer in a map or a channel, about 100 bytes. The collector and the
	// runtime's own tables make the heap vary by some ten KB. The bound is far above the latter, and far below the former
	// for all calls.
	const allowance = 200 << 10
	if !s.InProcess() { // the in-process server keeps a log of its own in the same heap
		require.Less(t, after.Heap-before.Heap, int64(allowance), "the heap has grown")
		require.Greater(t, (cycles+waits)*100, 2*allowance, "a leak of 100 bytes a call would show")
	}
	locktest.Unlock(t, longHeld)
}

// contend has workers take turns at a lock until there were that many cycles.
func contend(t *testing.T, m *zklock.Mutex, workers, cycles int) {
	t.Helper()
	ctx := locktest.Late(t)
	var left atomic.Int64
	left.Store(int64(cycles))
	var all sync.WaitGroup
	for range workers {
		all.Go(func() {
			for left.Add(-1) >= 0 {
				h, err := m.Lock(ctx)
				if err == nil {
					err = h.Unlock(ctx)
				}
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
}

// waitInVain makes a number of concurrent calls wait for a lock that is held, until their contexts end.
func waitInVain(t *testing.T, m *zklock.Mutex, calls int) {
	t.Helper()
	// With a much shorter time some would end before they have queued, which is tested elsewhere.
	ctx, cancel := context.WithTimeout(context.Background(), quietFor)
	defer cancel()
	var all sync.WaitGroup
	for range calls {
		all.Go(func() {
			h, err := m.Lock(ctx)
			switch {
			case err == nil:
				t.Errorf("got a lock that is held: %s", h.Node())
			case !errors.Is(err, context.DeadlineExceeded):
				t.Error(err)
			}
		})
	}
	all.Wait()
}

// steady returns a number once it has stopped falling, because the after-effects of earlier tests are over.
func steady(t *testing.T, what string, measure func() int) int {
	t.Helper()
	last, since := measure(), 0
	ensemble.Until(t, locktest.Bound, what+" to settle", func() error {
		now := measure()
		if now < last {
			last, since = now, 0
		} else {
			since++
		}
		if since < 5 {
			return fmt.Errorf("the latest number is %d", now)
		}
		return nil
	})
	return last
}

// When a thousand callers send requests at once, each waits for the answers to the others as well. As long as answers arrive
// the server is in order. If the client gave the connection up, it would send all requests again to a server that is already
// busy.
func TestABurstOfRequestsIsNoReasonToGiveAConnectionUpThatAnswers(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		const callers, names = 1000, 400
		dir, breaks := s.Dir("/l"), new(atomic.Int64)
		for i := range names {
			require.NoError(s, s.Server.Create(fmt.Sprintf("%s/%064d", dir, i), nil))
		}
		c := slowClient(s, 1_000_000, zklock.WithHooks(zklock.Hooks{Session: func(i zklock.SessionInfo) {
			if i.State == session.Disconnected {
				breaks.Add(1)
			}
		}}))
		ses, err := c.Session(s.Context())
		require.NoError(s, err)
		began := time.Now()
		ends := make(chan error, callers)
		for range callers {
			go func() {
				_, _, err := ses.List(s.Context(), dir)
				ends <- err
			}()
		}
		for range callers {
			require.NoError(s, <-ends)
		}
		require.Greater(s, time.Since(began), 2*ses.Timeout(), "the last answer is far behind the first")
		require.Zero(s, breaks.Load())
	})
}
