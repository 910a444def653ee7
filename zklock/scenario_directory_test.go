package zklock_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zklock/locker/zktest/fault"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/tests/locktest"
	"github.com/zklock/locker/zklock"
)

// The lock's directory. More is in testdata/scripts/directory.txt.

// scenario 45: many clients create the directory at once, some as a container, some as a persistent znode: all succeed.
func TestScenario45_ManyClientsCreateTheDirectoryAtOnceInDifferentModes(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		const dir, n = "/not/yet/there/a", 24
		var wg sync.WaitGroup
		errs := make([]error, n)
		// All creates of the directory wait until all clients have found it missing.
		missing := s.Server.Inject(fault.Hold().Op(fault.OpCreate, fault.OpCreateContainer).Path("/not", "/not/yet", "/not/yet/there", dir))
		inside, most := 0, 0
		var mu sync.Mutex
		for i := range n {
			var opts []zklock.LockOption
			if i%2 == 0 {
				opts = append(opts, zklock.WithContainer())
			}
			if i%3 == 0 {
				opts = append(opts, zklock.WithACL(zk.WorldACL(zk.PermAll)...))
			}
			c := s.Client()
			wg.Go(func() {
				errs[i] = c.Mutex(dir, opts...).Do(s.Context(), func(context.Context) error {
					mu.Lock()
					inside++
					most = max(most, inside)
					mu.Unlock()
					time.Sleep(time.Second)
					mu.Lock()
					inside--
					mu.Unlock()
					return nil
				})
			})
		}
		require.NoError(s, missing.Wait(s.Context(), n))
		synctest.Wait()
		require.Equal(s, n, missing.Hits(), "each has asked for the directory once")
		_, there := s.Server.Node("/not")
		require.False(s, there)
		for range 8 { // from the leaf to the root and back, all of them in step
			missing.Release()
			synctest.Wait()
		}
		missing.Remove()
		wg.Wait()
		for i, err := range errs {
			require.NoError(s, err, "client %d", i)
		}
		require.Equal(s, 1, most)
		require.Empty(s, s.Server.Children(dir))
	})
}

// Scenario 50, for the data of the directory itself: another client keeps 1 MB at a lock's path, and a burst of calls that read
// the directory's data (a semaphore's size) costs no other hold of the client.
func TestScenario50_MuchDataAtALocksPathCostNoOtherHold(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		dir, c := s.Dir("/l"), slowClient(s, 1_250_000)
		require.NoError(s, s.Server.SetData(dir, bulk))
		_, other, err := c.Mutex("/other").Lock(s.Context())
		require.NoError(s, err)
		ends := make(chan error, 25) // 20 s for their data, if all asked at once
		for range cap(ends) {
			go func() {
				_, _, err := c.Semaphore(dir, 3).Acquire(s.Context(), 1)
				ends <- err
			}()
		}
		for range cap(ends) {
			require.ErrorIs(s, <-ends, zklock.ErrConflict)
		}
		time.Sleep(time.Minute)
		require.NoError(s, other.Err())
	})
}
