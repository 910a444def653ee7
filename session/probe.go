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

	"github.com/zklock/locker/internal/trusted"
)

// What a doctor asks one server, outside of any session that holds a lock.

const maxWords = 8 << 20 // bytes of an answer to a four-letter word; that to "cons" grows with the server's clients

// FourLetter sends a four-letter word to the server at host:port, on a connection of its own, dialled by conf, and returns
// the answer, which may say that the word is not allowed. It blocks until the server closes the connection, or ctx ends.
func FourLetter(ctx context.Context, _ trusted.Caller, conf Config, server, word string) (answer string, err error) {
	conn, err := conf.dialAlone(ctx, server)
	if err != nil {
		return "", err
	}
	defer func() { _ = conn.Close() }() // the answer, or why there is none, is known
	if _, err := io.WriteString(conn, word); err != nil {
		return "", plain(err)
	}
	text, err := io.ReadAll(io.LimitReader(conn, maxWords))
	if err != nil && len(text) == 0 {
		return "", plain(err)
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
func OpenProbe(ctx context.Context, _ trusted.Caller, conf Config, server string, timeout time.Duration) (*Probe, error) {
	p := &Probe{Sent: time.Now()}
	conn, err := conf.dialAlone(ctx, server)
	if err != nil {
		return nil, err
	}
	p.conn = conn
	// The frame's length, protocol version, last zxid, timeout, session id, password, read-only.
	ms := int32(min(timeout.Milliseconds(), math.MaxInt32))
	b := appendLong(appendInt(appendLong(appendInt(appendInt(nil, 0), 0), 0), ms), 0)
	b = appendBool(appendBytes(b, make([]byte, 16)), false)
	body, err := p.exchange(b)
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	p.Answered = time.Now()
	r, err := parseConnectResponse(body)
	if err == nil && r.id == 0 {
		err = errors.New("a new session that has expired")
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%w: handshake: %w", ErrGarbled, err), conn.Close())
	}
	p.ID, p.Granted = r.id, time.Duration(r.timeoutMs)*time.Millisecond
	return p, nil
}

// Takes returns nil if the server accepts a request of so many bytes: it asks for a znode that does not exist, with a name
// of about that length. An error: the server does not, and the connection is lost.
func (p *Probe) Takes(bytes int) error {
	const beside = 8 + 4 + 1 // the header, the path's length, the watch flag
	path := "/" + strings.Repeat("x", max(bytes-beside-1, 0))
	b := appendBool(appendString(appendHeader(nil, opExists), path), false)
	binary.BigEndian.PutUint32(b[4:], 1)
	_, err := p.exchange(b)
	return err
}

// Close ends the session.
func (p *Probe) Close() error {
	b := appendHeader(nil, opClose)
	binary.BigEndian.PutUint32(b[4:], 2)
	_, err := p.exchange(b)
	return errors.Join(err, p.conn.Close())
}

// exchange sends a frame, which has room for its length in front, and returns the body of the next frame.
func (p *Probe) exchange(frame []byte) ([]byte, error) {
	binary.BigEndian.PutUint32(frame, uint32(len(frame)-4))
	if _, err := p.conn.Write(frame); err != nil {
		return nil, probeError(err)
	}
	var head [4]byte
	if _, err := io.ReadFull(p.conn, head[:]); err != nil {
		return nil, probeError(err)
	}
	size := binary.BigEndian.Uint32(head[:])
	if size < replyHeaderLen || size > 64<<10 {
		return nil, fmt.Errorf("%w: length %d", ErrGarbled, size)
	}
	body := make([]byte, size)
	if _, err := io.ReadFull(p.conn, body); err != nil {
		return nil, probeError(err)
	}
	return body, nil
}

func probeError(err error) error {
	if hungUp(err) {
		return errors.New("closed the connection")
	}
	return plain(err)
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
	return &boundConn{Conn: conn, stop: context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })}, nil
}

type boundConn struct {
	net.Conn
	stop func() bool
}

func (c *boundConn) Close() error {
	c.stop()
	return c.Conn.Close()
}
