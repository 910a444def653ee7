package session

import (
	"errors"
	"fmt"
	"math"
	"net"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/locker/internal/session/failure"
	"github.com/zklock/locker/internal/session/internal/clock"
	"github.com/zklock/locker/internal/session/internal/link"
	"github.com/zklock/locker/internal/session/internal/pipeline"
	"github.com/zklock/locker/internal/session/internal/wire"
)

// connection is a conn with what its session notes about it, and the conn's Owner.
type connection struct {
	*link.Conn
	s     *Session
	began time.Time // when the connect request was sent; set before the conn is up

	// Guarded by Session.mu.
	upAt      time.Time // when it became the session's
	lastWrite time.Time // when the latest heartbeat was queued, or a later acknowledged write sent
}

func (s *Session) newConnection(netConn net.Conn, server string, limit time.Duration) *connection {
	c := &connection{s: s}
	c.Conn = link.New(c, s.common, netConn, server, limit)
	return c
}

// The methods of link.Owner: what a conn reports to its session. It calls them without its mutex
// held.

// MayConnect implements link.Owner. It refuses a request for another session than this one: after
// an expiry the driver asks for a new session by itself, and would run in it what was meant for the
// old one.
func (c *connection) MayConnect(id int64, sent time.Time) (zxid int64, err error) {
	s := c.s
	c.began = sent
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.Err(); err != nil {
		return 0, err
	}
	if id != s.id {
		return 0,
			fmt.Errorf("session: the driver asks for session %#x, and this one is %#x", id, s.id)
	}
	if id != 0 {
		s.lease.Reattach(sent)
	}
	return s.zxid, nil
}

