package session

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/zklock/locker/internal/session/failure"
	"github.com/zklock/locker/internal/session/internal/dial"
	"github.com/zklock/locker/internal/session/internal/probe"
)

// What is asked of one server outside of any session that holds a lock: its tick, by each client,
// and the rest by a doctor.

// bytes of an answer to a four-letter word; that to "cons" grows with the server's clients
const maxWords = 8 << 20

// FourLetter sends a four-letter word to the server at host:port, on a connection of its own,
// dialled by conf, and returns the answer, which may say that the word is not allowed. It blocks
// until the server closes the connection, or ctx ends.
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

// Probe is a separate session, on one connection.
type Probe = probe.Probe

// OpenProbe opens a session with the server at host:port and asks for timeout, not conf's. ctx
// bounds the probe's whole life. No credentials are presented.
func OpenProbe(
	ctx context.Context, conf Config, server string, timeout time.Duration,
) (*probe.Probe, error) {
	sent := time.Now()
	conn, err := conf.dialAlone(ctx, server)
	if err != nil {
		return nil, err
	}
	return probe.New(conn, timeout, sent)
}

// findTick finds out the tick of the servers, unless it is known: a server that is asked for the
// least timeout grants two ticks. (It grants more if its minSessionTimeout is above that, or its
// tick below MinTimeout/2: then the tick is taken for longer than it is, which is safe.) That costs
// one connection, and the creation and the end of one session.
func (s *Session) findTick(server string, limit time.Duration) error {
	if s.TickTime() > 0 {
		return nil
	}
	conn, err := s.dialer.Open(s.ctx, server, limit)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(s.ctx, limit)
	defer cancel()
	endWith(ctx, conn)
	p, err := probe.New(conn, probe.MinTimeout, time.Time{})
	if err != nil {
		if failure.IsTimeout(err) {
			err = fmt.Errorf("no answer to the handshake within %v", limit)
		}
		return err
	}
	_ = p.Close() // if it fails, the probe's session runs out by itself
	if p.Tick() > maxFoundTick {
		return fmt.Errorf(
			"granted a session timeout of %v, although the least was asked for, and so the servers' tick "+
				"can't be found out: give it (WithTickTime)", p.Granted)
	}
	s.mu.Lock()
	s.lease.FoundTick(p.Tick())
	s.mu.Unlock()
	return nil
}

// maxFoundTick is the longest tick that is believed if Config does not give it. Servers tick every
// few seconds. A server that would tick less often than this has a large minSessionTimeout, or is
// broken, and a lease that allowed for such ticks would be none.
const maxFoundTick = time.Minute

// dialAlone opens a connection as a session with c would; I/O on it ends with ctx.
func (c Config) dialAlone(ctx context.Context, server string) (net.Conn, error) {
	cfg, err := c.check(server)
	if err != nil {
		return nil, err
	}
	limit := dial.Attempt(cfg.Timeout)
	if end, ok := ctx.Deadline(); ok {
		limit = min(limit, time.Until(end))
	}
	if limit <= 0 { // perhaps before ctx's own timer has run
		return nil, cmp.Or(context.Cause(ctx), context.DeadlineExceeded)
	}
	conf := cfg.dialing()
	conn, err := conf.Open(ctx, server, limit)
	if err != nil {
		return nil, err
	}
	endWith(ctx, conn)
	return conn, nil
}

// endWith has I/O on conn end with ctx, at the latest.
func endWith(ctx context.Context, conn net.Conn) {
	// it may be closed by then
	context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
}
