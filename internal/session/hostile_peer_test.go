package session_test

import (
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"sync"
	"testing"
	"time"
)

// peer is a server that a test scripts: script serves each connection in its own goroutine, which
// ends with the connection.
type peer struct {
	script func(c *peerConn)
	wg     sync.WaitGroup

	mu    sync.Mutex
	dials []time.Time
	addrs []string
	over  bool // the test is over
}

// newPeer returns a peer whose connections end with the test.
func newPeer(t testing.TB, script func(c *peerConn)) *peer {
	p := &peer{script: script}
	t.Cleanup(func() {
		p.mu.Lock()
		p.over = true
		p.mu.Unlock()
		p.wg.Wait()
	})
	return p
}

type peerConn struct {
	net.Conn
	n  int   // the connection's number, from 1
	id int64 // requested by the client
}

// dial is the session's dialer.
func (p *peer) dial(_, addr string, _ time.Duration) (net.Conn, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.over { // the session does not join its dialer
		return nil, net.ErrClosed
	}
	p.dials = append(p.dials, time.Now())
	p.addrs = append(p.addrs, addr)
	n := len(p.dials)
	client, server := net.Pipe()
	p.wg.Go(func() {
		p.script(&peerConn{Conn: server, n: n})
		server.Close()
	})
	return client, nil
}

func (p *peer) count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.dials)
}

func be32(b []byte, v int32) []byte { return binary.BigEndian.AppendUint32(b, uint32(v)) }
func be64(b []byte, v int64) []byte { return binary.BigEndian.AppendUint64(b, uint64(v)) }

// read returns the client's next frame; nil at the end.
func (c *peerConn) read() []byte {
	var head [4]byte
	if _, err := io.ReadFull(c, head[:]); err != nil {
		return nil
	}
	b := make([]byte, binary.BigEndian.Uint32(head[:]))
	if _, err := io.ReadFull(c, b); err != nil {
		return nil
	}
	return b
}

// send writes a frame. That the client has disconnected is no failure.
func (c *peerConn) send(body []byte) { _, _ = c.Write(frameOf(body)) }

// raw writes bytes.
func (c *peerConn) raw(b ...byte) { _, _ = c.Write(b) }

// silence sends nothing until the client has disconnected.
func (c *peerConn) silence() { _, _ = io.Copy(io.Discard, c) }

// deaf discards what the client sends, while the script goes on. It returns a channel that is
// closed when the client has disconnected.
func (c *peerConn) deaf() <-chan struct{} {
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		c.silence()
	}()
	return gone
}

// hello reads the client's handshake request.
func (c *peerConn) hello() bool {
	b := c.read()
	if len(b) < 28 {
		return false
	}
	c.id = int64(binary.BigEndian.Uint64(b[16:]))
	return true
}

// welcome is the server's answer to it.
func (c *peerConn) welcome(timeout time.Duration, id int64) {
	b := be32(nil, 0)
	b = be32(b, int32(timeout/time.Millisecond))
	b = be64(b, id)
	c.send(append(append(be32(b, 16), bytes.Repeat([]byte{7}, 16)...), 0))
}

// request returns the xid and opcode of the next request that is no ping; it answers pings.
func (c *peerConn) request() (xid, op int32, ok bool) {
	for {
		b := c.read()
		if len(b) < 8 {
			return 0, 0, false
		}
		xid, op = int32(binary.BigEndian.Uint32(b)), int32(binary.BigEndian.Uint32(b[4:]))
		switch op {
		case 11:
			c.reply(xid, 0, nil)
		case -11:
			c.reply(xid, 0, nil)
			return 0, 0, false
		default:
			return xid, op, true
		}
	}
}

func (c *peerConn) reply(xid, code int32, body []byte) {
	c.send(append(be32(be64(be32(nil, xid), 1), code), body...))
}

// serve answers every request with "no such znode", which is a valid answer to each.
func (c *peerConn) serve(timeout time.Duration, id int64) {
	if !c.hello() {
		return
	}
	c.welcome(timeout, id)
	for {
		xid, op, ok := c.request()
		if !ok {
			return
		}
		code := int32(-101)
		if op == 9 || op == 100 || op == 101 {
			code = 0
		}
		c.reply(xid, code, nil)
	}
}
