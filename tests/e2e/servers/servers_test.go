package servers_test

import (
	"net"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/tests/e2e/servers"
	"github.com/zklock/locker/tests/ensemble"
)

// A chaos run that knows no count from before it would not look whether watches are left behind.
func TestWatchesAreCountedWhenAServerAnswersLate(t *testing.T) {
	var asked atomic.Int32
	e := serving(t, func(conn net.Conn) {
		if asked.Add(1) > 1 {
			_, _ = conn.Write([]byte("zk_watch_count\t3\n"))
			conn.Close()
		} // otherwise it says nothing until the client has gone
	})
	count, err := e.Watches()
	require.NoError(t, err)
	require.EqualValues(t, 3, count)
	require.EqualValues(t, 2, asked.Load())
}

func TestAServerThatDoesNotTellItsWatchesIsAskedOnce(t *testing.T) {
	var asked atomic.Int32
	e := serving(t, func(conn net.Conn) {
		asked.Add(1)
		_, _ = conn.Write([]byte("mntr is not executed because it is not in the whitelist.\n"))
		conn.Close()
	})
	_, err := e.Watches()
	require.ErrorContains(t, err, "has no number")
	require.EqualValues(t, 1, asked.Load())
}

// serving returns an ensemble of one server, which treats a connection so as answer says when it
// has sent its word.
func serving(t *testing.T, answer func(net.Conn)) *servers.Ensemble {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, listener.Close()) })
	go func() { // ends with the listener
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			if _, err := conn.Read(make([]byte, len("mntr"))); err == nil {
				answer(conn)
			}
		}
	}()
	return &servers.Ensemble{Nodes: []*ensemble.Node{ensemble.At(listener.Addr().String())}}
}
