package session

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
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
	limit  time.Duration // of the handshake, and of each answer to credentials
	in     *bufio.Reader

	// Touched by the driver's goroutines only, one after the other: the handshake, then the reader.
	connectSent time.Time
	shaken      bool
	forward     []byte    // bytes for the driver that it has not fetched yet
	read        time.Time // not earlier than the latest frame's arrival

	out []byte // run's write buffer

	mu      sync.Mutex // guards what follows
	queue   callQueue  // to be written
	pending callQueue  // written, in order
	full    bool       // the window keeps what is in queue from being written
	xid     int32
	last    time.Time // when something was last sent
	moved   time.Time // when something of a reply, or of a long request, last passed
	err     error     // why the link is dead

	wake chan struct{} // something was queued; capacity 1
	dead chan struct{} // closed by fail
}

const (
	// maxFrame bounds a reply that is kept; a longer one is skipped. Servers refuse requests over 1 MB, but a list of a
	// directory may be longer.
	maxFrame = 32 << 20
	// window and windowBytes bound the requests that wait for their replies, their number and the bytes of all but the
	// last, the replies to lists and reads included. What is beyond waits here, where a heartbeat can overtake it: behind a thousand requests of a burst it would
	// come too late to keep the lease.
	window      = 256
	windowBytes = 1 << 20
	// progressStep is how many bytes of a long frame count as a sign of life. A server that sends less within a patience
	// is as good as silent.
	progressStep = 4 << 10
	// firstXid keeps our transaction ids apart from the driver's, which count up from one.
	firstXid = 0x40000000
)

var errUnanswered = errors.New("closed the connection without an answer to the handshake: no quorum, too many clients, or a port that wants TLS?")

var errWriteFirst = errors.New("session: driver wrote before the handshake")