// Shaken implements link.Owner. The answer 0x0 says that the ensemble has ended our session.
// Another session in place of ours proves nothing about ours, but we can't go on: the session is
// over for us.
func (c *connection) Shaken(r wire.ConnectResponse, sent time.Time) error {
	s := c.s
	if ours := s.ID(); ours != 0 && r.ID != ours {
		err := failure.ErrExpired
		if r.ID != 0 {
			err = fmt.Errorf("%w: %w", failure.ErrLeaseExpired, otherSession(r.ID, ours))
		}
		s.end(err)
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.Err(); err != nil {
		return err
	}
	if r.ID == 0 {
		return fmt.Errorf("%w: handshake answered with session 0x0", failure.ErrGarbled)
	}
	granted := time.Duration(r.TimeoutMs) * time.Millisecond
	isNew := s.id == 0
	if err := s.lease.MayGrant(granted, isNew); err != nil {
		if !isNew {
			s.lease.NoteRefusedGrant(sent, granted)
		}
		return err
	}
	s.id, s.password, s.granted = r.ID, r.Password, granted
	if isNew {
		s.lease.Begin(sent, granted)
	} else {
		s.lease.Resume(sent, granted)
	}
	return nil
}

// otherSession returns the error for a server that has answered with another session than ours.
// Such a server has opened a new session instead of resuming ours, which may still exist. The new
// one, which has no znodes, is left to expire.
func otherSession(answered, ours int64) error {
	return fmt.Errorf("a server has answered with session %#x in place of %#x", answered, ours)
}

// Up implements link.Owner. It opens c for requests, behind those that restore the watches. It
// returns false if the session is over or c has failed.
func (c *connection) Up() bool {
	s := c.s
	if s.cfg.Granted != nil {
		s.toldKey.Do(func() { s.cfg.Granted(s.key()) })
	}
	if !s.watches.Attach(c.Conn) {
		return false
	}
	for s.watches.Restore(c.Conn) { // mu is free, and run writes nothing meanwhile
	}
	if !c.open() {
		return false
	}
	s.dialer.Settle()
	return true
}

// open opens c for requests, and makes it the session's connection. It returns false if the session
// is over or c has failed. If c fails meanwhile, Down waits for mu, and then takes c out of use.
func (c *connection) open() bool {
	s := c.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.Err() != nil {
		return false
	}
	if s.unseen {
		// Before Open, and so in front of the calls' requests: their reads are not older than the
		// event.
		sync := pipeline.Unawaited(wire.OpSync, "sync", "",
			wire.AppendString(wire.AppendHeader(nil, wire.OpSync), s.cfg.join("/")))
		sync.Urgent = true
		c.Enqueue(sync)
	}
	if !c.Open() {
		return false
	}
	if s.conn != nil {
		// The conn before has failed, and its Down has not run yet.
		s.disconnectedLocked(s.conn.Failure())
	}
	s.connectedLocked(c)
	return true
}

// Down implements link.Owner. It takes c out of use.
func (c *connection) Down(err error) {
	s := c.s
	s.watches.Detach(c.Conn)
	if c.disconnected(err) {
		s.dialer.Good() // before Failed: this failure is the first of a new search
	}
	s.dialer.Failed(c.Server, err)
}

// disconnected notes that c has failed. It reports whether c was in use for a second or longer.
func (c *connection) disconnected(err error) (lasted bool) {
	s := c.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.latest == c {
		wasClosed := errors.Is(err, failure.ErrUnanswered)
		s.lease.ReattachFailed(wasClosed)
	}
	if s.conn != c {
		return false
	}
	s.disconnectedLocked(err)
	if errors.Is(err, link.ErrSilent) {
		s.lease.GaveUpSilent()
	}
	return s.clock.Stamp().Sub(c.upAt) >= time.Second
}

// Notified implements link.Owner. Servers before 3.9 send no zxid: the event may then be later than
// any zxid that we can name to the next server, and that server may not have seen it yet (unseen).
func (c *connection) Notified(event zk.EventType, path string, zxid int64) bool {
	s := c.s
	if event == zk.EventNodeDeleted {
		s.ephemerals.Gone(s.cfg.strip(path), math.MaxInt64, false)
	}
	if !s.watches.Fire(c.Conn, event, path, zxid) {
		// c is detached: the next conn has to report the event, so its zxid must not count as seen
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if zxid > 0 {
		s.zxid = max(s.zxid, zxid)
	} else {
		s.unseen = true
	}
	return true
}

// Heard implements link.Owner.
func (c *connection) Heard(at time.Time) {
	c.s.mu.Lock()
	c.s.lease.BytesArrived(at)
	c.s.mu.Unlock()
}

// Spawn implements link.Owner.
func (c *connection) Spawn(fn func()) bool { return c.s.spawn(fn) }

// CredentialsRefused implements link.Owner. It ends the session, since every server would refuse
// the credentials.
func (c *connection) CredentialsRefused(err error) { c.s.end(err) }

// NotClosed implements link.Owner.
func (c *connection) NotClosed(err error) { c.s.dialer.Failed(c.Server, err) }

// Replied implements link.Owner.
func (c *connection) Replied(
	r *pipeline.Request, header wire.ReplyHeader, verdict int32, at time.Time,
) error {
	if err := c.checkServed(r, header, verdict); err != nil {
		return err
	}
	if provesLife(r, verdict) {
		c.countReply(r, header, verdict, at)
	}
	if r.Op == wire.OpClose && header.Code == wire.CodeOK {
		c.noteClosed()
	}
	if r.Op != wire.OpPing {
		c.s.watches.Answered(c.Conn, header.Zxid)
	}
	return nil
}

// noteClosed notes that the server has ended the session.
func (c *connection) noteClosed() {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	c.s.closed = true
}

// checkServed returns an error if the reply says that the server does not serve the session on
// this connection. If no server will, it ends the session.
func (c *connection) checkServed(
	r *pipeline.Request, header wire.ReplyHeader, verdict int32,
) error {
	if verdict == wire.CodeSessionExpired {
		c.s.end(failure.ErrExpired)
		return failure.ErrExpired
	}
	// A server that enforces authentication refuses a multi as a whole, so the code is in the
	// header and not in an operation's result. As an answer to SASL the code refuses our token:
	// link.Conn then ends the session, and says which mechanism was refused.
	if header.Code == wire.CodeAuthRequired && r.Op != wire.OpSASL {
		err := fmt.Errorf("%w: the server enforces authentication, of a kind that was not given",
			failure.ErrAuth)
		c.s.end(err)
		return err
	}
	if verdict == wire.CodeSessionMoved {
		return failure.Of(verdict)
	}
	return nil
}

// provesLife reports whether the reply to r proves that the server has taken r for a sign of life
// of the session. Credentials are none, the close ends the session, and an unreadable reply proves
// nothing.
func provesLife(r *pipeline.Request, verdict int32) bool {
	switch r.Op {
	case wire.OpAuth, wire.OpSASL, wire.OpClose:
		return false
	}
	return verdict != wire.CodeUnreadable
}

// countReply counts the reply to r for the lease and for the zxids seen.
func (c *connection) countReply(
	r *pipeline.Request, header wire.ReplyHeader, verdict int32, at time.Time,
) {
	s := c.s
	isWrite := wasAcknowledgedByMajority(r.Op, header.Zxid, verdict)
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.Op != wire.OpPing {
		s.zxid = max(s.zxid, header.Zxid)
		if header.Zxid > 0 {
			s.unseen = false
		}
	}
	s.lease.Acknowledge(r.Sent, at, isWrite)
	if isWrite {
		c.lastWrite = clock.Later(c.lastWrite, r.Sent)
	}
}

// wasAcknowledgedByMajority reports whether a reply with this zxid and verdict proves that the
// leader had the request, and that a majority has its outcome. A refusal proves that too, if the
// server's last request processor has made it, behind the leader. A refusal by a follower's first
// processor, as with enableEagerACLCheck, has no zxid.
func wasAcknowledgedByMajority(op int32, zxid int64, verdict int32) bool {
	const lastRefusal = -111 // of those that a write may meet, which are CodeNoNode and below
	isWrite := wire.ThroughLeader(op) && op != wire.OpSync
	isRefusal := lastRefusal <= verdict && verdict <= wire.CodeNoNode
	return isWrite && zxid > 0 && (verdict == wire.CodeOK || isRefusal)
}
