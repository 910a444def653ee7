package zklock_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/tests/locktest"
	"github.com/zklock/locker/zklock"
	"github.com/zklock/locker/zktest/fault"
)

// A call whose context ends at the moment at which the session's first connection opens and breaks gets a session or
// an error.
func TestACallThatEndsAsTheFirstConnectionBreaksDoesNotPanic(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		for range 100 {
			const at = 500 * time.Millisecond
			s.Server.Inject(fault.DelayReply(at).Op(fault.OpConnect).Once())
			time.AfterFunc(at, s.Server.DropConnections)
			c, err := zklock.Open(s.Server.Addr(), zklock.WithDialer(s.Server.Dial))
			require.NoError(s, err)
			var all sync.WaitGroup
			for range 100 {
				all.Go(func() {
					ctx, cancel := context.WithTimeout(s.Context(), at)
					defer cancel()
					_, h, err := c.Mutex("/l").Lock(ctx)
					if err != nil {
						return
					}
					if err := h.Unlock(); err != nil && !errors.Is(err, zklock.ErrLost) {
						s.Error(err)
					}
				})
			}
			all.Wait()
			require.NoError(s, c.Close())
		}
	})
}
