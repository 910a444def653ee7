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
	upAt time.Time // when it became the session's
	// when the latest heartbeat was queued, or a later acknowledged write was sent
	lastWrite time.Time
}

func (s *Session) newConnection(netConn net.Conn, server string, limit time.Duration) *connection {
	c := &connection{s: s}
	c.Conn = link.New(c, s.common, netConn, server, limit)
	return c
}

// What a conn reports to its session, without its mutex held.

// MayConnect checks the connect request for session id that is about to be sent, and returns the
// last zxid seen. After an expiry the driver asks for a new session by itself, and would run in it
// what was meant for the old one: that is refused.
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

// Shaken takes the answer to the handshake that was sent at sent.
func (c *connection) Shaken(r wire.ConnectResponse, sent time.Time) error {
	s := c.s
	if ours := s.ID(); ours != 0 && r.ID != ours {
		err := failure.ErrExpired
		if r.ID != 0 {
			// as from a server that can't resume ours; the new one, without znodes, is left to
			// expire
			err = fmt.Errorf("%w: a server has answered with session %#x in place of %#x",
				failure.ErrLeaseExpired, r.ID, ours)
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

// Up opens c for requests, after those that restore the watches. It returns false if the session is
// over or c has failed. If c fails meanwhile, Down waits for mu and takes c out of use.
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
// is over or c has failed.
func (c *connection) open() bool {
	s := c.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.Err() != nil || !c.Open() {
		return false
	}
	if s.conn != nil {
		s.disconnectedLocked(s.conn.Failure()) // it has failed too, and its Down has not run yet
	}
	if s.unseen { // before the calls' requests: reads behind it are not older than the event
		sync := pipeline.Unawaited(wire.OpSync, "sync", "",
			wire.AppendString(wire.AppendHeader(nil, wire.OpSync), s.cfg.join("/")))
		sync.Urgent = true
		c.Enqueue(sync)
	}
	s.connectedLocked(c)
	return true
}

func (c *connection) Down(err error) {
	s := c.s
	s.watches.Detach(c.Conn)
	s.mu.Lock()
	up := s.conn == c
	lasted := up && s.clock.Stamp().Sub(c.upAt) >= time.Second
	if up {
		s.disconnectedLocked(err)
	}
	if up && errors.Is(err, link.ErrSilent) {
		s.lease.GaveUpSilent()
	}
	if s.latest == c {
		s.lease.ReattachFailed(errors.Is(err, failure.ErrUnanswered))
	}
	s.mu.Unlock()
	if lasted {
		s.dialer.Good() // before failed: this failure is the first of a new search
	}
	s.dialer.Failed(c.Server, err)
}

// Notified takes a notification. Servers before 3.9 send no zxid: the event may then be later than
// any zxid that we can name to the next server, and that server may not have seen it yet.
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

func (c *connection) Heard(at time.Time) {
	c.s.mu.Lock()
	c.s.lease.BytesArrived(at)
	c.s.mu.Unlock()
}

func (c *connection) Spawn(fn func()) bool { return c.s.spawn(fn) }

// CredentialsRefused ends the session, since every server would refuse the credentials.
func (c *connection) CredentialsRefused(err error) { c.s.end(err) }
func (c *connection) NotClosed(err error)          { c.s.dialer.Failed(c.Server, err) }

// Replied counts the reply to r, with the verdict code, which arrived at time at. An error gives up
// c.
func (c *connection) Replied(
	r *pipeline.Request, header wire.ReplyHeader, code int32, at time.Time,
) error {
	err := c.replied(r, header, code, at)
	if err == nil && r.Op != wire.OpPing {
		c.s.watches.Answered(c.Conn, header.Zxid)
	}
	return err
}

func (c *connection) replied(
	r *pipeline.Request, header wire.ReplyHeader, code int32, at time.Time,
) error {
	s := c.s
	if code == wire.CodeSessionExpired {
		s.end(failure.ErrExpired)
		return failure.ErrExpired
	}
	if header.Code == wire.CodeAuthRequired && r.Op != wire.OpSASL {
		err := fmt.Errorf("%w: the server enforces authentication, of a kind that was not given",
			failure.ErrAuth)
		s.end(err)
		return err
	}
	if code == wire.CodeSessionMoved {
		return failure.Of(code)
	}
	if r.Op == wire.OpAuth || r.Op == wire.OpSASL || r.Op == wire.OpClose ||
		code == wire.CodeUnreadable {
		// credentials do not touch the session, close ends it, and an unreadable reply proves
		// nothing
		return nil
	}
	isWrite := wasAcknowledgedByMajority(r.Op, header.Zxid, code)
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.Op != wire.OpPing {
		s.zxid = max(s.zxid, header.Zxid)
		s.unseen = s.unseen && header.Zxid <= 0
	}
	s.lease.Acknowledge(r.Sent, at, isWrite)
	if isWrite {
		c.lastWrite = clock.Later(c.lastWrite, r.Sent)
	}
	return nil
}

// wasAcknowledgedByMajority reports whether a reply with this zxid and verdict proves that the
// leader had the request, and a majority has its outcome. A refusal proves that too if the last
// request processor has made it. One by a follower's first, as with enableEagerACLCheck, has no
// zxid.
func wasAcknowledgedByMajority(op int32, zxid int64, code int32) bool {
	const lastRefusal = -111 // of those that a write may meet, which are CodeNoNode and below
	isWrite := wire.ThroughLeader(op) && op != wire.OpSync
	isRefusal := lastRefusal <= code && code <= wire.CodeNoNode
	return isWrite && zxid > 0 && (code == wire.CodeOK || isRefusal)
}
