package zktest

import (
	"cmp"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"maps"
	"net"
	"slices"
	"time"

	"github.com/zklock/locker/zktest/fault"
)

// A connection is three goroutines around the server's one lock:
//
//	socket → read → frames → work (takes the lock, one request at a time) → outbox → write → socket
//
// What runs under the lock only appends to outboxes, the connection's own and others', so every
// client hears of events in the order in which they happened. Whatever may block (the socket, a
// fault, a cut-off leader) blocks one of these goroutines, without the lock.
//
// A connection ends in three steps that need not coincide: it is gone (detach: the client hung up
// or is being disconnected; its watches end, the session stays), it is closing (finish: the outbox
// is still sent), it is killed (the socket is closed and the goroutines end).

// conn is one client's connection. Three goroutines serve it, all owned by the server and ended by
// done at the latest: read turns bytes into frames, work answers them one by one, write sends the
// outbox. Reading and working are separate so that the server notices a hang-up while a fault holds
// the client's request.
type conn struct {
	s       *Server
	member  *Member
	nc      net.Conn
	number  int64 // in order of arrival
	born    time.Time
	done    chan struct{} // closed by kill
	frames  chan []byte
	out     *outbox
	in      gate // requests
	outGate gate // replies
	mute    bool // nothing is sent any more; only write reads it

	// guarded by s.mu
	session   int64         // 0 before the handshake
	timeout   time.Duration // as negotiated on this connection; each touch uses it
	ids       []identity    // of the connection: a client that reconnects authenticates again
	saslNonce string        // of a SASL negotiation in progress
	// the client hung up, or we did: no more watches and notifications for it
	gone     bool
	closing  bool // nothing is sent after what is in the outbox
	killed   bool
	received int64
	sent     int64
	lastOp   fault.Op
	lastXid  int32
	lastZxid int64
	lastAt   time.Time
}

// handshakeTimeout is how long a connection may stay silent before its handshake, as in a real
// server.
const handshakeTimeout = 10 * time.Second

// serveLocked begins to serve a connection.
func (s *Server) serveLocked(m *Member, nc net.Conn) {
	s.lastConn++
	c := &conn{s: s, member: m, nc: nc, number: s.lastConn, born: time.Now(),
		done: make(chan struct{}),
		frames: make(chan []byte,
			1000), out: newOutbox(), lastXid: -1, lastZxid: -1, lastOp: opError}
	// The address is the first identity of every client: ACLs of the scheme "ip" are matched
	// against it.
	host, _, err := net.SplitHostPort(nc.RemoteAddr().String())
	if err != nil {
		host = nc.RemoteAddr().String()
	}
	c.ids = []identity{{schemeIP, host}}
	m.conns[c] = struct{}{}
	s.conns[c] = struct{}{}
	s.freezeNewLocked(c)
	s.wg.Add(3)
	go c.read()
	go c.work()
	go c.write()
	s.changedLocked()
}

// inOrder lists connections in the order of their arrival: what affects several at once must happen
// in the same order in every run.
func inOrder[V any](conns map[*conn]V) []*conn {
	return slices.SortedFunc(maps.Keys(conns), func(a, b *conn) int {
		return cmp.Compare(a.number, b.number)
	})
}

// killLocked ends the connection at once; what has not been sent is lost.
func (c *conn) killLocked() {
	c.detachLocked()
	if !c.killed {
		c.killed, c.closing = true, true
		delete(c.s.conns, c)
		c.s.thawLocked(c)
		close(c.done)
		nc := c.nc
		if t, ok := nc.(*tls.Conn); ok {
			nc = t.NetConn() // closing the TLS layer may wait for the client, and the lock is held
		}
		_ = nc.Close() // no error matters here
	}
}

// finishLocked ends the connection after what is in the outbox.
func (c *conn) finishLocked() {
	c.detachLocked()
	c.closing = true
	c.out.finish()
}

// detachLocked makes the server forget the connection, but not its session.
func (c *conn) detachLocked() {
	if c.gone {
		return
	}
	c.gone = true
	m := c.member
	delete(m.conns, c)
	m.dataWatches.removeConn(c)
	m.childWatches.removeConn(c)
	// The session may have moved on to another connection already; that one stays.
	if ss := c.s.sessions[c.session]; ss != nil && ss.conn == c {
		ss.conn = nil
	}
	c.s.changedLocked()
}

// read is the first of a connection's goroutines. It ends when the client hangs up or the
// connection is killed.
func (c *conn) read() {
	defer c.s.wg.Done()
	defer close(c.frames)
	err := c.readFrames()
	// Only detached, not killed: requests that arrived before the end are still carried out, and
	// the answers are sent in case the client closed only its own half.
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	c.detachLocked()
	if err != nil {
		c.s.log.Debug("zktest: connection ends", "conn", c.number, "err", err)
	}
}

var errFrame = errors.New("zktest: frame length out of bounds")

