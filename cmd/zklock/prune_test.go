//go:build linux

package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/internal/unsealed"
	"github.com/zklock/locker/tests/locktest"
	"github.com/zklock/locker/zklock"
	"github.com/zklock/locker/zktest"
	"github.com/zklock/locker/zktest/fault"
)

func TestPruneLeavesADirectoryThatIsUsedAfterItHasListedIt(t *testing.T) {
	t.Parallel()
	s := server(t)
	ctx := locktest.Within(t, locktest.Bound)
	c, err := zklock.Dial(ctx, s.Addr())
	require.NoError(t, err)
	defer c.Close()
	session, err := unsealed.Session(ctx, c)
	require.NoError(t, err)
	for _, key := range []string{"idle", "used", "written", "gone"} {
		_, h, err := c.Mutex("/locks/" + key).Lock(ctx)
		require.NoError(t, err)
		require.NoError(t, h.Unlock())
	}
	p := pruner{root: "/locks", depth: 1, patience: locktest.Bound}
	require.NoError(t, p.find(ctx, session, time.Now().Add(time.Second)))
	require.Len(t, p.empty, 4)
	_, h, err := c.Mutex("/locks/used").Lock(ctx)
	require.NoError(t, err)
	require.NoError(t, s.SetData("/locks/written", []byte("x")))
	require.NoError(t, s.Delete("/locks/gone"))
	require.NoError(t, p.remove(ctx, session))
	require.Equal(t, 1, p.removed)
	require.Equal(t, []string{"used", "written"}, s.Children("/locks"))
	require.NoError(t, h.Check(ctx))
	require.NoError(t, h.Unlock())
}

// A znode whose list is longer than a client reads stays, as one that may not be read, and is not
// passed over in silence.
func TestLsAndPruneCountAZnodeThatIsTooLargeToRead(t *testing.T) {
	t.Parallel()
	s := server(t)
	launch(t, s.Addr(), "run", "/locks/large", "--", "true").exits(0)
	launch(t, s.Addr(), "run", "/locks/small", "--", "true").exits(0)
	s.Inject(fault.Garble(func(reply []byte) []byte {
		return append(reply, make([]byte, 33<<20)...)
	}).Op(fault.OpGetChildren2).Path("/locks/large"))
	const notice = "may not be read with these credentials, or have too many children: "
	p := launch(t, s.Addr(), "prune", "--yes", "--older-than", "0", "/locks")
	p.exits(0)
	require.Contains(t, p.err.String(), "1 znodes below /locks "+notice+"they stay")
	require.Equal(t, "removed 1 of 2 znodes below /locks\n", p.out.String())
	require.Equal(t, []string{"large"}, s.Children("/locks"))
	p = launch(t, s.Addr(), "ls", "/locks")
	p.exits(0)
	require.Contains(t, p.err.String(), "1 znodes "+notice+"locks there are not shown")
}

func TestPruneHasItsOwnExitCodeWhenTheEnsembleRefusesTheDeletion(t *testing.T) {
	t.Parallel()
	s := server(t)
	p := launch(t, s.Addr(), "run", "--auth", "digest:a:a", "--acl", "auth::cdrwa,world:anyone:r",
		"/locks/k", "--", "true")
	p.exits(0)
	var acl []zktest.ACL
	for path, n := range s.Nodes() {
		if path == "/locks" || path == "/locks/k" {
			acl = append(acl, n.ACL...)
		}
	}
	require.Len(t, acl, 4)
	launch(t, s.Addr(), "prune", "--yes", "--older-than", "0", "/locks").exits(exitRefused)
	p = launch(t, s.Addr(),
		"prune", "--yes", "--older-than", "0", "--auth", "digest:a:a", "/locks")
	p.exits(0)
	require.Empty(t, s.Children("/locks"))
}
