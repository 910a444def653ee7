package zklock_test

import (
	"io"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/zklock"
	"github.com/zklock/locker/zktest"
)

// shortLived ends right behind the handshake: when the deadline on that is taken away.
type shortLived struct{ net.Conn }

func (c shortLived) SetDeadline(t time.Time) error {
	if t.IsZero() {
		return io.ErrClosedPipe
	}
	return c.Conn.SetDeadline(t)
}

// The first connection breaks right behind the handshake, and when the client has found the next the ensemble has ended
// the session. Dial goes on until there is one, or ctx ends.
func TestDialOutlivesASessionThatEndsBeforeItIsHeardOf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := zktest.Run(t, zktest.WithoutListener())
		var dials atomic.Int32
		c, err := zklock.Dial(t.Context(), srv.Addr(), zklock.WithDialer(func(n, a string, d time.Duration) (net.Conn, error) {
			conn, err := srv.Dial(n, a, d)
			if err == nil && dials.Add(1) == 1 {
				return shortLived{conn}, nil
			}
			for _, s := range srv.Sessions() {
				_ = srv.Expire(s.ID) // gone by itself, perhaps
			}
			return conn, err
		}))
		require.NoError(t, err)
		h, err := c.Mutex("/locks/a").Lock(t.Context())
		require.NoError(t, err)
		require.NoError(t, h.Unlock(t.Context()))
		require.NoError(t, c.Close())
	})
}
