package session_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/internal/session"
)

// A server shakes hands, and reads nothing any more. Each call returns when its context ends,
// whatever the calls before it have left in the socket.
func TestNoCallWaitsInAWriteBeyondItsContext(t *testing.T) {
	const patience = 200 * time.Millisecond
	cert, trusted := certificate(t)
	for name, c := range map[string]struct {
		server, client *tls.Config
	}{
		"TCP": {},
		"TLS": {&tls.Config{Certificates: []tls.Certificate{cert}}, &tls.Config{RootCAs: trusted}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			addr := stalledServer(t, c.server)
			s, err := session.Open(within(t, soon), addr,
				session.Config{Timeout: time.Minute, TLS: c.client})
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, s.Close()) })

			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			began := time.Now()
			var calls sync.WaitGroup
			read := func() {
				_, err := s.Exists(ctx, "/a")
				assert.ErrorIs(t, err, context.DeadlineExceeded)
			}
			calls.Go(read) // it finds the conn idle
			for i := range 20 {
				calls.Go(func() {
					_, err := s.Create(ctx, fmt.Sprint("/b", i),
						[]byte(strings.Repeat("x",
							900<<10)), session.Persistent, session.WorldACL())
					assert.ErrorIs(t, err, context.DeadlineExceeded)
				})
			}
			time.Sleep(patience / 2) // by then the socket is full, on all but the slowest machine
			calls.Go(read)
			calls.Wait()
			require.Less(t, time.Since(began), patience+5*time.Second,
				"the writer's own patience is longer")
		})
	}
}

// stalledServer returns the address of a server that shakes hands with each client, and then does
// not read.
func stalledServer(t *testing.T, conf *tls.Config) (addr string) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	if conf != nil {
		l = tls.NewListener(l, conf)
	}
	over := make(chan struct{})
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return // the test is over
			}
			serving.Go(func() {
				p := &peerConn{Conn: conn}
				if p.hello() {
					p.welcome(time.Minute, 1)
				}
				<-over
				_ = conn.Close()
			})
		}
	})
	t.Cleanup(func() {
		close(over)
		require.NoError(t, l.Close())
		serving.Wait()
	})
	return l.Addr().String()
}
