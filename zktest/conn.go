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
// Code that holds the lock only appends to outboxes, the connection's own and others'. So every
// client hears of events in the order in which they happened. Whatever may block (the socket, a
// fault, a cut-off leader) blocks one of these goroutines, which does not hold the lock then.
//
// A connection ends in steps, and only the last one is necessary:
//
//   - It is gone (detachLocked): the client hung up, or the server is about to. Its watches end,
//     and its session stays. Requests that have arrived are still answered.
//   - Its phase is closing (finishLocked): the outbox is sent, and then the server hangs up.
//   - Its phase is killed (killLocked): the socket is closed, and the goroutines end.

// conn is one client's connection. Three goroutines serve it: read turns bytes into frames, work
// answers the frames one by one, and write sends the outbox. The server owns them, and they end at
// the latest when done is closed. Reading and working are separate so that the server notices a
// hang-up while a fault holds the client's request.
type conn struct {
	s       *Server
	member  *Member
	nc      net.Conn
	number  int64 // in order of arrival
	born    time.Time
	done    chan struct{} // closed by killLocked
	frames  chan []byte   // from read, which closes it, to work
	out     *outbox       // from all that reply or notify, to write
	in      gate          // a fault shuts it to hold back requests
	outGate gate          // a fault shuts it to hold back replies
	mute    bool          // a fault has silenced the connection; only write uses it

	// guarded by s.mu
	session   int64         // 0 before the handshake
	timeout   time.Duration // as negotiated on this connection; each touch uses it
	ids       []identity    // of the connection: a client that reconnects authenticates again
	saslNonce string        // of a SASL negotiation in progress
	gone      bool          // the server has forgotten the connection: no watches, no events
	phase     connPhase
	received  int64
	sent      int64
	lastOp    fault.Op
	lastXid   int32
	lastZxid  int64
	lastAt    time.Time
}

// connPhase says how far the server is with ending a connection. It only advances, and may skip
// closing.
type connPhase uint8

const (
	serving connPhase = iota // requests are answered
	closing                  // the end follows the outbox, or the reply to closeSession
	killed                   // the socket is closed; what has not been sent is lost
)

// frameBacklog is how many frames a client may send ahead of the one that is being answered. As on
// a real server, a client that sends more has to wait.
const frameBacklog = 1000

// handshakeTimeout is how long a connection may stay silent before its handshake, as in a real
// server.
const handshakeTimeout = 10 * time.Second

// serveLocked begins to serve a connection. The goroutines that it starts count in s.wg.
func (s *Server) serveLocked(m *Member, nc net.Conn) {
	s.lastConn++
	c := &conn{
		s:        s,
		member:   m,
		nc:       nc,
		number:   s.lastConn,
		born:     time.Now(),
		done:     make(chan struct{}),
		frames:   make(chan []byte, frameBacklog),
		out:      newOutbox(),
		ids:      []identity{{schemeIP, hostOf(nc.RemoteAddr())}},
		lastOp:   opError,
		lastXid:  -1,
		lastZxid: -1,
	}
	m.conns[c] = struct{}{}
	s.conns[c] = struct{}{}
	s.freezeNewLocked(c)
	s.wg.Add(3)
	go c.read()
	go c.work()
	go c.write()
	s.changedLocked()
}

// hostOf returns an address without its port.
func hostOf(a net.Addr) string {
	host, _, err := net.SplitHostPort(a.String())
	if err != nil {
		return a.String()
	}
	return host
}

// inOrder returns connections in the order of their arrival. What happens to several connections at
// once must happen in the same order in every run.
func inOrder[V any](conns map[*conn]V) []*conn {
	return slices.SortedFunc(maps.Keys(conns), func(a, b *conn) int {
		return cmp.Compare(a.number, b.number)
	})
}

// kill is killLocked for a caller that does not hold the server's lock.
func (c *conn) kill() {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	c.killLocked()
}

// killLocked ends the connection at once. What has not been sent is lost.
func (c *conn) killLocked() {
	c.detachLocked()
	if c.phase == killed {
		return
	}
	c.phase = killed
	delete(c.s.conns, c)
	c.s.forgetFrozenLocked(c)
	close(c.done)
	_ = underTLS(c.nc).Close() // no error matters here
}

// underTLS returns the connection below the TLS layer, if there is one. To close that layer may
// take as long as the client likes, and the server's lock must not be held so long.
func underTLS(nc net.Conn) net.Conn {
	if t, ok := nc.(*tls.Conn); ok {
		return t.NetConn()
	}
	return nc
}

// finishLocked ends the connection when the outbox has been sent.
func (c *conn) finishLocked() {
	c.detachLocked()
	c.phase = max(c.phase, closing)
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
	// The client may have moved its session to a later connection, which keeps it.
	if ss := c.s.sessions[c.session]; ss != nil && ss.conn == c {
		ss.conn = nil
	}
	c.s.changedLocked()
}

// read is the first of a connection's goroutines. It ends when the client hangs up, or when the
// connection is killed.
//
// It only detaches the connection. The requests that arrived before the end are still carried out,
// and their replies are sent: the client may have closed its own half only.
func (c *conn) read() {
	defer c.s.wg.Done()
	defer close(c.frames)
	err := c.readFrames()
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	c.detachLocked()
	if err != nil {
		c.s.log.Debug("zktest: connection ends", "conn", c.number, "err", err)
	}
}

var errFrame = errors.New("zktest: frame length out of bounds")

