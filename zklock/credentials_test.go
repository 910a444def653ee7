package zklock_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/tests/locktest"
	"github.com/zklock/locker/zklock"
	"github.com/zklock/locker/zktest"
	"github.com/zklock/locker/zktest/fault"
)

// The servers have refused the credentials, and somebody has mended that. The client opens its next
// session within a second. A call in between waits for it, and is not told of the old refusal.
func TestCredentialsThatWereMendedAreNotSaidToBeRefused(t *testing.T) {
	for _, call := range []string{"Lock", "TryLock", "Run"} {
		t.Run(call, func(t *testing.T) {
			locktest.Bubble(t, func(t *testing.T, srv *zktest.Server) {
				c := locktest.Dial(t, srv, zklock.WithAuth("digest", []byte("a:b")))
				refusal := srv.Inject(fault.Answer(fault.CodeAuthFailed).Op(fault.OpAuth))
				srv.DropConnections()
				_, _, err := c.Mutex("/l").Lock(locktest.Soon(t))
				require.ErrorIs(t, err, zklock.ErrAuth, "they are refused")

				refusal.Remove()
				for range 30 {
					require.NoError(t, callOnce(t, c, call))
				}
			})
		})
	}
}

// callOnce uses a lock, or leads for a moment.
func callOnce(t *testing.T, c *zklock.Client, call string) error {
	ctx := locktest.Within(t, 4*time.Second)
	nothing := func(context.Context) error { return nil }
	switch call {
	case "Lock":
		return c.Mutex("/l").Do(ctx, nothing)
	case "TryLock":
		_, err := c.Mutex("/l").TryDo(ctx, nothing)
		return err
	}
	return c.Election("/e").Run(ctx, nil, func(context.Context, *zklock.Hold) error { return nil })
}
