package zktest_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/zktest"
	"github.com/zklock/locker/zktest/fault"
)

func TestSessionsNodesAndWatchesCanBeInspected(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server, c *script) {
		c.ok(t, "a create /x d=hello", "a create /x/e m=e", "a get /x w", "a ls /x w",
			"a addwatch / t=1", "b exists /x")

		a := c.sessions["a"].id
		info, ok := s.Session(a)
		require.True(t, ok)
		assert.True(t, info.Connected)
		assert.Equal(t, 30*time.Second, info.Timeout)
		// the first full tick of 2 s after the timeout
		assert.Equal(t, 32*time.Second, info.ExpiresIn)
		assert.Equal(t, []string{"/x/e"}, info.Ephemerals)
		assert.Equal(t, []zktest.Watch{
			{Session: a, Path: "/", Kind: zktest.WatchData, Persistent: true, Recursive: true},
			{Session: a, Path: "/x", Kind: zktest.WatchChildren},
			{Session: a, Path: "/x", Kind: zktest.WatchData},
		}, info.Watches)
		assert.Equal(t, 2, info.Requests[fault.OpCreate])
		assert.Equal(t, s.Leader(), info.Member)
		assert.Len(t, s.Sessions(), 2)
		assert.Equal(t, 3, s.WatchCount())
		assert.Equal(t, info.Watches, s.Watches())
		assert.Equal(t, 2, s.Connections())
		assert.Equal(t, 2, s.Requests()[fault.OpConnect])
		assert.Equal(t, int64(4), s.Zxid()) // two sessions, two creates

		nodes := s.Nodes()
		assert.Equal(t, "hello", string(nodes["/x"].Data))
		assert.Equal(t, int32(1), nodes["/x"].Stat.NumChildren)
		assert.Equal(t, a, nodes["/x/e"].Stat.EphemeralOwner)
		assert.Contains(t, nodes, "/zookeeper/quota")
		assert.NotContains(t, nodes, "")
		assert.Equal(t, []string{"e"}, s.Children("/x"))
		assert.Nil(t, s.Children("/no"))

		// SetData: one event, although two watches hear it; the set: the recursive watch is left
		require.NoError(t, s.SetData("/x", nil))
		c.ok(t, "a set /x d=1")

		info, _ = s.Session(a)
		assert.Equal(t, 2, info.Notifications)
		assert.Equal(t, 2, s.Notifications())

		c.do(t, "a drop")
		synctest.Wait()
		assert.Zero(t, s.WatchCount(), "watches go with the connection")
		info, _ = s.Session(a)
		assert.False(t, info.Connected)
	})
}

func TestTheTestCanChangeTheTreeAsAnotherClientWould(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server, c *script) {
		c.refused(t, "a exists /x w", fault.CodeNoNode)
		c.ok(t, "a ls / w")
		require.NoError(t, s.Create("/x", []byte("1")))
		assert.Regexp(t, `^a ! 1 3 /x zxid=z\+2 code=0\na ! 4 3 / zxid=z\+2 code=0\n`,
			c.do(t, "a ping"))
		c.ok(t, "a create /x/y m=e", "a create /x/z", "a create /x/z/z")
		require.ErrorIs(t, s.Create("/x", nil), fault.CodeNodeExists)
		require.ErrorIs(t, s.Delete("/x"), fault.CodeNotEmpty)
		require.ErrorIs(t, s.SetData("/no", nil), fault.CodeNoNode)
		require.ErrorIs(t, s.DeleteAll("/no"), fault.CodeNoNode)
		require.NoError(t, s.DeleteAll("/x"))
		assert.False(t, exists(s, "/x"))
		require.NoError(t, s.Create("/p", nil))
		require.NoError(t, s.DeleteAll("/"))
		assert.Equal(t, []string{"zookeeper"}, s.Children("/"))
		require.NoError(t, s.Close())
		require.ErrorIs(t, s.Create("/x", nil), zktest.ErrClosed)
		_, err := s.Follower()
		require.ErrorIs(t, err, zktest.ErrClosed)
	})
}

func TestAwaitIsWokenByEveryChange(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server, c *script) {
		done := make(chan error)
		go func() { done <- s.Await(t.Context(), func() bool { return exists(s, "/x") }) }()
		synctest.Wait()
		c.ok(t, "a create /x")
		require.NoError(t, <-done)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, s.Await(ctx, func() bool { return false }), context.DeadlineExceeded)
	})
}
