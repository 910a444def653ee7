package session

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"strings"
	"time"

	"github.com/zklock/locker/internal/session/failure"
	"github.com/zklock/locker/internal/session/internal/link"
	"github.com/zklock/locker/internal/session/internal/wire"
)

// What is asked of one server outside of any session that holds a lock: its tick, by each client, and the rest by a doctor.

const maxWords = 8 << 20 // bytes of an answer to a four-letter word; that to "cons" grows with the server's clients

// FourLetter sends a four-letter word to the server at host:port, on a connection of its own, dialled by conf, and returns
// the answer, which may say that the word is not allowed. It blocks until the server closes the connection, or ctx ends.
func FourLetter(ctx context.Context, conf Config, server, word string) (answer string, err error) {
	conn, err := conf.dialAlone(ctx, server)
	if err != nil {
		return "", err
	}
	defer func() { _ = conn.Close() }() // the answer, or why there is none, is known
	if _, err := io.WriteString(conn, word); err != nil {
		return "", failure.Plain(err)
	}
	text, err := io.ReadAll(io.LimitReader(conn, maxWords))
	if err != nil && len(text) == 0 {
		return "", failure.Plain(err)
	}
	return string(text), nil
}

// Probe is a separate session, on one connection, for questions that would harm a client's session. It is for one goroutine.
type Probe struct {
	ID       int64
	Granted  time.Duration // the timeout
	Sent     time.Time     // when dialling began
	Answered time.Time     // when the handshake was answered

	conn net.Conn
}

// OpenProbe opens a session with the server at host:port and asks for timeout, not conf's. ctx bounds the probe's whole
// life. No credentials are presented.
func OpenProbe(ctx context.Context, conf Config, server string, timeout time.Duration) (*Probe, error) {
	p := &Probe{Sent: time.Now()}
	var err error
	if p.conn, err = conf.dialAlone(ctx, server); err != nil {
		return nil, err
	}
	if err := p.open(timeout); err != nil {
		return nil, errors.Join(err, p.conn.Close())
	}
	return p, nil
}

// findTick finds out the tick of the servers, unless it is known: a server that is asked for the least timeout grants two
// ticks. (It grants more if its minSessionTimeout is above that, or its tick below minTimeout/2: then the tick is taken for
// longer than it is, which is safe.) That costs one connection, and the creation and the end of one session.
func (s *Session) findTick(server string, limit time.Duration) error {
	if s.TickTime() > 0 {
		return nil
	}
	conn, err := s.cfg.open(s.ctx, server, limit)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(s.ctx, limit)
	defer cancel()
	endWith(ctx, conn)
	p := &Probe{conn: conn}
	if err := p.open(minTimeout); err != nil {
		if failure.IsTimeout(err) {
			err = fmt.Errorf("no answer to the handshake within %v", limit)
		}
		return errors.Join(err, p.conn.Close())
	}
	s.mu.Lock()
	s.lease.FoundTick(p.Tick())
	s.mu.Unlock()
	_ = p.Close() // if it fails, the probe's session runs out by itself
	return nil
}

// open does the handshake.
func (p *Probe) open(timeout time.Duration) error {
	// The frame's length, protocol version, last zxid, timeout, session id, password, read-only.
	ms := int32(min(timeout.Milliseconds(), math.MaxInt32))
	b := wire.AppendLong(wire.AppendInt(wire.AppendLong(wire.AppendInt(wire.AppendInt(nil, 0), 0), 0), ms), 0)
	b = wire.AppendBool(wire.AppendBytes(b, make([]byte, 16)), false)
	body, err := p.exchange(b)
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

// Tick returns what a client that asked for the least timeout takes for the server's tick: see findTick.
func (p *Probe) Tick() time.Duration { return max(p.Granted, minTimeout) / 2 }

// Takes returns nil if the server accepts a request of so many bytes: it asks for a znode that does not exist, with a name
// of about that length. An error: the server does not, and the connection is lost.
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

// exchange sends a frame, which has room for its length in front, and returns the body of the next frame.
func (p *Probe) exchange(frame []byte) ([]byte, error) {
	binary.BigEndian.PutUint32(frame, uint32(len(frame)-4))
	if _, err := p.conn.Write(frame); err != nil {
		return nil, err
	}
	var head [4]byte
	if _, err := io.ReadFull(p.conn, head[:]); err != nil {
		return nil, err
	}
	size := int(int32(binary.BigEndian.Uint32(head[:])))
	switch {
	case size < 0 || size > link.MaxFrame:
		return nil, failure.Stranger(head[:])
	case size < wire.ReplyHeaderLen:
		return nil, fmt.Errorf("%w: length %d", failure.ErrGarbled, size)
	}
	body, err := io.ReadAll(io.LimitReader(p.conn, int64(size))) // memory grows with the bytes that arrive
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

// dialAlone opens a connection as a session with c would; I/O on it ends with ctx.
func (c Config) dialAlone(ctx context.Context, server string) (net.Conn, error) {
	cfg, err := c.check(server)
	if err != nil {
		return nil, err
	}
	limit := attempt(cfg.Timeout)
	if end, ok := ctx.Deadline(); ok {
		limit = min(limit, time.Until(end))
	}
	if limit <= 0 {
		return nil, context.Cause(ctx)
	}
	conn, err := cfg.open(ctx, server, limit)
	if err != nil {
		return nil, err
	}
	endWith(ctx, conn)
	return conn, nil
}

// endWith has I/O on conn end with ctx, at the latest.
func endWith(ctx context.Context, conn net.Conn) {
	context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) }) // it may be closed by then
}