// readFrames returns the reason why there are no more frames; nil after a four-letter word.
func (c *conn) readFrames() error {
	if err := c.nc.SetReadDeadline(time.Now().Add(handshakeTimeout)); err != nil {
		return err
	}
	for first := true; ; first = false {
		var head [4]byte
		if _, err := io.ReadFull(c.nc, head[:]); err != nil {
			c.in.pass(c.done) // a frozen link also hides the end of the connection
			return err
		}
		if first && c.fourLetterWord(string(head[:])) {
			return nil
		}
		// As an unsigned number, a negative length exceeds every limit, too. The limit is checked
		// before a byte is allocated.
		n := binary.BigEndian.Uint32(head[:])
		if n > uint32(c.s.opt.maxPacket) {
			c.s.mu.Lock()
			c.killLocked()
			c.s.mu.Unlock()
			return errFrame
		}
		b := make([]byte, n)
		if _, err := io.ReadFull(c.nc, b); err != nil {
			c.in.pass(c.done)
			return err
		}
		if first {
			if err := c.nc.SetReadDeadline(time.Time{}); err != nil {
				return err
			}
		}
		// The frame was read while the gate was being shut, or it was shut before: the frame has
		// not arrived yet.
		if !c.in.pass(c.done) {
			return net.ErrClosed
		}
		select { // as a real server does, make a client wait that sends a thousand requests ahead
		case c.frames <- b:
		case <-c.done:
			return net.ErrClosed
		}
	}
}

// work is the second of a connection's goroutines. It ends with the frames, and then hangs up:
// requests that arrived before the client hung up are still carried out, as in a real server's
// pipeline.
func (c *conn) work() {
	defer c.s.wg.Done()
	for b := range c.frames {
		// A freeze also holds back what was read but not begun.
		if !c.in.pass(c.done) || !c.handleFrame(b) {
			break
		}
	}
	c.s.mu.Lock()
	c.finishLocked()
	c.s.mu.Unlock()
	for range c.frames { // discarded, but read must not block
	}
}

// write is the third of a connection's goroutines. It hangs up when the outbox ends.
func (c *conn) write() {
	defer c.s.wg.Done()
	for {
		select {
		case <-c.out.ready:
		case <-c.done:
			return
		}
		// It takes the whole queue at once: the outbox's lock is not held while the client is slow.
		ps, last := c.out.take()
		for i := range ps {
			if !c.send(&ps[i]) {
				return
			}
		}
		if last {
			// A frozen link does not show the client the end either.
			if !c.outGate.pass(c.done) {
				return
			}
			if t, ok := c.nc.(*tls.Conn); ok {
				_ = t.CloseWrite() // best effort: without it the client sees a reset
			}
			c.s.mu.Lock()
			c.killLocked()
			c.s.mu.Unlock()
			return
		}
	}
}

// send puts one frame on the wire, with the effects of faults. False means that the connection is
// over.
func (c *conn) send(p *parcel) bool {
	for _, h := range p.holds {
		select {
		case <-h:
		case <-c.done:
			return false
		}
	}
	if d := time.Until(p.after); !p.after.IsZero() && d > 0 {
		t := time.NewTimer(d)
		defer t.Stop()
		select {
		case <-t.C:
		case <-c.done:
			return false
		}
	}
	if !c.outGate.pass(c.done) {
		return false
	}
	b := p.frame
	for _, f := range p.alter {
		b = frame(f(b[4:]))
	}
	if p.cut >= 0 && p.cut < len(b) {
		b = b[:p.cut]
	}
	// One frame, one write: clients that depend on what a single read returns see what a real
	// server shows them.
	if !p.lost && !c.mute && len(b) > 0 {
		if _, err := c.nc.Write(b); err != nil {
			p.hangUp = true
		}
	}
	c.mute = c.mute || p.silent
	if p.hangUp {
		c.s.mu.Lock()
		c.killLocked()
		c.s.mu.Unlock()
		return false
	}
	return true
}

// noZxid is the zxid of an event in 3.8, and in later versions of one that setWatches finds to have
// happened before.
const noZxid = -1

// notifyLocked queues an event. Since the caller holds the server's lock, the event precedes the
// reply to the operation that caused it.
func (c *conn) notifyLocked(path string, ev event, zxid int64) {
	if c.gone {
		return
	}
	if !c.s.opt.dialect.zxidInEvents {
		zxid = noZxid
	}
	e := encoder{}
	e.header(-1, zxid, fault.CodeOK) // no request has the xid -1
	e.int32(int32(ev))
	e.int32(3) // "connected": the only state an event of a znode can have
	e.str(path)
	c.s.notified++
	if ss := c.s.sessions[c.session]; ss != nil {
		ss.notified++
	}
	c.postLocked(e.b, c.s.matchLocked(c, fault.OpNotify, []string{path}))
}

// postLocked queues a payload for the client, with the faults that apply to it.
func (c *conn) postLocked(payload []byte, struck []*Injection) {
	p := parcel{frame: frame(payload), cut: -1}
	for _, in := range struck {
		if in.f.reply != nil {
			in.f.reply(in, &p)
		}
	}
	c.sent++
	c.s.sent++
	c.out.put(p)
}
