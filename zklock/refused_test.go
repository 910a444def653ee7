package zklock_test

import (
	"context"
	"testing"
	"time"

	"github.com/zklock/locker/internal/locktest"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/session"
	"github.com/zklock/locker/zklock"
	"github.com/zklock/locker/zktest"
)

// A server that enforces authentication answers the handshake, and refuses the first request: of every session.
func TestALockWhereAuthenticationIsEnforcedSaysSoAtOnce(t *testing.T) {
	srv := zktest.Run(t)
	c := locktest.Dial(t, srv)
	const required = -124 // SESSIONCLOSEDREQUIRESASLAUTH
	srv.Inject(zktest.Answer(required))
	for name, lock := range map[string]func(context.Context) (*zklock.Hold, error){
		"Lock":    c.Mutex("/locks/a").Lock,
		"TryLock": c.Mutex("/locks/a").TryLock,
		"Acquire": func(ctx context.Context) (*zklock.Hold, error) { return c.Semaphore("/locks/s", 2).Acquire(ctx, 1) },
	} {
		_, err := lock(locktest.Within(t, 20*time.Second))
		require.ErrorIs(t, err, session.ErrAuth, name)
		require.ErrorContains(t, err, "enforces authentication", name)
		require.NotErrorIs(t, err, context.DeadlineExceeded, name)
	}
}
