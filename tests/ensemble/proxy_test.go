package ensemble_test

import (
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/tests/ensemble"
)

const bound = 10 * time.Second

// a moment is how long nothing must arrive before a test concludes that nothing passes.
const moment = 150 * time.Millisecond

// echo is a server that sends back what it gets, and ends with the test.
func echo(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var serving sync.WaitGroup
	serving.Go(func() { // ends when the listener closes
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			serving.Go(func() { // ends with the connection, which the proxy's cleanup closes first
				defer c.Close()
				_, _ = io.Copy(c, c) // a cut connection is what these tests are about
			})
		}
	})
	t.Cleanup(func() {
		require.NoError(t, l.Close())
		serving.Wait()
	})
	return l.Addr().String()
}

func dial(t *testing.T, addr string) net.Conn {
	t.Helper()
	c, err := net.DialTimeout("tcp", addr, bound)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() }) // a test may have closed it
	return c
}

func say(t *testing.T, c net.Conn, s string) {
	t.Helper()
	_, err := io.WriteString(c, s)
	require.NoError(t, err)
}

func hear(t *testing.T, c net.Conn, want string) {
	t.Helper()
	require.NoError(t, c.SetReadDeadline(time.Now().Add(bound)))
	b := make([]byte, len(want))
	_, err := io.ReadFull(c, b)
	require.NoError(t, err)
	require.Equal(t, want, string(b))
}

// silent asserts that neither a byte nor the end of the stream arrives.
func silent(t *testing.T, c net.Conn) {
	t.Helper()
	require.NoError(t, c.SetReadDeadline(time.Now().Add(moment)))
	n, err := c.Read(make([]byte, 1))
	require.Zero(t, n)
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)
}

func ended(t *testing.T, c net.Conn) {
	t.Helper()
	require.NoError(t, c.SetReadDeadline(time.Now().Add(bound)))
	_, err := c.Read(make([]byte, 1))
	require.Error(t, err)
	require.NotErrorIs(t, err, os.ErrDeadlineExceeded)
}

func TestProxyCutClosesOpenConnectionsAndTakesNewOnes(t *testing.T) {
	p := ensemble.NewProxy(t, echo(t))
	c := dial(t, p.Addr())
	say(t, c, "one")
	hear(t, c, "one")
	require.Equal(t, 1, p.Open())
	p.Cut()
	require.Zero(t, p.Open())
	ended(t, c)
	c = dial(t, p.Addr())
	say(t, c, "two")
	hear(t, c, "two")
}

func TestProxyRefusesLikeAServerThatIsDown(t *testing.T) {
	p := ensemble.NewProxy(t, echo(t))
	before := dial(t, p.Addr())
	say(t, before, "x")
	hear(t, before, "x")
	require.NoError(t, p.Refuse(true))
	_, err := net.DialTimeout("tcp", p.Addr(), bound)
	require.ErrorIs(t, err, syscall.ECONNREFUSED)
	say(t, before, "still open")
	hear(t, before, "still open")
	require.NoError(t, p.Refuse(false))
	c := dial(t, p.Addr())
	say(t, c, "back")
	hear(t, c, "back")
}

// pair returns both ends of a connection through a proxy.
func pair(t *testing.T) (p *ensemble.Proxy, client, server net.Conn) {
	t.Helper()
	target, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer target.Close()
	p = ensemble.NewProxy(t, target.Addr().String())
	client = dial(t, p.Addr())
	server, err = target.Accept()
	require.NoError(t, err)
	t.Cleanup(func() { _ = server.Close() }) // nothing more is asked of it
	return p, client, server
}

func TestFrozenProxyPassesNeitherBytesNorTheEndOfAStream(t *testing.T) {
	p, client, server := pair(t)
	p.Freeze()
	say(t, client, "held")
	require.NoError(t, client.Close())
	silent(t, server)
	p.Thaw()
	hear(t, server, "held")
	ended(t, server)
}

func TestProxyHoldsOneDirection(t *testing.T) {
	for name, mode := range map[string]func(*ensemble.Proxy){
		"requests": (*ensemble.Proxy).HoldRequests,
		"replies":  (*ensemble.Proxy).HoldReplies,
	} {
		t.Run(name, func(t *testing.T) {
			p, client, server := pair(t)
			mode(p)
			say(t, client, "request")
			say(t, server, "reply")
			if name == "requests" {
				hear(t, client, "reply")
				silent(t, server)
				p.Thaw()
				hear(t, server, "request")
			} else {
				hear(t, server, "request")
				silent(t, client)
				p.Thaw()
				hear(t, client, "reply")
			}
		})
	}
}

func TestDroppedBytesAreLostAndTheThawClosesTheStreamWithAHole(t *testing.T) {
	for name, mode := range map[string]func(*ensemble.Proxy){
		"requests": (*ensemble.Proxy).DropRequests,
		"replies":  (*ensemble.Proxy).DropReplies,
	} {
		t.Run(name, func(t *testing.T) {
			p := ensemble.NewProxy(t, echo(t))
			c, whole := dial(t, p.Addr()), dial(t, p.Addr())
			say(t, whole, "x")
			hear(t, whole, "x")
			mode(p)
			say(t, c, "lost")
			silent(t, c)
			p.Thaw()
			ended(t, c)
			say(t, whole, "lost nothing")
			hear(t, whole, "lost nothing")
		})
	}
}
