package session

import (
	"errors"
	"fmt"
	"time"
)

// What a link tells its session. None of these is called with a lock held; each takes mu for itself.

// mayConnect checks the connect request that the driver is about to send, for the session id, and returns the last
// zxid that was seen. After an expiry the driver asks for a new session by itself and would run in it what was meant
// for the old one: it does not get it.
func (s *Session) mayConnect(id int64) (zxid int64, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.state == Over {
		return 0, s.Err()
	}
	if id != s.id {
		return 0, fmt.Errorf("session: driver asks for session %#x beside %#x", id, s.id)
	}
	return s.zxid, nil
}

// shaken takes the server's half of a handshake that was sent at sent.
func (s *Session) shaken(r connectResponse, sent time.Time) error {
	s.mu.Lock()
	if s.state == Over {
		s.mu.Unlock()
		return s.Err()
	}
	switch {
	case r.id == 0 && s.id != 0:
		s.mu.Unlock()
		s.end(ErrExpired)
		return ErrExpired
	case r.id == 0 || s.id != 0 && r.id != s.id:
		id := s.id
		s.mu.Unlock()
		return fmt.Errorf("%w: handshake for session %#x answered with %#x", ErrGarbled, id, r.id)
	}
	fresh := s.id == 0
	s.id = r.id
	s.lease.begin(sent, s.clock.stamp(), time.Duration(r.timeoutMs)*time.Millisecond, s.cfg.tick, fresh)
	s.mu.Unlock()
	return nil
}

// linkUp opens l for requests, with the watches restored in front of them. False: the session is over, or l is dead
// already. A link that dies from here on finds itself entered, since fail marks it before it calls linkDown.
func (s *Session) linkUp(l *link) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.state == Over || l.failure() != nil {
		return false
	}
	if s.link != nil {
		s.detach(s.link, s.link.failure()) // dead too, but whoever failed it has not come to tell
	}
	s.watches.restore(l, s.zxid)
	s.asked = time.Time{} // what the handshake proved is still to be confirmed
	if now := s.clock.now(); s.held > 0 && !s.confirmDue(now).After(now) {
		l.confirm() // before everybody else's requests
	}
	s.link, s.state, s.upSince = l, Connected, s.clock.stamp()
	close(s.ready)
	s.notes.add(Change{State: Connected, ID: s.id, Addr: l.server, Timeout: s.lease.timeout})
	s.wake()
	return true
}

// linkDown notes that l is dead, and why.
func (s *Session) linkDown(l *link, err error) {
	s.mu.Lock()
	up := s.link == l
	lasted := up && s.clock.stamp().Sub(s.upSince) >= time.Second
	if up {
		s.detach(l, err)
	}
	if up && errors.Is(err, errSilent) {
		s.stalls = min(s.stalls+1, maxStalls)
	}
	s.mu.Unlock()
	if lasted {
		s.hosts.good() // before the failure is noted: it is the first of a new search
	}
	s.hosts.failed(l.server, err)
}

// errSilent says that a connected server did not answer for as long as it had.
var errSilent = errors.New("no reply")

// maxStalls bounds by how often patience doubles.
const maxStalls = 4

// patience bounds the wait for the reply of a connected server before another one is tried. It begins with a quarter of
// the timeout. When the connection before was given up for silence as well, and nothing that went through the leader has
// been answered promptly since, then it is not the server: writes take that long everywhere, and who changes the server
// again will not see the end of his. So it doubles with each, up to where a lease that somebody needs would have no time
// left for another server, and else to where the session itself would end.
func (s *Session) patience() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.cfg.timeout
	if s.lease.timeout > 0 {
		t = s.lease.timeout
	}
	most := t - t/4
	if s.held > 0 {
		most = t / 2
	}
	least := patience(t)
	return max(least, min(least<<s.stalls, most))
}

// stake returns for how long the lease lasts, and whether somebody holds something by it.
func (s *Session) stake() (left time.Duration, held bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lease.end(true).Sub(s.clock.now()), s.held > 0
}

// detach takes the link out of use. The caller holds mu.
func (s *Session) detach(l *link, err error) {
	s.watches.detach()
	s.link, s.ready = nil, make(chan struct{})
	if s.state != Over {
		s.state = Disconnected
		s.notes.add(Change{State: Disconnected, ID: s.id, Addr: l.server, Err: err})
	}
}

// replied counts the reply to c, which arrived at at. An error gives up the link.
func (s *Session) replied(c *call, head replyHeader, at time.Time) error {
	if head.code == codeSessionExpired {
		s.end(ErrExpired)
		return ErrExpired
	}
	if head.code == codeSessionMoved {
		return errOf(head.code)
	}
	if c.op == opAuth || c.op == opClose {
		return nil // the first is answered without touching the session, the second ends it
	}
	// Of the refusals, only those of the leader's own request processor prove that it was asked.
	leader := throughLeader(c.op) && c.op != opSync && (head.code == codeOK || head.code <= codeNoNode && head.code >= -111)
	s.mu.Lock()
	defer s.mu.Unlock()
	if head.zxid > s.zxid && c.op != opPing {
		s.zxid = head.zxid
	}
	s.lease.ack(c.sent, at, leader)
	if leader {
		s.asked = c.sent
		if at.Sub(c.sent) < patience(s.lease.timeout) {
			s.stalls = 0
		}
	}
	return nil
}

// hear notes that bytes of a long reply have arrived at at.
func (s *Session) hear(at time.Time) {
	s.mu.Lock()
	s.lease.hear(at)
	s.mu.Unlock()
}

// wake makes the keeper look again.
func (s *Session) wake() {
	select {
	case s.kick <- struct{}{}:
	default:
	}
}
