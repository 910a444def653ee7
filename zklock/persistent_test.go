package zklock_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/tests/locktest"
	"github.com/zklock/locker/zklock"
	"github.com/zklock/locker/zktest"
)

// Somebody has made a persistent znode with the name of a contender. Nothing but a delete ends it:
// who waits behind it is told so.
func TestAPersistentZnodeInLineIsCalledSo(t *testing.T) {
	const node = "/l/_c_00000000-0000-4000-8000-000000000000-lock-0000000000"
	for _, handoff := range []bool{false, true} {
		lines := withDefaultLog(t, func(t *testing.T, srv *zktest.Server, c *zklock.Client) {
			require.NoError(t, srv.Create("/l", nil))
			require.NoError(t, srv.Create(node, nil))
			var opts []zklock.LockOption
			if handoff {
				opts = append(opts, zklock.WithLocalHandoff())
			}
			_, _, err := c.Mutex("/l", opts...).Lock(locktest.Within(t, time.Minute))
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.ErrorContains(t, err,
				"a persistent znode, which blocks the lock until somebody deletes it")
			_, _, err = c.Mutex("/l", opts...).TryLock(t.Context())
			require.ErrorIs(t, err, zklock.ErrBusy)
			require.ErrorContains(t, err, "a persistent znode")

			require.NoError(t, srv.Delete(node))
			locktest.Unlock(t, locktest.Lock(t, c.Mutex("/l", opts...)))
		})
		require.Len(t, lines, 1, "%q", lines)
		require.Contains(t, lines[0], "level=WARN")
		require.Contains(t, lines[0], "path=/l znode="+node)
	}
}
