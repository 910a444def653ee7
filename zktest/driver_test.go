package zktest_test

import (
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/zktest"
)

// connect connects Go's usual driver over TCP.
func connect(t *testing.T, s *zktest.Server, timeout time.Duration) (*zk.Conn, <-chan zk.Event) {
	t.Helper()
	c, ev, err := zk.Connect([]string{s.Addr()}, timeout, zk.WithLogger(quiet{}), zk.WithLogInfo(false))
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return c, ev
}

func wait(t *testing.T, ev <-chan zk.Event, want func(zk.Event) bool) zk.Event {
	t.Helper()
	late := time.After(20 * time.Second)
	for {
		select {
		case e := <-ev:
			if want(e) {
				return e
			}
		case <-late:
			t.Fatal("the event does not come")
		}
	}
}

func TestTheDriverWorksOverTCP(t *testing.T) {
	s := zktest.Run(t)
	c, _ := connect(t, s, 10*time.Second)
	open := zk.WorldACL(zk.PermAll)
	_, err := c.Create("/d", []byte("x"), 0, open)
	require.NoError(t, err)
	_, stat, changes, err := c.GetW("/d")
	require.NoError(t, err)
	_, err = c.Set("/d", []byte("y"), stat.Version)
	require.NoError(t, err)
	assert.Equal(t, zk.EventNodeDataChanged, (<-changes).Type)
	name, err := c.Create("/d/s-", nil, zk.FlagEphemeral|zk.FlagSequence, open)
	require.NoError(t, err)
	assert.Equal(t, "/d/s-0000000000", name)
	kids, _, err := c.Children("/d")
	require.NoError(t, err)
	assert.Equal(t, []string{"s-0000000000"}, kids)
	require.ErrorIs(t, c.Delete("/d", -1), zk.ErrNotEmpty)
	res, err := c.Multi(&zk.CheckVersionRequest{Path: "/d", Version: 1}, &zk.DeleteRequest{Path: name, Version: -1})
	require.NoError(t, err)
	assert.Len(t, res, 2)
	require.NoError(t, c.AddAuth("digest", []byte("u:p")))
	_, err = c.Create("/secret", nil, 0, zk.DigestACL(zk.PermAll, "u", "p"))
	require.NoError(t, err)
	_, _, err = c.Get("/secret")
	require.NoError(t, err)
	_, err = c.Sync("/d")
	require.NoError(t, err)
	c.Close()
	require.NoError(t, s.Await(t.Context(), func() bool { return len(s.Sessions()) == 0 }))
}

func TestTheDriverResumesItsSessionAndItsWatches(t *testing.T) {
	s := zktest.Run(t)
	c, events := connect(t, s, 10*time.Second)
	_, err := c.Create("/e", nil, zk.FlagEphemeral, zk.WorldACL(zk.PermAll))
	require.NoError(t, err)
	_, _, gone, err := c.ExistsW("/e")
	require.NoError(t, err)
	id := c.SessionID()
	s.DropConnections()
	wait(t, events, func(e zk.Event) bool { return e.State == zk.StateDisconnected })
	wait(t, events, func(e zk.Event) bool { return e.State == zk.StateHasSession })
	assert.Equal(t, id, c.SessionID())
	require.NoError(t, s.Await(t.Context(), func() bool { return s.WatchCount() == 1 }))
	require.NoError(t, s.Delete("/e"))
	assert.Equal(t, zk.EventNodeDeleted, (<-gone).Type)
	require.NoError(t, s.Expire(id))
	wait(t, events, func(e zk.Event) bool { return e.State == zk.StateExpired })
}
