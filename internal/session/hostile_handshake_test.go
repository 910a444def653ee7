package session_test

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/internal/session"
)

func TestAHostileHandshake(t *testing.T) {
	respond := func(b []byte) func(c *peerConn) {
		return func(c *peerConn) { c.hello(); c.send(b); c.silence() }
	}
	good := append(append(be32(be64(be32(be32(nil, 0), 8000), 77), 16),
		bytes.Repeat([]byte{7}, 16)...), 0)
	edit := func(at int, b ...byte) []byte {
		e := bytes.Clone(good)
		copy(e[at:], b)
		return e
	}
	for name, c := range map[string]struct {
		script func(c *peerConn)
		says   string
	}{
		"timeout 0":          {respond(edit(4, 0, 0, 0, 0)), "timeout not positive"},
		"timeout -1":         {respond(edit(4, 0xff, 0xff, 0xff, 0xff)), "timeout not positive"},
		"version 1":          {respond(edit(3, 1)), "protocol version"},
		"session 0":          {respond(edit(8, 0, 0, 0, 0, 0, 0, 0, 0)), "0x0"},
		"password of 2^31-1": {respond(edit(16, 0x7f, 0xff, 0xff, 0xff)), "short"},
		"password of -5":     {respond(edit(16, 0xff, 0xff, 0xff, 0xfb)), "short"},
		"password of 3": {respond(append(bytes.Clone(good[:16]), 0, 0, 0, 3, 1, 2, 3)),
			"16 bytes"},
		"password of 17": {respond(append(append(bytes.Clone(good[:16]), 0, 0, 0, 17),
			make([]byte, 18)...)), "16 bytes"},
		"no password": {respond(append(bytes.Clone(good[:16]), 0xff, 0xff, 0xff, 0xff, 0)),
			"16 bytes"},
		"trailing bytes": {respond(append(bytes.Clone(good), 1, 2, 3)), "trailing"},
		"cut":            {respond(good[:17]), "short"},
		"empty frame":    {respond(nil), "length 0"},
		"a length of 2^31-1": {func(c *peerConn) {
			c.hello()
			c.raw(0x7f, 0xff, 0xff, 0xff)
			c.silence()
		}, `not a ZooKeeper server: its answer begins with "\x7f\xff\xff\xff"`},
		"a negative length": {func(c *peerConn) {
			c.hello()
			c.raw(0x80, 0, 0, 0)
			c.silence()
		}, `not a ZooKeeper server: its answer begins with "\x80\x00\x00\x00"`},
		"text": {func(c *peerConn) {
			heard := c.deaf()
			c.raw([]byte("SSH-2.0-OpenSSH_9.2\r\n")...)
			<-heard
		}, "a:1: this is an SSH server, not ZooKeeper"},
		"a web server": {func(c *peerConn) {
			c.hello()
			c.raw([]byte("HTTP/1.1 400 Bad Request\r\n\r\n")...)
		}, "a:1: this is an HTTP server"},
		"a TLS port": {func(c *peerConn) {
			c.hello()
			c.raw(0x15, 3, 3, 0, 2, 2, 70)
			c.silence()
		}, "a:1: this port speaks TLS"},
		"silence": {func(c *peerConn) {
			c.silence()
		}, "no answer to the handshake within"},
		"half a length": {func(c *peerConn) {
			c.hello()
			c.raw(0, 0)
			c.silence()
		}, "no answer to the handshake within"},
		"a length, no frame": {func(c *peerConn) {
			c.hello()
			c.raw(0, 0, 0, 37)
			c.silence()
		}, "no answer to the handshake within"},
		"half a frame": {func(c *peerConn) {
			c.hello()
			c.raw(0, 0, 0, 37, 0, 0)
			c.silence()
		}, "no answer to the handshake within"},
		"the end at once": {func(*peerConn) {}, "closed"},
		"the end after hello": {func(c *peerConn) {
			c.hello()
		}, "closed the connection without an answer to the handshake"},
		"byte by byte for ever": {func(c *peerConn) {
			c.deaf()
			for _, b := range append([]byte{1, 0, 0, 0}, make([]byte, 1000)...) {
				time.Sleep(100 * time.Millisecond)
				if _, err := c.Write([]byte{b}); err != nil {
					return
				}
			}
		}, "no answer to the handshake within"},
	} {
		for _, tick := range []time.Duration{2 * time.Second, 0} {
			// 0: the first handshake is one that finds out the tick
			t.Run(fmt.Sprintf("%s, tick %v", name, tick), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					p := newPeer(t, c.script)
					start := time.Now()
					s, err := session.Open(within(t, 5*time.Second), "a:1",
						session.Config{Timeout: 8 * time.Second, TickTime: tick, Dial: p.dial})
					require.Nil(t, s)
					require.ErrorIs(t, err, context.DeadlineExceeded)
					require.ErrorContains(t, err, "a:1")
					require.ErrorContains(t, err, c.says)
					require.Less(t, time.Since(start), 6*time.Second,
						"Open returns with its context")
					require.Greater(t, p.count(), 2, "it goes on trying")
					// Open does not wait for the goroutines that it started
					time.Sleep(10 * time.Second)
					require.Less(t, p.count(), 25)
				})
			})
		}
	}
}

