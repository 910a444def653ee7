package session

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// link is one network connection of a session: the net.Conn that the driver is given, and the queue on which this
// package's own requests travel beside the driver's.
//
// The driver keeps the connection: it dials (through our dialer), shakes hands, pings, dials again. Its requests could
// be used for the rest, but they take no context, can't be sent two at a time in a known order, hide the zxid of a
// reply, can't take a watch away, and its decoder trusts every length that it reads. So requests are encoded here,
// written between the driver's frames, and their replies are taken out of the stream before the driver sees them. What
// the driver reads from a link is the handshake and the headers of the replies to its own pings and close: nothing
// that a hostile server could upset it with.
//
// ZooKeeper answers the requests of one connection strictly in order. So a link is two queues, what waits to be
// written and what waits for its reply, and every reply must belong to the head of the second.
//
// Two goroutines work on a link: the driver's own reader, inside Read, and run, which the handshake starts.
type link struct {
	net.Conn
	s      *Session
	server string
	in     *bufio.Reader

	// Touched by the driver's goroutines only, one after the other: the handshake, then the reader.
	connectSent time.Time
	shaken      bool
	forward     []byte    // bytes for the driver that it has not fetched yet
	read        time.Time // not earlier than the latest frame's arrival

	out []byte // run's write buffer

	mu      sync.Mutex // guards what follows
	queue   []*call    // to be written
	pending []*call    // written, in order
	xid     int32
	last    time.Time // when something was last sent
	heard   time.Time // when something was last read
	err     error     // why the link is dead

	beating atomic.Bool // a heartbeat through the leader is on its way

	wake chan struct{} // something was queued; capacity 1
	dead chan struct{} // closed by fail
}

const (
	// maxFrame bounds a reply. Servers refuse requests over 1 MB, but a list of a directory may be longer.
	maxFrame = 32 << 20
	// window bounds the requests that wait for their replies. What is beyond waits here, where a heartbeat can overtake
	// it: behind a thousand requests of a burst it would come too late to keep the lease.
	window = 256
	// firstXid keeps our transaction ids apart from the driver's, which count up from one.
	firstXid = 0x40000000
)

var errWriteFirst = errors.New("session: driver wrote before the handshake")

func newLink(s *Session, conn net.Conn, server string) *link {
	return &link{Conn: conn, s: s, server: server, in: bufio.NewReaderSize(conn, 4096), xid: firstXid,
		wake: make(chan struct{}, 1), dead: make(chan struct{})}
}

// Write takes the driver's frames, one per call: first its connect request, which goes out at once, then pings and the
// close, which queue behind our requests.
func (l *link) Write(b []byte) (int, error) {
	if len(b) < 12 || int(binary.BigEndian.Uint32(b)) != len(b)-4 {
		return 0, errWriteFirst
	}
	if l.connectSent.IsZero() {
		return len(b), l.writeConnect(append([]byte(nil), b...))
	}
	c := &call{op: int32(binary.BigEndian.Uint32(b[8:])), xid: int32(binary.BigEndian.Uint32(b[4:])),
		frame: append([]byte(nil), b...), driver: true, urgent: true}
	if !l.enqueue(c) {
		return 0, l.failure()
	}
	return len(b), nil
}

// writeConnect sends the connect request. The driver has not seen our replies, so the last zxid is put in here: it is
// what makes a server that lags behind us refuse the connection.
func (l *link) writeConnect(b []byte) error {
	if len(b) < 28 {
		return errWriteFirst
	}
	zxid, err := l.s.mayConnect(int64(binary.BigEndian.Uint64(b[20:])))
	if err != nil {
		l.fail(err)
		return err
	}
	binary.BigEndian.PutUint64(b[8:], uint64(zxid))
	l.connectSent = l.s.clock.stamp() // before the bytes leave
	if _, err := l.Conn.Write(b); err != nil {
		l.fail(err)
		return err
	}
	return nil
}

// Read gives the driver what is for it, and handles everything else that arrives meanwhile.
func (l *link) Read(b []byte) (int, error) {
	for len(l.forward) == 0 {
		body, err := l.readFrame()
		if err == nil {
			err = l.handle(body, l.read)
		}
		if err != nil {
			l.fail(err)
			return 0, l.failure()
		}
	}
	n := copy(b, l.forward)
	l.forward = l.forward[n:]
	return n, nil
}

// readFrame reads one frame. Memory grows with the bytes that arrive, not with the length that was announced.
func (l *link) readFrame() ([]byte, error) {
	had := l.in.Buffered()
	head, err := l.in.Peek(4)
	if err != nil {
		if err == io.EOF && len(head) > 0 { //nolint:errorlint // as it comes from the connection
			err = io.ErrUnexpectedEOF
		}
		return nil, l.readError(err)
	}
	n := int(int32(binary.BigEndian.Uint32(head)))
	if _, err := l.in.Discard(len(head)); err != nil {
		return nil, l.readError(err)
	}
	if n < replyHeaderLen || n > maxFrame {
		return nil, fmt.Errorf("%w: length %d", ErrGarbled, n)
	}
	const step = 64 << 10
	b := make([]byte, 0, min(n, step))
	for len(b) < n {
		have := len(b)
		if have == cap(b) {
			b = append(b, make([]byte, min(have, n-have))...)[:have]
		}
		b = b[:min(cap(b), n)]
		if _, err := io.ReadFull(l.in, b[have:]); err != nil {
			return nil, l.readError(err)
		}
		l.mu.Lock()
		l.heard = l.s.clock.stamp() // a long reply is on its way
		l.mu.Unlock()
	}
	if had < len(head)+n || l.read.IsZero() { // else it came along with the one before, of which the time is known
		l.read = l.s.clock.now()
	}
	return b, nil
}

