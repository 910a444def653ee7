package zklock_test

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/internal/session"
	"github.com/zklock/locker/tests/locktest"
	"github.com/zklock/locker/zklock"
)

// When a thousand callers send requests at once, each waits for the answers to the others as well. As long as answers arrive
// the server is in order. If the client gave the connection up, it would send all requests again to a server that is already
// busy.
func TestABurstOfRequestsIsNoReasonToGiveAConnectionUpThatAnswers(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		const callers, names = 1000, 400
		dir, breaks := s.Dir("/l"), new(atomic.Int64)
		for i := range names {
			require.NoError(s, s.Server.Create(fmt.Sprintf("%s/%064d", dir, i), nil))
		}
		c := slowClient(s, 1_000_000, zklock.WithHooks(zklock.Hooks{Session: func(i session.Change) {
			if i.State == session.Disconnected {
				breaks.Add(1)
			}
		}}))
		ses, err := c.Session(s.Context())
		require.NoError(s, err)
		began := time.Now()
		ends := make(chan error, callers)
		for range callers {
			go func() {
				_, _, err := ses.List(s.Context(), dir)
				ends <- err
			}()
		}
		for range callers {
			require.NoError(s, <-ends)
		}
		require.Greater(s, time.Since(began), 2*ses.Timeout(), "the last answer is far behind the first")
		require.Zero(s, breaks.Load())
	})
}
