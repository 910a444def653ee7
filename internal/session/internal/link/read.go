package link

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/locker/internal/session/failure"
	"github.com/zklock/locker/internal/session/internal/pipeline"
	"github.com/zklock/locker/internal/session/internal/wire"
)

// progressStep is how many bytes of a long frame count as a sign of life.
const progressStep = 4 << 10

// maxFrameBuffer is the length of the longest buffer that a conn keeps to read into, in bytes. A
// list of about a thousand contenders fits into it.
const maxFrameBuffer = 64 << 10

// Receive reads and handles one frame. It returns to the driver the connect response's body and the
// headers of the replies to the driver's own requests, and nil for all other frames. If it returns
// an error, the conn has failed.
func (c *Conn) Receive() (forDriver []byte, err error) {
	if c.established() {
		forDriver, err = c.receiveFrame()
	} else {
		forDriver, err = c.receiveConnectResponse()
	}
	if err != nil {
		c.frameBuffer = nil // the driver keeps a failed conn until it has another one
		c.Fail(err)
		return nil, c.Failure()
	}
	return forDriver, nil
}

// receiveConnectResponse reads the server's half of the handshake.
func (c *Conn) receiveConnectResponse() (body []byte, err error) {
	size, err := c.readLength()
	if err != nil {
		return nil, err
	}
	if size < 0 || size > wire.MaxFrame {
		return nil, failure.Stranger(binary.BigEndian.AppendUint32(nil, uint32(size)))
	}
	if size < wire.ReplyHeaderLen {
		return nil, fmt.Errorf("%w: length %d", failure.ErrGarbled, size)
	}
	header, err := c.readHeader(size)
	if err != nil {
		return nil, err
	}
	frame, err := c.readRest(header, size)
	if err != nil {
		return nil, c.socketError(err)
	}
	body = []byte(frame) // for the driver
	return body, c.handshake(body)
}

// receiveFrame reads and handles one frame behind the handshake. It keeps only the header of a
// frame that is longer than wire.MaxFrame.
func (c *Conn) receiveFrame() (forDriver []byte, err error) {
	size, err := c.readLength()
	if err != nil {
		return nil, err
	}
	if size < wire.ReplyHeaderLen {
		return nil, c.blame(fmt.Errorf("%w: length %d", failure.ErrGarbled, size))
	}
	header, err := c.readHeader(size)
	if err != nil {
		return nil, err
	}
	var frame string
	if size <= wire.MaxFrame {
		frame, err = c.readRest(header, size)
	} else {
		frame = string(header)
		err = c.skipRest(header, size)
	}
	if err != nil {
		return nil, c.socketError(err)
	}
	return c.handle(frame, size, c.common.Clock.Glance())
}

// readLength reads the length with which each frame begins.
func (c *Conn) readLength() (size int, err error) {
	length, err := c.in.Peek(4)
	if err != nil {
		return 0, c.socketError(err)
	}
	size = int(int32(binary.BigEndian.Uint32(length)))
	_, _ = c.in.Discard(len(length)) // Peek has read it
	return size, nil
}

// readHeader reads the header of a frame into the conn's buffer. size is the frame's length, which
// is at least the header's. The result has the buffer's capacity, since readRest goes on in it.
func (c *Conn) readHeader(size int) ([]byte, error) {
	if min(size, maxFrameBuffer) > len(c.frameBuffer) {
		c.frameBuffer = make([]byte, min(max(size, 2*len(c.frameBuffer)), maxFrameBuffer))
	}
	header := c.frameBuffer[:wire.ReplyHeaderLen]
	if _, err := io.ReadFull(c.in, header); err != nil {
		return nil, c.socketError(err)
	}
	return header, nil
}

// blame notes that err came in place of the reply that is due, and returns err.
func (c *Conn) blame(err error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.pipe.Blame(err)
}

// checkExpected returns an error if a frame with this header is not the reply that is due.
func (c *Conn) checkExpected(header []byte) error {
	d := wire.Decoder{B: string(header)}
	xid := d.Int()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.pipe.Expects(xid) {
		return nil
	}
	err := fmt.Errorf("%w: a frame of more than %d bytes that is no reply", failure.ErrGarbled,
		wire.MaxFrame)
	if xid == wire.XidNotification { // the reply that is due may still come
		return err
	}
	return c.pipe.Blame(err)
}

// readRest reads the rest of a frame of size bytes, whose header readHeader has read, and returns a
// copy of the frame. For one that is longer than the buffer, memory grows with the bytes that
// arrive, not with the announced length.
func (c *Conn) readRest(header []byte, size int) (string, error) {
	d := wire.Decoder{B: string(header)}
	isReply := d.Int() != wire.XidNotification // only a reply shows that the server answers
	frame := header                            // in the buffer, while that is long enough
	for counted := len(frame); len(frame) < size; {
		if len(frame) == cap(frame) {
			longer := make([]byte, len(frame), min(2*len(frame), size))
			copy(longer, frame)
			frame = longer
		}
		n, err := c.in.Read(frame[len(frame):min(cap(frame), size)])
		frame = frame[:len(frame)+n]
		if err != nil && len(frame) < size {
			return "", err
		}
		if isReply && len(frame)-counted >= progressStep {
			counted = len(frame)
			c.owner.Heard(c.progress())
		}
	}
	return string(frame), nil
}

