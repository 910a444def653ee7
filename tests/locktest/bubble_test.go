package locktest_test

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/tests/locktest"
	"github.com/zklock/locker/zklock"
	"github.com/zklock/locker/zktest"
)

// A Dial that fails does not wait for what it has started.
func TestABubbleWaitsForWhatADialThatFailedHasStarted(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T, srv *zktest.Server) {
		began := time.Now()
		_, err := zklock.Dial(locktest.Within(t, time.Second), srv.Addr(),
			zklock.WithDialer(func(string, string, time.Duration) (net.Conn, error) {
				time.Sleep(2 * time.Second)
				return nil, errors.New("nobody")
			}))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, time.Second, time.Since(began))
	})
}
