package zklock_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/internal/ensemble"
	"github.com/zklock/locker/internal/locktest"
	"github.com/zklock/locker/zklock"
)

// loadTime is how long the load tests run; on the in-process server only until each client has had some turns.
func loadTime() time.Duration {
	switch {
	case locktest.Long():
		return time.Minute
	case ensemble.InProcess():
		return time.Second
	}
	return 5 * time.Second
}

// Many clients of three servers take random subsets of six locks in random order. No two hold the same lock at once, tokens
// grow, and there is no deadlock: each client finishes its last turn.
func TestManyClientsTakeRandomSubsetsOfLocks(t *testing.T) {
	s := locktest.SiteBeside(t, 3)
	base := s.Path(t)
	var paths []string
	for i := range 6 {
		paths = append(paths, fmt.Sprint(base, "/", i))
	}
	clients := make([]*zklock.Client, 32)
	for i := range clients {
		clients[i] = s.Client(t)
	}
	ctx := locktest.Late(t) // a deadlock would use it up
	over, end := context.WithTimeout(ctx, loadTime())
	defer end()
	var x insideAll
	var turns atomic.Int64
	var all sync.WaitGroup
	for i, c := range clients {
		rnd := rand.New(rand.NewPCG(1, uint64(i)))
		all.Go(func() {
			for first := true; first || over.Err() == nil; first = false {
				var mine []string
				for _, k := range rnd.Perm(len(paths))[:1+rnd.IntN(len(paths))] {
					mine = append(mine, paths[k])
				}
				h, err := c.MultiLock(mine).Lock(ctx)
				if err != nil {
					t.Error(err)
					return
				}
				if err := x.enter(h, mine); err != nil {
					t.Error(err)
				}
				turns.Add(1)
				x.leave(h, mine)
				if err := h.Unlock(ctx); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	require.GreaterOrEqual(t, turns.Load(), int64(len(clients)), "everybody had a turn")
	for _, p := range paths {
		line, err := clients[0].Queue(ctx, p)
		require.NoError(t, err)
		require.Empty(t, line)
	}
	t.Logf("%d turns of %d clients in %v", turns.Load(), len(clients), loadTime())
}
