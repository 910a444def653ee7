package session

import (
	"errors"
	"fmt"
	"time"

	"github.com/zklock/locker/internal/session/failure"
	"github.com/zklock/locker/internal/session/internal/wire"
)

// What a conn reports to its session, without conn.mu held.

// mayConnect checks the connect request for session id that is about to be sent, and returns the last zxid seen. After an
// expiry the driver asks for a new session by itself, and would run in it what was meant for the old one: that is refused.
func (s *Session) mayConnect(id int64, sent time.Time) (zxid int64, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.Err(); err != nil {
		return 0, err
	}
	if id != s.id {
		return 0, fmt.Errorf("session: the driver asks for session %#x, and this one is %#x", id, s.id)
	}
	if id != 0 {
		s.lease.Reattach(sent)
	}
	return s.zxid, nil
}

// shaken takes the answer to the handshake that was sent at sent.
func (s *Session) shaken(r wire.ConnectResponse, sent time.Time) error {
	if ours := s.ID(); ours != 0 && r.ID != ours {
		err := failure.ErrExpired
		if r.ID != 0 { // as from a server that can't resume ours; the new one, without znodes, is left to expire
			err = fmt.Errorf("%w: a server has answered with session %#x in place of %#x", failure.ErrLeaseOver, r.ID, ours)
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
	fresh := s.id == 0
	if err := s.lease.MayGrant(granted, fresh); err != nil {
		if !fresh {
			s.lease.Refuse(sent, granted)
		}
		return err
	}
	s.id, s.granted = r.ID, granted
	s.lease.Begin(sent, granted, fresh)
	return nil
}

// connUp opens c for requests, after those that restore the watches. False: the session is over, or c has failed. If c fails
// meanwhile, connDown waits for mu and takes c out of use.
func (s *Session) connUp(c *conn) bool {
	if !s.watches.attach(c) {
		return false
	}
	for s.watches.restore(c) { // mu is free, and run writes nothing meanwhile
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.Err() != nil || !c.move(connEstablished) {
		return false
	}
	if s.conn != nil {
		s.disconnectedLocked(s.conn.failure()) // it has failed too, and its connDown has not run yet
	}
	if s.unseen { // before the calls' requests: reads behind it are not older than the event
		c.enqueue(&request{op: wire.OpSync, name: "sync", repeatable: true, urgent: true,
			frame: wire.AppendString(wire.AppendHeader(nil, wire.OpSync), s.join("/"))})
	}
	s.connectedLocked(c)
	return true
}

func (s *Session) connDown(c *conn, err error) {
	s.watches.detach(c)
	s.mu.Lock()
	up := s.conn == c
	lasted := up && s.clock.Stamp().Sub(c.upAt) >= time.Second
	if up {
		s.disconnectedLocked(err)
	}
	if up && errors.Is(err, errSilent) {
		s.lease.Silent()
	}
	if s.latest == c {
		s.lease.Unanswered(errors.Is(err, failure.ErrUnanswered))
	}
	s.mu.Unlock()
	if lasted {
		s.dialer.good() // before failed: this failure is the first of a new search
	}
	s.dialer.failed(c.server, err)
}

// notified takes a notification's zxid. Servers before 3.9 send none: the event may then be later than any zxid that we can
// name to the next server, and that server may not have seen it yet.
func (s *Session) notified(zxid int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if zxid > 0 {
		s.zxid = max(s.zxid, zxid)
	} else {
		s.unseen = true
	}
}

func (s *Session) hear(at time.Time) {
	s.mu.Lock()
	s.lease.Hear(at)
	s.mu.Unlock()
}
