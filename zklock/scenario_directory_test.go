package zklock_test

import (
	"context"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/tests/locktest"
	"github.com/zklock/locker/zklock"
	"github.com/zklock/locker/zktest/fault"
)

// The lock's directory. More is in testdata/scripts/directory.txt.

// scenario 45: many clients create the directory at once, some as a container, some as a persistent znode: all succeed.
func TestScenario45_ManyClientsCreateTheDirectoryAtOnceInDifferentModes(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		const dir, n = "/not/yet/there/a", 24
		// All creates of the directory wait until all clients have found it missing.
		missing := s.Server.Inject(fault.Hold().Op(fault.OpCreate, fault.OpCreateContainer).Path("/not", "/not/yet", "/not/yet/there", dir))
		var locks []*zklock.Mutex
		for i := range n {
			var opts []zklock.LockOption
			if i%2 == 0 {
				opts = append(opts, zklock.WithContainer())
			}
			if i%3 == 0 {
				opts = append(opts, zklock.WithACL(zk.WorldACL(zk.PermAll)...))
			}
			locks = append(locks, s.Client().Mutex(dir, opts...))
		}
		go func() {
			assert.NoError(s, missing.Wait(s.Context(), n))
			assert.Equal(s, n, missing.Hits(), "each has asked for the directory once")
			for range 8 { // from the leaf to the root and back, all of them in step
				missing.Release()
				time.Sleep(time.Millisecond)
			}
			missing.Remove()
		}()
		inside := 0
		for i, err := range together(n, func(i int) error {
			return locks[i].Do(s.Context(), func(context.Context) error { inside++; return nil }) // only the holder writes
		}) {
			require.NoError(s, err, "client %d", i)
		}
		require.Equal(s, n, inside)
		require.Empty(s, s.Server.Children(dir))
	})
}

// Scenario 50, for the data of the directory itself: another client keeps 1 MB at a lock's path, and a burst of calls that read
// the directory's data (a semaphore's size) costs no other hold of the client.
func TestScenario50_MuchDataAtALocksPathCostNoOtherHold(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		dir, c := s.Dir("/l"), slowHolder(s, 1_250_000)
		require.NoError(s, s.Server.SetData(dir, bulk))
		// 20 s for their data, if all asked at once
		for _, err := range together(25, func(int) error { return errOf(c.Semaphore(dir, 3).Acquire(s.Context(), 1)) }) {
			require.ErrorIs(s, err, zklock.ErrConflict)
		}
		time.Sleep(time.Minute)
	})
}
