//go:build linux

package main

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/internal/locktest"
	"github.com/zklock/locker/zklock"
	"github.com/zklock/locker/zktest"
)

// A Lock whose directory is deleted between its creation and the contender's creates it again.
func TestLocksWorkWhileTheirDirectoriesArePruned(t *testing.T) {
	t.Parallel()
	s := server(t)
	ctx := locktest.Within(t, locktest.Bound)
	c, err := zklock.Dial(ctx, s.Addr(), zklock.WithSessionTimeout(time.Hour))
	require.NoError(t, err)
	defer c.Close()
	session, err := c.Session(ctx)
	require.NoError(t, err)
	var locking, pruning sync.WaitGroup
	removed := 0
	stop := make(chan struct{})
	pruning.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			p := pruner{root: "/locks", depth: 1, patience: locktest.Bound}
			if err := p.find(ctx, session, time.Now()); err != nil {
				t.Error(err)
				return
			}
			if err := p.remove(ctx, session); err != nil {
				t.Error(err)
				return
			}
			removed += p.removed
		}
	})
	require.NoError(t, s.Create("/locks", nil))
	inside := make([]int, 4)
	for i := range 8 {
		locking.Go(func() {
			for n := range 100 {
				k := (i + n) % len(inside)
				h, err := c.Mutex(fmt.Sprintf("/locks/%d", k)).Lock(ctx)
				if err != nil {
					t.Error(err)
					return
				}
				inside[k]++ // the race detector checks this
				if err := h.Unlock(ctx); err != nil {
					t.Error(err)
				}
			}
		})
	}
	locking.Wait()
	close(stop)
	pruning.Wait()
	require.Positive(t, removed)
	t.Logf("%d directories removed under 800 locks", removed)
}

func TestPruneLeavesADirectoryThatIsUsedAfterItHasListedIt(t *testing.T) {
	t.Parallel()
	s := server(t)
	ctx := locktest.Within(t, locktest.Bound)
	c, err := zklock.Dial(ctx, s.Addr())
	require.NoError(t, err)
	defer c.Close()
	session, err := c.Session(ctx)
	require.NoError(t, err)
	for _, key := range []string{"idle", "used", "written", "gone"} {
		h, err := c.Mutex("/locks/" + key).Lock(ctx)
		require.NoError(t, err)
		require.NoError(t, h.Unlock(ctx))
	}
	p := pruner{root: "/locks", depth: 1, patience: locktest.Bound}
	require.NoError(t, p.find(ctx, session, time.Now().Add(time.Second)))
	require.Len(t, p.empty, 4)
	h, err := c.Mutex("/locks/used").Lock(ctx)
	require.NoError(t, err)
	require.NoError(t, s.SetData("/locks/written", []byte("x")))
	require.NoError(t, s.Delete("/locks/gone"))
	require.NoError(t, p.remove(ctx, session))
	require.Equal(t, 1, p.removed)
	require.Equal(t, []string{"used", "written"}, s.Children("/locks"))
	require.NoError(t, h.Check(ctx))
	require.NoError(t, h.Unlock(ctx))
}

func TestPruneHasItsOwnExitCodeWhenTheEnsembleRefusesTheDeletion(t *testing.T) {
	t.Parallel()
	s := server(t)
	p := launch(t, s.Addr(), "run", "--auth", "digest:a:a", "--acl", "auth::cdrwa,world:anyone:r", "/locks/k", "--", "true")
	p.exits(0)
	var acl []zktest.ACL
	for path, n := range s.Nodes() {
		if path == "/locks" || path == "/locks/k" {
			acl = append(acl, n.ACL...)
		}
	}
	require.Len(t, acl, 4)
	launch(t, s.Addr(), "prune", "--yes", "--older-than", "0", "/locks").exits(exitRefused)
	launch(t, s.Addr(), "prune", "--yes", "--older-than", "0", "--auth", "digest:a:a", "/locks").exits(0)
	require.Empty(t, s.Children("/locks"))
}