func newLink(s *Session, conn net.Conn, server string, limit time.Duration) *link {
	return &link{Conn: conn, s: s, server: server, limit: limit, in: bufio.NewReaderSize(conn, 4096), xid: firstXid,
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
	l.connectSent = l.s.clock.stamp() // before the bytes leave
	zxid, err := l.s.mayConnect(int64(binary.BigEndian.Uint64(b[20:])), l.connectSent)
	if err != nil {
		l.fail(err)
		return err
	}
	binary.BigEndian.PutUint64(b[8:], uint64(zxid))
	if _, err := l.Conn.Write(b); err != nil {
		err = l.readError(err)
		l.fail(err)
		return err
	}
	return nil
}

// Read gives the driver what is for it, and handles everything else that arrives meanwhile.
func (l *link) Read(b []byte) (int, error) {
	for len(l.forward) == 0 {
		body, size, err := l.readFrame()
		if err == nil {
			err = l.handle(body, size, l.read)
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

// readFrame reads one frame, of size bytes. Of a reply that is too long the header is all that it keeps. Memory grows with
// the bytes that arrive, not with the length that was announced.
func (l *link) readFrame() (body []byte, size int, err error) {
	had := l.in.Buffered()
	head, err := l.in.Peek(4)
	if err != nil {
		if err == io.EOF && len(head) > 0 { //nolint:errorlint // as it comes from the connection
			err = io.ErrUnexpectedEOF
		}
		return nil, 0, l.readError(err)
	}
	size = int(int32(binary.BigEndian.Uint32(head)))
	if _, err := l.in.Discard(len(head)); err != nil {
		return nil, 0, l.readError(err)
	}
	if size < replyHeaderLen || size > maxFrame && !l.shaken {
		return nil, 0, fmt.Errorf("%w: length %d", ErrGarbled, size)
	}
	body = make([]byte, replyHeaderLen, min(size, 64<<10))
	if _, err := io.ReadFull(l.in, body); err != nil {
		return nil, 0, l.readError(err)
	}
	if size <= maxFrame {
		body, err = l.readRest(body, size)
	} else if err = l.expected(body); err == nil {
		err = l.skip(size - len(body))
	}
	if err != nil {
		return nil, 0, l.readError(err)
	}
	if had < len(head)+size || l.read.IsZero() { // else it came along with the one before, of which the time is known
		l.read = l.s.clock.now()
	}
	return body, size, nil
}

// expected checks, before a frame is skipped for its length, that it begins as the reply that is due: no other length
// could be believed.
func (l *link) expected(header []byte) error {
	d := decoder{b: header}
	xid := d.int()
	l.mu.Lock()
	defer l.mu.Unlock()
	if c := l.pending.head; c == nil || c.xid != xid {
		return fmt.Errorf("%w: a frame of more than %d bytes that is no reply", ErrGarbled, maxFrame)
	}
	return nil
}

// readRest reads the rest of a frame of size bytes behind its header, which is b.
func (l *link) readRest(b []byte, size int) ([]byte, error) {
	d := decoder{b: b}
	reply := d.int() != xidNotification // notifications say nothing of whether the server answers
	for counted := len(b); len(b) < size; {
		if len(b) == cap(b) {
			b = append(b, make([]byte, min(len(b), size-len(b)))...)[:len(b)]
		}
		n, err := l.in.Read(b[len(b):min(cap(b), size)])
		b = b[:len(b)+n]
		switch {
		case err == io.EOF && len(b) < size: //nolint:errorlint // as it comes from the connection
			return nil, io.ErrUnexpectedEOF
		case err != nil && len(b) < size:
			return nil, err
		}
		if reply && len(b)-counted >= progressStep {
			counted = len(b)
			l.s.hear(l.progress())
		}
	}
	return b, nil
}

// skip reads n bytes and keeps none.
func (l *link) skip(n int) error {
	for n > 0 {
		k, err := l.in.Discard(min(n, progressStep))
		if n -= k; err != nil && n > 0 {
			return err
		}
		l.s.hear(l.progress())
	}
	return nil
}

// progress notes, and returns, that bytes of a long frame have passed now, in either direction.
func (l *link) progress() time.Time {
	now := l.s.clock.stamp()
	l.mu.Lock()
	l.moved = now
	l.mu.Unlock()
	return now
}

// readError says in a person's words why nothing more can be read or written.
func (l *link) readError(err error) error {
	var timeout net.Error
	switch {
	case hungUp(err) && !l.shaken:
		return errUnanswered
	case errors.As(err, &timeout) && timeout.Timeout() && !l.shaken:
		return fmt.Errorf("no answer to the handshake within %v", l.limit)
	case hungUp(err):
		l.mu.Lock()
		answered := !l.moved.IsZero()
		l.mu.Unlock()
		if !answered {
			return errors.New("closed the connection behind the handshake, before any answer: is authentication enforced?")
		}
		return errors.New("closed the connection")
	}
	return plain(err)
}

// handle deals with one frame of size bytes that had arrived by at; an error gives up the link.
func (l *link) handle(body []byte, size int, at time.Time) error {
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
		l.s.ephemerals.deleted(typ, l.s.strip(path))
		if !l.s.watches.fire(l, typ, path) {
			return l.failure() // nobody was told: the next link has to be, and so its zxid must not count as seen
		}
		l.s.notified(head.zxid)
		return nil
	}
	l.mu.Lock()
	c := l.pending.head
	if c == nil || c.xid != head.xid {
		l.mu.Unlock()
		return fmt.Errorf("%w: reply to request %d out of order", ErrGarbled, head.xid)
	}
	l.pending.remove(c)
	l.moved = at
	more := l.full && l.pending.n <= window/2 && l.pending.bytes <= windowBytes/2
	l.full = l.full && !more
	l.mu.Unlock()
	if more {
		l.poke()
	}

	code := verdict(c.op, head.code, d.b)
	if err := l.s.replied(c, head, code, at); err != nil {
		// Refused because of the link or the session, and not carried out: as if it had not been sent.
		l.mu.Lock()
		down := l.err != nil
		if !down {
			c.sent = time.Time{}
			l.queue.pushFront(c)
		}
		l.mu.Unlock()
		if down { // meanwhile, and nobody looks at the queue any more
			c.lost(ErrNotSent)
		}
		return err
	}
	l.s.sizes.answered(c, size)
	if c.hook != nil {
		c.hook(code)
	}
	if c.driver {
		l.toDriver(body[:replyHeaderLen])
	} else if c.done != nil {
		c.head, c.reply = head, d.b
		if size > maxFrame {
			c.skipped = size
		}
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
	if err := l.Conn.SetDeadline(time.Time{}); err != nil { // it capped the handshake; the driver sets its own from here
		return l.readError(err)
	}
	if err := l.s.shaken(r, l.connectSent); err != nil { // from here on the driver has to hear of it too
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
	l.queue, l.pending = callQueue{}, callQueue{}
	close(l.dead)
	l.mu.Unlock()

	// The session hears of it first: whoever a failed call wakes, and whoever is awake, finds the link gone.
	l.s.linkDown(l, err)
	for c := queue.pop(); c != nil; c = queue.pop() {
		c.lost(ErrNotSent)
	}
	first := pending.head
	for c := pending.pop(); c != nil; c = pending.pop() {
		if c == first && errors.Is(err, ErrGarbled) {
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