// skipRest skips the rest of a frame of size bytes, whose header is given. The frame has to be the
// reply that is due: no other is believed to be so long.
func (c *Conn) skipRest(header []byte, size int) error {
	if err := c.checkExpected(header); err != nil {
		return err
	}
	for left := size - len(header); left > 0; {
		n, err := c.in.Discard(min(left, progressStep))
		left -= n
		if err != nil && left > 0 {
			return err
		}
		c.owner.Heard(c.progress())
	}
	return nil
}

// progress notes that bytes of a long frame have passed now, in either direction, and returns now.
func (c *Conn) progress() time.Time {
	now := c.common.Clock.Stamp()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pipe.Progress(now)
	return now
}

// socketError returns the failure of the conn that err, an error of its socket, causes: it says
// what the server has done.
func (c *Conn) socketError(err error) error {
	c.mu.Lock()
	shaking := c.state <= connShaking
	moved := c.pipe.Moved()
	c.mu.Unlock()
	switch {
	case failure.HungUp(err) && shaking:
		return failure.ErrUnanswered
	case failure.IsTimeout(err) && shaking:
		return fmt.Errorf("no answer to the handshake within %v", c.limit)
	case failure.HungUp(err) && !moved:
		return errors.New(
			"closed the connection right after the handshake, before any answer: is authentication enforced?")
	case failure.HungUp(err):
		return errors.New("closed the connection")
	}
	return failure.Plain(err)
}

// handle handles a frame of size bytes that had arrived by at. If it is a reply to the driver,
// handle returns its header. After an error the conn has to be given up.
func (c *Conn) handle(frame string, size int, at time.Time) (forDriver []byte, err error) {
	d := wire.Decoder{B: frame}
	header := d.Header()
	if header.Xid == wire.XidNotification {
		return nil, c.notification(&d, header)
	}
	c.handling.Lock()
	defer c.handling.Unlock()
	r, err := c.take(header.Xid, size, at)
	if err != nil {
		return nil, err
	}
	if err := c.handleReply(r, pipeline.Reply{Header: header, Body: d.B, Size: size},
		at); err != nil {
		return nil, err
	}
	if r.FromDriver {
		return []byte(frame[:wire.ReplyHeaderLen]), nil
	}
	return nil, nil
}

// take takes the request that a reply of size bytes with number xid answers. If the reply makes
// room for requests that wait, take wakes run.
func (c *Conn) take(xid int32, size int, at time.Time) (*pipeline.Request, error) {
	c.mu.Lock()
	r, err := c.pipe.Take(xid, size, at)
	refill := err == nil && c.pipe.CanRefill()
	c.mu.Unlock()
	if refill {
		poke(c.wake)
	}
	return r, err
}

// handleReply tells the owner of the reply to r, and completes r. If it returns an error, the conn
// has failed, and did so before r was completed: a call that sends its request again must not find
// this conn.
func (c *Conn) handleReply(r *pipeline.Request, reply pipeline.Reply, at time.Time) error {
	verdict := wire.Verdict(r.Op, reply.Header.Code, reply.Body)
	if wire.TryAgain(verdict) {
		// A multi's reply may have this code in an operation's result alone, and its call reads
		// only the header.
		reply.Header.Code = verdict
	}
	if err := c.owner.Replied(r, reply.Header, verdict, at); err != nil {
		c.Fail(err)
		r.FailForResend(failure.ErrNotSent) // it was not carried out: see Owner.Replied
		return err
	}
	if r.StandsForSeveral() {
		return c.completeSeveral(r, reply)
	}
	if wire.TryAgain(verdict) && r.ReliedOn() { // no call sends it again: the next conn does
		err := fmt.Errorf("%s: %w", r.Name(), failure.Of(verdict))
		c.Fail(err)
		r.Lose(c.Server, err)
		return err
	}
	if r.Hook != nil && !wire.TryAgain(verdict) {
		r.Hook(verdict)
	}
	r.Complete(reply)
	return nil
}

// completeSeveral completes the requests for which r stands. For its error see handleReply.
func (c *Conn) completeSeveral(r *pipeline.Request, reply pipeline.Reply) error {
	parts, err := pipeline.Split(r, reply)
	if err != nil {
		c.Fail(err)
		r.FailUnreadable(c.Server, err)
		return err
	}
	c.mu.Lock()
	c.pipe.Learn(r, parts)
	c.mu.Unlock()
	for _, part := range parts {
		part.Deliver()
	}
	return nil
}

// notification handles a notification; d is behind its header. No request is to blame for one that
// can't be read: requests that wait are treated as when the connection breaks.
func (c *Conn) notification(d *wire.Decoder, header wire.ReplyHeader) error {
	typ, _, path := d.Int(), d.Int(), d.SharedText() // nobody keeps the path
	if d.Err != nil {
		return fmt.Errorf("%w: notification: %w", failure.ErrGarbled, d.Err)
	}
	if !c.owner.Notified(zk.EventType(typ), path, header.Zxid) {
		return c.Failure()
	}
	return nil
}