// As a server answers that can't resume a session. What is asked then was meant for the session
// that is lost.
func TestScenario66_ASessionThatIsAnsweredWithAnotherOneIsOver(t *testing.T) {
	withPeer(t, func(c *peerConn) {
		if c.n > 1 {
			c.serve(8*time.Second, 78)
		} else if c.hello() {
			c.welcome(8*time.Second, 77)
			c.request()
		}
	}, func(t *testing.T, p *peer, s *session.Session) {
		_, err := s.Exists(within(t, soon), "/")
		require.ErrorIs(t, err, session.ErrLeaseExpired)
		require.ErrorIs(t, s.Err(), session.ErrLost)
		require.ErrorContains(t, s.Err(), "session 0x4e in place of 0x4d")
		require.EqualValues(t, 77, s.ID())
		require.NoError(t, s.Close())
		require.Equal(t, 2, p.count(), "nothing is dialled any more")
	})
}

func TestServersThatAcceptAndHangUpAreNotDialledInAStorm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPeer(t, func(*peerConn) {})
		_, err := session.Open(within(t, 2*time.Second), "a:1,b:1", session.Config{Dial: p.dial})
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorContains(t, err, "a:1: ", "what each server did")
		require.ErrorContains(t, err, "b:1: ")
		require.ErrorContains(t, err, "closed")
		time.Sleep(10 * time.Second)
		require.Less(t, p.count(), 20, "dials in 2 s: rounds of two with longer and longer pauses")
		require.Greater(t, p.count(), 5)
	})
}

func TestServersThatHangUpAfterTheHandshakeAreNotDialledInAStorm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPeer(t, func(c *peerConn) {
			if c.hello() {
				c.welcome(10*time.Second, 77)
			}
		})
		s, err := session.Start("a:1,b:1", session.Config{Dial: p.dial})
		require.NoError(t, err)
		defer func() { require.NoError(t, s.Close()) }()
		time.Sleep(2 * time.Second)
		require.Less(t, p.count(), 20, "dials in 2 s")
		time.Sleep(5 * time.Minute) // the end of a link comes before, while and after it opens
		require.NoError(t, s.Err(), "every handshake prolongs it")
	})
}

// shutPipe is an end of a pipe whose Read returns only when the other end has written everything
// and closed: from then on deadlines cannot be set on it.
type shutPipe struct {
	net.Conn
	hungUp <-chan struct{}
}

func (c shutPipe) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	<-c.hungUp
	return n, err
}

// An answer counts even if the server closes the connection right behind it: on a busy machine that
// always happens before the client reads the answer.
func TestAHandshakeCountsThoughTheServerHungUpRightBehindIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var dials atomic.Int32
		s, err := session.Start("a:1",
			session.Config{TickTime: 2 * time.Second,
				Dial: func(string, string, time.Duration) (net.Conn, error) {
					dials.Add(1)
					client, server := net.Pipe()
					hungUp := make(chan struct{})
					go func() { // ends with its connection
						defer close(hungUp)
						if c := (&peerConn{Conn: server}); c.hello() {
							c.welcome(10*time.Second, 77)
						}
						_ = server.Close() // setting a deadline on a pipe never fails
					}()
					return shutPipe{client, hungUp}, nil
				}})
		require.NoError(t, err)
		defer func() { require.NoError(t, s.Close()) }()
		time.Sleep(time.Minute)
		require.Greater(t, dials.Load(), int32(20))
		require.NoError(t, s.Err(), "every handshake prolongs it")
		require.EqualValues(t, 77, s.ID())
	})
}
