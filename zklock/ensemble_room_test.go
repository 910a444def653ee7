package zklock_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/tests/ensemble"
	"github.com/zklock/locker/tests/locktest"
	"github.com/zklock/locker/zklock"
)

// roomySite starts servers for one test alone, since they may not survive it.
func roomySite(t *testing.T) (*locktest.Site, *ensemble.Ensemble) {
	t.Helper()
	s := locktest.OwnSite(t, 3, ensemble.WithDirectQuorum())
	e := s.Ensemble()
	e.NeedControl(t)
	return s, e
}

// serves checks that a lock can be taken and released through one server.
func serves(t *testing.T, addr string) error {
	ctx, cancel := context.WithTimeout(context.Background(), locktest.Bound/4)
	defer cancel()
	c, err := zklock.Dial(ctx, addr, zklock.WithSessionTimeout(20*locktest.Tick), zklock.WithTickTime(locktest.Tick))
	if err != nil {
		return err
	}
	defer func() { assert.NoError(t, c.Close()) }()
	return c.Mutex("/later").Do(ctx, func(context.Context) error { return nil })
}

// Six clients take as many locks as their sessions have room for, and end. The ensemble survives, and its servers can be
// restarted, with the end of these sessions in their logs.
func TestAnEnsembleSurvivesTheEndOfClientsWhoseSessionsAreFull(t *testing.T) {
	site, e := roomySite(t)
	full := make([]*zklock.Client, 6)
	for i := range full {
		full[i] = site.Client(t)
	}
	n := e.Nodes[0]
	was, err := n.Zxid()
	require.NoError(t, err)
	var paths, locks atomic.Int64
	before, began := heapInUse(), time.Now()
	for _, c := range full {
		var workers sync.WaitGroup
		for range 250 {
			workers.Go(func() {
				for {
					_, _, err := c.Mutex(fmt.Sprintf("/many/%d", paths.Add(1))).Lock(t.Context())
					if errors.Is(err, zklock.ErrNoRoom) || !assert.NoError(t, err) {
						return
					}
					locks.Add(1)
				}
			})
		}
		workers.Wait()
	}
	took, heap := time.Since(began), heapInUse()-before
	zxid, err := n.Zxid()
	require.NoError(t, err)
	t.Logf("%d locks in %v and %d transactions, directories included; %d bytes of heap each",
		locks.Load(), took.Round(time.Millisecond), zxid-was, heap/locks.Load())
	require.Greater(t, locks.Load(), int64(40_000))
	require.Less(t, zxid-was, locks.Load(), "a create of a directory and one of a contender would be two for each")
	for _, c := range full {
		require.NoError(t, c.Close())
	}
	for _, n := range e.Nodes {
		require.NoError(t, serves(t, n.Addr()))
	}
	for _, n := range e.Nodes {
		n.Restart(t)
		e.WaitServing(t)
	}
	for _, n := range e.Nodes {
		require.NoError(t, serves(t, n.Addr()))
	}
}

// heapInUse is what is left of the heap after a collection.
func heapInUse() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