// readError says in a person's words why nothing more can be read.
func (l *link) readError(err error) error {
	var timeout net.Error
	switch {
	case errors.Is(err, io.EOF) && !l.shaken:
		return errors.New("closed the connection without an answer to the handshake")
	case errors.As(err, &timeout) && timeout.Timeout() && !l.shaken:
		return fmt.Errorf("no answer to the handshake within %v", attempt(l.s.cfg.timeout))
	case errors.As(err, &timeout) && timeout.Timeout():
		return errors.New("silent for too long")
	case errors.Is(err, io.EOF):
		return errors.New("closed the connection")
	}
	return err
}

// handle deals with one frame that had arrived by at; an error gives up the link.
func (l *link) handle(body []byte, at time.Time) error {
	if !l.shaken {
		return l.handshake(body)
	}
	d := decoder{b: body}
	head := d.header()
	if head.xid == xidNotification {
		typ, _, path := d.int(), d.int(), d.string()
		if d.err != nil {
			return fmt.Errorf("%w: notification: %w", ErrGarbled, d.err)
		}
		l.s.watches.fire(typ, path)
		return nil
	}
	l.mu.Lock()
	if len(l.pending) == 0 || l.pending[0].xid != head.xid {
		l.mu.Unlock()
		return fmt.Errorf("%w: reply to request %d out of order", ErrGarbled, head.xid)
	}
	c := l.pending[0]
	l.pending = slices.Delete(l.pending, 0, 1) // moves the others down, so that the array lasts: they are few
	l.heard = at
	more := len(l.queue) > 0 && len(l.pending) == window/2
	l.mu.Unlock()
	if more {
		l.poke()
	}

	if err := l.s.replied(c, head, at); err != nil {
		// Refused because of the link or the session, and not carried out: as if it had not been sent.
		l.mu.Lock()
		down := l.err != nil
		if !down {
			l.queue = append([]*call{c}, l.queue...)
		}
		l.mu.Unlock()
		if down { // meanwhile, and nobody looks at the queue any more
			c.lost(errUnsent)
		}
		return err
	}
	if c.hook != nil {
		c.hook(head.code)
	}
	if c.driver {
		l.toDriver(body[:replyHeaderLen])
	} else if c.done != nil {
		c.head, c.reply = head, d.b
		close(c.done)
	}
	return nil
}

// handshake checks the connect response, hands it to the driver and opens the link for requests.
func (l *link) handshake(body []byte) error {
	r, err := parseConnectResponse(body)
	if err != nil {
		return fmt.Errorf("%w: handshake: %w", ErrGarbled, err)
	}
	if err := l.s.shaken(r, l.connectSent); err != nil {
		return err
	}
	if err := l.Conn.SetDeadline(time.Time{}); err != nil { // it capped the handshake; the driver sets its own from here
		return err
	}
	l.shaken = true
	l.toDriver(body)
	if !l.s.spawn(l.run) {
		return ErrClosed
	}
	return nil
}

func (l *link) toDriver(body []byte) {
	l.forward = append(appendInt(l.forward[:0], int32(len(body))), body...)
}

// SetReadDeadline is the driver's and does nothing. During the handshake the dialer's own, shorter one stands; later
// the driver would set it for frames of its own only, and it would run out while ours arrive. The keeper sees whether
// the server is silent.
func (l *link) SetReadDeadline(time.Time) error { return nil }

// SetWriteDeadline is the driver's and does nothing: run bounds each write.
func (l *link) SetWriteDeadline(time.Time) error { return nil }

// SetDeadline does nothing, for the same reason; the driver does not call it.
func (l *link) SetDeadline(time.Time) error { return nil }

// Close is the driver's.
func (l *link) Close() error {
	l.fail(errors.New("closed by the driver"))
	return nil
}

// fail ends the link once: closes the socket, fails every call on it, and tells the session.
func (l *link) fail(err error) {
	l.mu.Lock()
	if l.err != nil {
		l.mu.Unlock()
		return
	}
	l.err = err
	queue, pending := l.queue, l.pending
	l.queue, l.pending = nil, nil
	close(l.dead)
	l.mu.Unlock()

	// The session hears of it first: whoever a failed call wakes, and whoever is awake, finds the link gone.
	l.s.linkDown(l, err)
	for _, c := range queue {
		c.lost(errUnsent)
	}
	for i, c := range pending {
		if i == 0 && errors.Is(err, ErrGarbled) {
			// Its reply can't be read, and would not be on the next link either: too long, or not ZooKeeper's.
			c.hopeless = true
			c.lost(fmt.Errorf("%s: %w", l.server, err))
			continue
		}
		c.lost(fmt.Errorf("%w (%s: %w)", ErrConnection, l.server, err))
	}
	// Closing may block, in a connection of the user's or of package tls; the keeper, which may be our caller, must not.
	if !l.s.spawn(l.hangUp) {
		l.hangUp()
	}
}

// hangUp closes the socket. TLS would like to say goodbye first, and wait to be heard: it is not asked.
func (l *link) hangUp() {
	conn := l.Conn
	if secure, ok := conn.(interface{ NetConn() net.Conn }); ok {
		conn = secure.NetConn()
	}
	if err := conn.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
		l.s.hosts.failed(l.server, fmt.Errorf("closing the connection: %w", err))
	}
}

// lost ends a call that got no reply.
func (c *call) lost(err error) {
	if c.done != nil {
		c.err = err
		close(c.done)
	}
}

func (l *link) failure() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}
