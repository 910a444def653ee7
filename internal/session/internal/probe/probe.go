package probe

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"strings"
	"time"

	"github.com/zklock/locker/internal/session/failure"
	"github.com/zklock/locker/internal/session/internal/wire"
)

// MinTimeout is the least timeout that a session asks for.
const MinTimeout = 100 * time.Millisecond

// Probe is a separate session, on one connection, for questions that would harm a client's session.
// It is for one goroutine.
type Probe struct {
	ID       int64
	Granted  time.Duration // the timeout
	Sent     time.Time     // when dialling began
	Answered time.Time     // when the handshake was answered

	conn net.Conn
}

// New does the handshake on conn, which it takes over: it asks for a session of timeout. sent is
// when dialling began.
func New(conn net.Conn, timeout time.Duration, sent time.Time) (*Probe, error) {
	p := &Probe{conn: conn, Sent: sent}
	err := p.open(timeout)
	if err == nil {
		return p, nil
	}
	if closing := conn.Close(); closing != nil {
		// As text: that closing took too long does not say that the handshake did.
		err = fmt.Errorf("%w (closing the connection: %s)", err, closing)
	}
	return nil, err
}

// open does the handshake.
func (p *Probe) open(timeout time.Duration) error {
	ms := int32(min(timeout.Milliseconds(), math.MaxInt32))
	body, err := p.exchange(wire.AppendConnectRequest(nil, ms, 0, [wire.PasswordLen]byte{}))
	if failure.HungUp(err) {
		return failure.ErrUnanswered
	}
	if err != nil {
		return failure.Plain(err)
	}
	p.Answered = time.Now()
	r, err := wire.ParseConnectResponse(body)
	if err == nil && r.ID == 0 {
		err = errors.New("answered with session 0x0")
	}
	if err != nil {
		return fmt.Errorf("%w: handshake: %w", failure.ErrGarbled, err)
	}
	p.ID, p.Granted = r.ID, time.Duration(r.TimeoutMs)*time.Millisecond
	return nil
}

// Tick returns what a client that asked for the least timeout takes for the server's tick: see
// Session.findTick.
func (p *Probe) Tick() time.Duration { return max(p.Granted, MinTimeout) / 2 }

// Takes returns nil if the server accepts a request of so many bytes: it asks for a znode that does
// not exist, with a name of about that length. An error: the server does not, and the connection is
// lost.
func (p *Probe) Takes(bytes int) error {
	const beside = 8 + 4 + 1 // the header, the path's length, the watch flag
	path := "/" + strings.Repeat("x", max(bytes-beside-1, 0))
	b := wire.AppendBool(wire.AppendString(wire.AppendHeader(nil, wire.OpExists), path), false)
	binary.BigEndian.PutUint32(b[4:], 1)
	_, err := p.exchange(b)
	return probeError(err)
}

// Close ends the session.
func (p *Probe) Close() error {
	b := wire.AppendHeader(nil, wire.OpClose)
	binary.BigEndian.PutUint32(b[4:], 2)
	_, err := p.exchange(b)
	return errors.Join(probeError(err), p.conn.Close())
}

// exchange sends a frame, which has room for its length in front, and returns the body of the next
// frame.
func (p *Probe) exchange(frame []byte) ([]byte, error) {
	wire.SetLength(frame)
	if _, err := p.conn.Write(frame); err != nil {
		return nil, err
	}
	var head [4]byte
	if _, err := io.ReadFull(p.conn, head[:]); err != nil {
		return nil, err
	}
	size := int(int32(binary.BigEndian.Uint32(head[:])))
	switch {
	case size < 0 || size > wire.MaxFrame:
		return nil, failure.Stranger(head[:])
	case size < wire.ReplyHeaderLen:
		return nil, fmt.Errorf("%w: length %d", failure.ErrGarbled, size)
	}
	// memory grows with the bytes that arrive
	body, err := io.ReadAll(io.LimitReader(p.conn, int64(size)))
	if err == nil && len(body) < size {
		err = io.ErrUnexpectedEOF
	}
	return body, err
}

func probeError(err error) error {
	if failure.HungUp(err) {
		return errors.New("closed the connection")
	}
	return failure.Plain(err)
}