// readFrames passes frames to work until there are no more, and returns the reason. The reason is
// nil after a four-letter word, which is not a frame and the last thing that its client sends.
func (c *conn) readFrames() error {
	if err := c.nc.SetReadDeadline(time.Now().Add(handshakeTimeout)); err != nil {
		return err
	}
	head, err := c.readHead()
	if err != nil {
		return err
	}
	if c.fourLetterWord(string(head[:])) {
		return nil
	}
	b, err := c.readBody(head)
	if err != nil {
		return err
	}
	if err := c.nc.SetReadDeadline(time.Time{}); err != nil {
		return err
	}
	for {
		if err := c.passOn(b); err != nil {
			return err
		}
		if b, err = c.readFrame(); err != nil {
			return err
		}
	}
}

// readFrame returns the next frame without its length.
func (c *conn) readFrame() ([]byte, error) {
	head, err := c.readHead()
	if err != nil {
		return nil, err
	}
	return c.readBody(head)
}

// readHead returns the four bytes that precede a frame: its length.
func (c *conn) readHead() (head [4]byte, err error) {
	err = c.readFull(head[:])
	return head, err
}

// readBody returns the rest of a frame that begins with head. A length above the server's limit
// kills the connection before anything is allocated.
func (c *conn) readBody(head [4]byte) ([]byte, error) {
	n := binary.BigEndian.Uint32(head[:]) // unsigned: a negative length exceeds every limit, too
	if n > uint32(c.s.opt.maxPacket) {
		c.kill()
		return nil, errFrame
	}
	b := make([]byte, n)
	return b, c.readFull(b)
}

// readFull fills b. It returns an error only when the gate for requests is open: a frozen link also
// hides the end of the connection.
func (c *conn) readFull(b []byte) error {
	_, err := io.ReadFull(c.nc, b)
	if err != nil {
		c.in.pass(c.done)
	}
	return err
}

// passOn hands a frame to work. While a fault holds requests back, the frame has not arrived yet.
func (c *conn) passOn(b []byte) error {
	if !c.in.pass(c.done) {
		return net.ErrClosed
	}
	select {
	case c.frames <- b:
		return nil
	case <-c.done:
		return net.ErrClosed
	}
}

// work is the second of a connection's goroutines. It answers the frames, those that arrived before
// the client hung up included, as in a real server's pipeline. After the last one it hangs up.
func (c *conn) work() {
	defer c.s.wg.Done()
	for b := range c.frames {
		// A frame that had been read when a fault shut the gate is held back here.
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

// write is the third of a connection's goroutines. It sends the outbox, and hangs up at its end.
func (c *conn) write() {
	defer c.s.wg.Done()
	for {
		if !c.wait(c.out.ready) {
			return
		}
		// It takes the whole queue at once: the outbox's lock is not held while the client is slow.
		parcels, last := c.out.take()
		for i := range parcels {
			if !c.send(&parcels[i]) {
				return
			}
		}
		if last {
			c.hangUpAfterOutbox()
			return
		}
	}
}

// hangUpAfterOutbox shows the client the end of the connection, as soon as no fault holds replies
// back: a frozen link hides the end, too.
func (c *conn) hangUpAfterOutbox() {
	if !c.outGate.pass(c.done) {
		return
	}
	if t, ok := c.nc.(*tls.Conn); ok {
		_ = t.CloseWrite() // best effort: without it the client sees a reset
	}
	c.kill()
}

// send puts one parcel on the wire, when the faults let it pass. It returns false if the connection
// is over.
func (c *conn) send(p *parcel) (open bool) {
	if !c.awaitDispatch(p) {
		return false
	}
	failed := false
	if b := p.bytes(); !p.lost && !c.mute && len(b) > 0 {
		// One frame, one write: some clients depend on what a single read returns, and see here
		// what a real server shows them.
		_, err := c.nc.Write(b)
		failed = err != nil
	}
	if failed || p.hangUp {
		c.kill()
		return false
	}
	c.mute = c.mute || p.silent
	return true
}

// awaitDispatch waits until no fault holds the parcel back. It returns false if the connection is
// killed first.
func (c *conn) awaitDispatch(p *parcel) bool {
	for _, h := range p.holds {
		if !c.wait(h) {
			return false
		}
	}
	if !p.after.IsZero() {
		if d := time.Until(p.after); d > 0 && !c.sleep(d) {
			return false
		}
	}
	return c.outGate.pass(c.done)
}

// wait waits until ch is readable or closed. It returns false if the connection is killed first. A
// client's hang-up does not end the wait: its request is on its way and will be carried out.
func (c *conn) wait(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	case <-c.done:
		return false
	}
}

// sleep waits for d. It returns false if the connection is killed first.
func (c *conn) sleep(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-c.done:
		return false
	}
}

// noZxid is the zxid of an event where the server names none: of every event in 3.8, and in later
// versions of one that setWatches finds to have happened before.
const noZxid = -1

const (
	eventXid       = -1 // no request has it
	stateConnected = 3  // the only state that an event of a znode can have
)

// notifyLocked queues an event for the client. The caller holds the server's lock, so the event
// precedes the reply to the operation that caused it.
func (c *conn) notifyLocked(path string, ev event, zxid int64) {
	if c.gone {
		return
	}
	if !c.s.opt.dialect.zxidInEvents {
		zxid = noZxid
	}
	e := encoder{}
	e.header(eventXid, zxid, fault.CodeOK)
	e.int32(int32(ev))
	e.int32(stateConnected)
	e.str(path)
	c.s.notified++
	if ss := c.s.sessions[c.session]; ss != nil {
		ss.notified++
	}
	c.postLocked(e.b, c.s.matchLocked(c, fault.OpNotify, []string{path}))
}

// postLocked queues a payload for the client, with what the faults in struck do to it.
func (c *conn) postLocked(payload []byte, struck []*Injection) {
	p := newParcel(frame(payload))
	for _, in := range struck {
		if in.f.reply != nil {
			in.f.reply(in, &p)
		}
	}
	c.sent++
	c.s.sent++
	c.out.put(p)
}
