package session

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/locker/internal/session/failure"
	"github.com/zklock/locker/internal/session/internal/clock"
	"github.com/zklock/locker/internal/session/internal/dial"
	"github.com/zklock/locker/internal/session/internal/link"
	"github.com/zklock/locker/internal/session/internal/pipeline"
	"github.com/zklock/locker/internal/session/internal/probe"
	"github.com/zklock/locker/internal/session/internal/wire"
)

// # Closing a session without being its client
//
// A session whose lease has expired is over for its client, but not for the ensemble. Neither is
// that of a process that has crashed. Its znodes stay until the ensemble ends it: up to a session
// timeout and two ticks after the servers have last heard of it, or are back. Until then everybody
// waits behind them, the client's own next session too.
//
// CloseGivenUp and CloseByKey close such a session earlier. They may be called only when nothing
// runs any more that a lock of the session protected, since the locks are free from then on. Only
// the caller knows that.
//
// Each attempt takes the session over on a connection of its own. A server counts the session's
// time again from that handshake. So if the attempt fails between the handshake and the close, the
// session lasts for the timeout that the handshake has asked for: the attempt asks for the least.
// Behind the handshake it sends nothing but credentials, which a server may enforce, and the close.
// No earlier request of the session that is still on its way has one of their numbers (xids).

// Key is what a session can be taken over with: who has it can close the session.
type Key struct {
	ID       int64
	Password [wire.PasswordLen]byte
}

// CloseGivenUp closes a session that has ended for its client, at a server of the ensemble: first
// at the server named first, which is known to answer, and then at the others, again and again
// until ctx ends. It does nothing if the session has no znodes, or if the ensemble is known to have
// ended it: then a server has said so, or has answered Close's request.
//
// Call it when Cut's channel is closed, for one call at a time. It returns nil once the ensemble
// has ended the session.
func (s *Session) CloseGivenUp(ctx context.Context, first string) error {
	s.mu.Lock()
	isOver := s.id == 0 || s.closed || errors.Is(s.Err(), failure.ErrExpired)
	s.mu.Unlock()
	if isOver || !s.ephemerals.Any() {
		return nil
	}
	to := toClose{dialing: s.cfg.dialing(), common: s.common, key: s.key()}
	return to.close(ctx, first)
}

// CloseByKey closes the session that key names, of a process that is known to have ended. It is
// like CloseGivenUp otherwise, with the servers, credentials and TLS of connect and conf. An error
// about these matches ErrConfig or ErrPath.
func CloseByKey(ctx context.Context, connect string, conf Config, key Key, first string) error {
	cfg, err := conf.check(connect)
	if err != nil {
		return err
	}
	if key.ID == 0 { // a server would open a session
		return fmt.Errorf("%w: session 0x0 can't be closed", ErrConfig)
	}
	to := toClose{dialing: cfg.dialing(), key: key}
	to.common = link.Common{
		Clock:         new(clock.Clock),
		Numbers:       pipeline.NumbersOfNobody(),
		JuteMaxBuffer: cfg.JuteMaxBuffer,
		Auth:          cfg.Auth,
		SASL:          cfg.SASL,
	}
	return to.close(ctx, first)
}

// toClose is a session that is to be closed, and what a connection for that needs.
type toClose struct {
	dialing dial.Config
	common  link.Common // without Life and Joined, which are an attempt's
	key     Key
}

// close tries one server after the other until the session is over, or ctx ends.
func (to toClose) close(ctx context.Context, first string) error {
	d := dial.New(ctx, to.dialing, func() (time.Duration, bool) { return 0, false })
	if first != "" {
		d.Prefer(first)
	}
	for {
		socket, server, limit, err := d.Connect(func(string, time.Duration) error { return nil })
		if err == nil {
			err = to.closeOn(ctx, socket, server, limit)
			if err == nil {
				return nil
			}
			d.Failed(server, err)
		}
		if ctx.Err() != nil {
			const doing = "session: closing session %#x, which was left behind: %w"
			return fmt.Errorf(doing, to.key.ID, d.Report())
		}
	}
}

// closeOn takes the session over on socket, and closes it, within limit.
func (to toClose) closeOn(
	ctx context.Context, socket net.Conn, server string, limit time.Duration,
) error {
	attempt, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	c := &closer{
		key:     to.key,
		limit:   limit,
		request: pipeline.NewRequest(wire.OpClose, "close", ""),
	}
	common := to.common
	common.Life = attempt
	common.Joined = &c.joined
	c.conn = link.New(c, common, socket, server, limit)
	stop := context.AfterFunc(attempt, func() { c.conn.Fail(errNoAnswer) })
	defer stop()
	err := c.close()
	c.conn.Fail(failure.ErrClosed)
	c.joined.Wait()
	return err
}

var errNoAnswer = errors.New("no answer in time")

// closer closes a session on one connection, and is the connection's Owner.
type closer struct {
	key     Key
	conn    *link.Conn
	limit   time.Duration
	request *pipeline.Request // the close
	joined  sync.WaitGroup    // of what the connection has running

	isOver bool // a server has answered that the session is over; of the goroutine that reads
}

// close does the handshake and waits for the answer to the close. If the handshake shows that the
// session is over (isOver), Receive returns an error, and the close is never sent.
func (c *closer) close() error {
	ms := int32(min(probe.MinTimeout.Milliseconds(), math.MaxInt32))
	frame := wire.AppendConnectRequest(nil, ms, c.key.ID, c.key.Password)
	wire.SetLength(frame)
	if err := c.conn.ShakeHands(frame); err != nil {
		return err
	}
	var err error
	for err == nil && !c.request.Ended() {
		_, err = c.conn.Receive()
	}
	switch {
	case c.isOver:
		return nil
	case !c.request.Ended():
		return err
	case c.request.Err() != nil:
		return c.request.Err()
	case c.request.Header.Code != wire.CodeOK:
		return failure.Of(c.request.Header.Code)
	}
	return nil
}

// MayConnect implements link.Owner. A server that lags may close a session too.
func (c *closer) MayConnect(int64, time.Time) (zxid int64, err error) { return 0, nil }

// Shaken implements link.Owner. The answer 0x0 says that the ensemble has ended the session.
// Another session in its place proves nothing about it: see connection.Shaken.
func (c *closer) Shaken(r wire.ConnectResponse, _ time.Time) error {
	switch r.ID {
	case c.key.ID:
		return nil
	case 0:
		c.isOver = true
		return failure.ErrExpired
	}
	return otherSession(r.ID, c.key.ID)
}

// Spawn implements link.Owner.
func (c *closer) Spawn(fn func()) bool {
	c.joined.Go(fn)
	return true
}

// Up implements link.Owner. It sends the close.
func (c *closer) Up() bool { return c.conn.Open() && c.conn.Enqueue(c.request) }

// Beat implements link.Owner. The attempt is over long before a heartbeat would be due.
func (c *closer) Beat() time.Duration { return time.Hour }

// Patience implements link.Owner.
func (c *closer) Patience() time.Duration { return c.limit }

// Replied implements link.Owner.
func (c *closer) Replied(*pipeline.Request, wire.ReplyHeader, int32, time.Time) error { return nil }

// Notified implements link.Owner.
func (c *closer) Notified(zk.EventType, string, int64) bool { return true }

// The rest of link.Owner: what they tell, the failure of the connection tells too.

func (c *closer) Heard(time.Time)          {}
func (c *closer) CredentialsRefused(error) {}
func (c *closer) Down(error)               {}
func (c *closer) NotClosed(error)          {}
