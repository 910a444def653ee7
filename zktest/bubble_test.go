package zktest_test

import (
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/zktest"
	"github.com/zklock/locker/zktest/fault"
)

type quiet struct{}

func (quiet) Printf(string, ...any) {}

// dial connects a client of another project's.
func dial(t *testing.T, s *zktest.Server, timeout time.Duration) *zk.Conn {
	t.Helper()
	c, _, err := zk.Connect([]string{s.Addr()}, timeout, zk.WithLogger(quiet{}),
		zk.WithLogInfo(false),
		zk.WithDialer(func(n, a string, d time.Duration) (net.Conn, error) {
			return s.Dial(n, a, d)
		}))
	require.NoError(t, err)
	return c
}

func TestAnIdleSessionLivesForAnHourOfSimulatedTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := zktest.Run(t, zktest.WithoutListener())
		c := dial(t, s, 10*time.Second)
		defer c.Close()
		_, err := c.Create("/e", nil, zk.FlagEphemeral, zk.WorldACL(zk.PermAll))
		require.NoError(t, err)
		id := c.SessionID()
		time.Sleep(time.Hour)
		require.Equal(t, id, c.SessionID())
		_, ok := s.Node("/e")
		require.True(t, ok)
		require.Greater(t, s.Requests()[fault.OpPing], 100)
	})
}
