package session

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"time"

	"github.com/go-zookeeper/zk"
)

const (
	maxFrame     = 32 << 20 // of a reply that is kept; a longer one, such as a long list, is skipped
	progressStep = 4 << 10  // bytes of a long frame that count as a sign of life
)

// receive reads and handles one frame. It returns to the driver the connect response's body and the headers of the replies
// to the driver's own requests; nil for all other frames. With an error the conn has failed.
func (c *conn) receive() (forDriver []byte, err error) {
	established := c.established()
	body, size, err := c.readFrame(established)
	switch {
	case err != nil:
	case established:
		forDriver, err = c.handle(body, size, c.s.clock.glance())
	default:
		forDriver, err = body, c.handshake(body)
	}
	if err != nil {
		c.fail(err)
		return nil, c.failure()
	}
	return forDriver, nil
}

// garbledLocked returns err, which says what came in place of the due reply. The request that waits for that reply fails
// with err, whatever gives up the conn first: on the next conn its reply would be unreadable too.
func (c *conn) garbledLocked(err error) error {
	if r := c.pending.head; r != nil {
		r.unreadable = err
	}
	return err
}

// readFrame reads one frame, of size bytes; of one longer than maxFrame it keeps the header only. Memory grows with the
// bytes that arrive, not with the announced length.
func (c *conn) readFrame(established bool) (body []byte, size int, err error) {
	length, err := c.in.Peek(4)
	if err != nil {
		return nil, 0, c.readError(err)
	}
	size = int(int32(binary.BigEndian.Uint32(length)))
	_, _ = c.in.Discard(len(length)) // Peek has read it
	switch {
	case !established && (size < 0 || size > maxFrame):
		return nil, 0, &strangerError{binary.BigEndian.AppendUint32(nil, uint32(size))}
	case size < replyHeaderLen:
		c.mu.Lock()
		defer c.mu.Unlock()
		return nil, 0, c.garbledLocked(fmt.Errorf("%w: length %d", ErrGarbled, size))
	}
	body = make([]byte, replyHeaderLen, min(size, 64<<10))
	if _, err := io.ReadFull(c.in, body); err != nil {
		return nil, 0, c.readError(err)
	}
	if size <= maxFrame {
		body, err = c.readRest(body, size)
	} else if err = c.expected(body); err == nil {
		err = c.skip(size - len(body))
	}
	if err != nil {
		return nil, 0, c.readError(err)
	}
	return body, size, nil
}

// expected checks, before a frame is skipped for its length, that it begins as the due reply: no other length is credible.
func (c *conn) expected(header []byte) error {
	d := decoder{b: header}
	xid := d.int()
	c.mu.Lock()
	defer c.mu.Unlock()
	if r := c.pending.head; r != nil && r.xid == xid {
		return nil
	}
	err := fmt.Errorf("%w: a frame of more than %d bytes that is no reply", ErrGarbled, maxFrame)
	if xid == xidNotification { // the reply that is due may still come
		return err
	}
	return c.garbledLocked(err)
}

// readRest reads the rest of a frame of size bytes, whose header is b.
func (c *conn) readRest(b []byte, size int) ([]byte, error) {
	d := decoder{b: b}
	reply := d.int() != xidNotification // a notification does not show that the server answers
	for counted := len(b); len(b) < size; {
		if len(b) == cap(b) {
			b = append(b, make([]byte, min(len(b), size-len(b)))...)[:len(b)]
		}
		n, err := c.in.Read(b[len(b):min(cap(b), size)])
		if b = b[:len(b)+n]; err != nil && len(b) < size {
			return nil, err
		}
		if reply && len(b)-counted >= progressStep {
			counted = len(b)
			c.s.hear(c.progress())
		}
	}
	return b, nil
}

func (c *conn) skip(n int) error {
	for n > 0 {
		k, err := c.in.Discard(min(n, progressStep))
		if n -= k; err != nil && n > 0 {
			return err
		}
		c.s.hear(c.progress())
	}
	return nil
}

// progress notes that bytes of a long frame have passed, in either direction, and returns the time.
func (c *conn) progress() time.Time {
	now := c.s.clock.stamp()
	c.mu.Lock()
	c.progressAt = now
	c.mu.Unlock()
	return now
}

func (c *conn) readError(err error) error {
	c.mu.Lock()
	shaking, answered := c.state <= connShaking, !c.progressAt.IsZero()
	c.mu.Unlock()
	switch {
	case hungUp(err) && shaking:
		return errUnanswered
	case isTimeout(err) && shaking:
		return fmt.Errorf("no answer to the handshake within %v", c.limit)
	case hungUp(err) && !answered:
		return errors.New("closed the connection right after the handshake, before any answer: is authentication enforced?")
	case hungUp(err):
		return errors.New("closed the connection")
	}
	return plain(err)
}

