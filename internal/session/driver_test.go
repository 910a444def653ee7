package session_test

import (
	"bytes"
	"net"
	"regexp"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/internal/session"
	"github.com/zklock/locker/zktest"
)

// Three of the driver, of which one is the reader, and our writer, which beats too.
func TestAConnectedSessionHasFourGoroutines(t *testing.T) {
	bubble(t, func(t *testing.T, srv *zktest.Server) {
		s := open(t, srv)
		retain(t, s, ephemeral(t, s))
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Equal(t, 4, sessionGoroutines())
		require.NoError(t, s.Close())
		synctest.Wait() // each has done its work, but may not have exited
		require.Zero(t, sessionGoroutines())
	})
}

func TestCloseReturnsWhenTheSocketIsClosed(t *testing.T) {
	bubble(t, func(t *testing.T, srv *zktest.Server) {
		var closed atomic.Bool
		s := open(t, srv, func(c *session.Config) {
			c.Dial = func(network, addr string, timeout time.Duration) (net.Conn, error) {
				conn, err := srv.Dial(network, addr, timeout)
				return slowToClose{conn, &closed}, err
			}
		})
		require.NoError(t, s.Close())
		require.True(t, closed.Load())
	})
}

// slowToClose is a connection whose Close takes a moment.
type slowToClose struct {
	net.Conn
	closed *atomic.Bool
}

func (c slowToClose) Close() error {
	time.Sleep(time.Millisecond)
	defer c.closed.Store(true)
	return c.Conn.Close()
}

// sessionGoroutines counts the goroutines of the caller's bubble, but for the caller, that run a
// session or its driver.
func sessionGoroutines() (n int) {
	stacks := make([]byte, 1<<20)
	stacks = stacks[:runtime.Stack(stacks, true)]
	all := bytes.Split(stacks, []byte("\n\n"))
	ours := regexp.MustCompile(`/internal/session(/internal/\w+)?\.|go-zookeeper/zk\.`)
	bubble := regexp.MustCompile(`synctest bubble \d+\]`).Find(all[0])
	for _, stack := range all[1:] {
		head, _, _ := bytes.Cut(stack, []byte("\n"))
		if bytes.HasSuffix(bytes.TrimSuffix(head, []byte(":")), bubble) && ours.Match(stack) {
			n++
		}
	}
	return n
}