// handle handles a frame that had arrived by at. It returns the header of a reply to the driver. An error gives up the conn.
func (c *conn) handle(body []byte, size int, at time.Time) (forDriver []byte, err error) {
	d := decoder{b: body}
	header := d.header()
	if header.xid == xidNotification {
		return nil, c.notification(&d, header)
	}
	c.handling.Lock()
	defer c.handling.Unlock()
	r, err := c.take(header.xid, size, at)
	if err != nil {
		return nil, err
	}
	code := verdict(r.op, header.code, d.b)
	if err := c.s.replied(c, r, header, code, at); err != nil {
		c.fail(err)                      // first: calls that send again must not find this conn
		sendAgain(r.calls(), ErrNotSent) // it was not carried out, or its reply does not count
		return nil, err
	}
	if r.op != opPing {
		c.s.watches.answered(c, header.zxid)
	}
	if r.split != nil {
		if err = r.split(c, r, header, d.b, size); err != nil {
			r.unreadable = err
			c.fail(err) // first: calls that get the error send again, and must not find this conn
			c.failCalls(r, err)
		}
		return nil, err
	}
	switch {
	case !tryAgain(code):
		if r.hook != nil {
			r.hook(code)
		}
	case r.done == nil && (r.op == opExists || r.op == opSetWatches || r.op == opSync): // no call sends it again: the next conn does
		err := fmt.Errorf("%s: %w", r.name, errOf(code))
		c.fail(err)
		return nil, err
	}
	if r.fromDriver {
		return body[:replyHeaderLen], nil
	}
	if size > maxFrame {
		r.unreadable = tooLarge("reply", size, maxFrame)
	}
	r.answer(header, d.b)
	return nil, nil
}

// verdict returns the code of a reply: the header's. If a multi's header says OK, it is "session expired" or "session moved"
// if any operation has that code (for a multi servers say it only there), else the first code other than OK and
// RuntimeInconsistency.
func verdict(op int32, header int32, body []byte) int32 {
	if op != opMulti || header != codeOK {
		return header
	}
	d, first := decoder{b: body}, codeOK
	for r := range d.results(op) {
		if r.code == codeSessionExpired || r.code == codeSessionMoved {
			return r.code
		}
		if first == codeOK && r.code != codeInconsistent {
			first = r.code
		}
	}
	if d.err != nil {
		return codeUnreadable // the call that waits for the reply reports it
	}
	return first
}

// notification handles a notification; d is behind its header. No request is to blame for an unreadable one: requests that
// wait are treated as when the connection breaks.
func (c *conn) notification(d *decoder, header replyHeader) error {
	typ, _, path := d.int(), d.int(), d.string()
	if d.err != nil {
		return fmt.Errorf("%w: notification: %w", ErrGarbled, d.err)
	}
	event := zk.EventType(typ)
	if event == zk.EventNodeDeleted {
		c.s.ephemerals.gone(c.s.strip(path), math.MaxInt64, false)
	}
	if !c.s.watches.fire(c, event, path, header.zxid) {
		return c.failure() // c is detached: the next conn has to report the event, so its zxid must not count as seen
	}
	c.s.notified(header.zxid)
	return nil
}

// take removes the request whose reply is due, which must be number xid; the reply, of size bytes, had arrived by at.
func (c *conn) take(xid int32, size int, at time.Time) (*request, error) {
	c.mu.Lock()
	r := c.pending.head
	if r == nil || r.xid != xid {
		err := c.garbledLocked(fmt.Errorf("%w: reply to request %d out of order", ErrGarbled, xid))
		c.mu.Unlock()
		return nil, err
	}
	c.pending.remove(r)
	c.answeredLocked(r, size)
	c.progressAt = at
	more := c.queue.n > 0 && c.pending.n <= window/2 && c.pending.bytes <= windowBytes/2
	c.mu.Unlock()
	if more {
		poke(c.wake)
	}
	return r, nil
}

// replied counts the reply to r on c, with the verdict code, which arrived at time at. An error gives up c.
func (s *Session) replied(c *conn, r *request, header replyHeader, code int32, at time.Time) error {
	if code == codeSessionExpired {
		s.end(ErrExpired)
		return ErrExpired
	}
	if header.code == codeAuthRequired && r.op != opSASL {
		err := fmt.Errorf("%w: the server enforces authentication, of a kind that was not given", ErrAuth)
		s.end(err)
		return err
	}
	if code == codeSessionMoved {
		return errOf(code)
	}
	if r.op == opAuth || r.op == opSASL || r.op == opClose || code == codeUnreadable {
		return nil // credentials do not touch the session, close ends it, and an unreadable reply proves nothing
	}
	// Only refusals by the last request processor prove that the leader was asked. One with enableEagerACLCheck comes from a
	// follower's first, and without a zxid.
	leader := throughLeader(r.op) && r.op != opSync && header.zxid > 0 && (code == codeOK || code <= codeNoNode && code >= -111)
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.op != opPing {
		s.zxid = max(s.zxid, header.zxid)
		s.unseen = s.unseen && header.zxid <= 0
	}
	s.lease.ack(r.sent, at, leader)
	s.moveDeadlineLocked()
	if leader {
		c.lastWrite, s.writeTook = later(c.lastWrite, r.sent), at.Sub(r.sent)
		if s.writeTook < s.promptLocked() {
			s.stalls = 0
		}
	}
	return nil
}
