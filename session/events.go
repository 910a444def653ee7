package session

import (
	"errors"
	"fmt"
	"time"
)

// What a link tells its session. None of these is called with a lock held; each takes mu for itself.

// mayConnect checks the connect request that the driver is about to send at the instant sent, for the session id, and
// returns the last zxid that was seen. After an expiry the driver asks for a new session by itself and would run in it
// what was meant for the old one: it does not get it.
func (s *Session) mayConnect(id int64, sent time.Time) (zxid int64, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.Err(); err != nil {
		return 0, err
	}
	if id != s.id {
		return 0, fmt.Errorf("session: driver asks for session %#x beside %#x", id, s.id)
	}
	if id != 0 {
		s.lease.reattach(sent)
		s.moveDeadlineLocked()
	}
	return s.zxid, nil
}

// moveDeadlineLocked has the deadline follow the lease.
func (s *Session) moveDeadlineLocked() {
	s.deadline.set(s.lease.end(s.held > 0), s.lease.timeout/lookPart)
}

// mayGrant checks the timeout that a server grants.
func (s *Session) mayGrant(granted time.Duration) error {
	switch {
	case granted > maxTimeout:
		return fmt.Errorf("granted a session timeout of %v, which is over %v", granted, maxTimeout)
	case granted < s.cfg.tick:
		return fmt.Errorf("granted a session timeout of %v, which is shorter than a server tick of %v: "+
			"ask for at least two ticks, and give the ensemble's tickTime as the server tick", granted, s.cfg.tick)
	}
	return nil
}

// shaken takes the server's half of a handshake that was sent at sent.
func (s *Session) shaken(r connectResponse, sent time.Time) error {
	s.mu.Lock()
	if err := s.Err(); err != nil {
		s.mu.Unlock()
		return err
	}
	granted := time.Duration(r.timeoutMs) * time.Millisecond
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
	if err := s.mayGrant(granted); err != nil {
		if s.id != 0 { // it is what the leader counts from now on
			s.lease.shorten(sent.Add(granted))
			s.moveDeadlineLocked()
		}
		s.mu.Unlock()
		return err
	}
	fresh := s.id == 0
	at := s.clock.stamp()
	s.id, s.granted, s.shook = r.id, granted, at.Sub(sent)
	s.lease.begin(sent, at, granted, s.cfg.tick, fresh)
	s.moveDeadlineLocked()
	s.mu.Unlock()
	return nil
}

// linkUp opens l for requests, with the watches restored in front of them. False: the session is over, or l is dead
// already. A link that dies from here on finds itself entered, since fail marks it before it calls linkDown.
func (s *Session) linkUp(l *link) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.Err() != nil || l.failure() != nil {
		return false
	}
	if s.link != nil {
		s.detach(s.link, s.link.failure()) // dead too, but whoever failed it has not come to tell
	}
	s.watches.restore(l, s.zxid)
	if s.unseen { // before everybody else's requests: what is read behind it is not older than what an event has told
		l.enqueue(&call{op: opSync, name: "sync", read: true, urgent: true,
			frame: appendString(appendHeader(nil, opSync), s.join("/"))})
	}
	s.asked, s.beaten = time.Time{}, time.Time{} // what the handshake proved is still to be confirmed
	if now := s.clock.now(); s.held > 0 && !s.beatDueLocked(now).After(now) {
		if c := s.beatLocked(now); c != nil {
			l.enqueue(c) // before everybody else's requests
		}
	}
	s.link, s.state, s.upSince = l, Connected, s.clock.stamp()
	close(s.ready)
	s.notes.add(Change{State: Connected, ID: s.id, Addr: l.server, Timeout: s.granted})
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
	if s.dialled == l && s.lease.unanswered(errors.Is(err, errUnanswered)) {
		s.moveDeadlineLocked()
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
// the timeout, or, where that is less, with what leaves who holds something time to get round to another server while the
// lease lasts. When the connection before was given up for silence as well, and nothing that went through the leader has
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
	least := s.promptLocked()
	return max(least, min(least<<s.stalls, most))
}

// promptLocked is how long a reply takes at most when all is well.
func (s *Session) promptLocked() time.Duration {
	if s.lease.timeout == 0 {
		return patience(s.cfg.timeout)
	}
	limit := patience(s.lease.timeout)
	if s.held > 0 {
		limit = min(limit, max(s.lease.steady()-s.lease.timeout/heldPingPart, s.lease.timeout/10))
	}
	return limit
}

// errThin says that the connection was given up for a new one, though the server answers.
var errThin = errors.New("writes take too long to confirm the lease on one connection")

// renewLocked reports whether only a new connection still confirms the lease in time. Where a write takes long, what a
// heartbeat of now would confirm is so old, since a write has to follow an acknowledgement at some distance, that the
// answer to the next would come too late. A handshake needs no distance: the first write behind it confirms it.
func (s *Session) renewLocked(now time.Time) bool {
	t := s.lease.timeout
	return s.held > 0 && s.link != nil && s.took > t/8 && now.Sub(s.upSince) > s.took &&
		s.lease.prospect(now).Sub(now) < s.took+max(s.lease.beatEvery(), s.shook)+t/lookPart
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
	s.state = Disconnected
	if s.Err() == nil {
		s.notes.add(Change{State: Disconnected, ID: s.id, Addr: l.server, Err: err})
	}
}

// replied counts the reply to c, which arrived at at; code is its verdict. An error gives up the link.
func (s *Session) replied(c *call, head replyHeader, code int32, at time.Time) error {
	if code == codeSessionExpired {
		s.end(ErrExpired)
		return ErrExpired
	}
	if head.code == codeAuthRequired {
		err := fmt.Errorf("%w: the server enforces authentication, of a kind that was not given (SASL?)", ErrAuth)
		s.end(err)
		return err
	}
	if code == codeSessionMoved {
		return errOf(code)
	}
	if c.op == opAuth || c.op == opClose || code == codeUnreadable {
		return nil // the first is answered without touching the session, the second ends it, the last may be anything
	}
	// Of the refusals, only those of the leader's own request processor prove that it was asked.
	leader := throughLeader(c.op) && c.op != opSync && (code == codeOK || code <= codeNoNode && code >= -111)
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.op != opPing {
		s.zxid = max(s.zxid, head.zxid)
		s.unseen = s.unseen && head.zxid <= 0
	}
	s.lease.ack(c.sent, at, leader)
	s.moveDeadlineLocked()
	if leader {
		s.asked, s.took = c.sent, at.Sub(c.sent)
		if s.took < s.promptLocked() {
			s.stalls = 0
		}
	}
	return nil
}

// notified takes the zxid of a notification. Servers before 3.9 tell none: then what it tells of may be later than
// anything that we could name to the next server, which may lag behind it.
func (s *Session) notified(zxid int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if zxid > 0 {
		s.zxid = max(s.zxid, zxid)
	} else {
		s.unseen = true
	}
}

// hear notes that bytes of a long reply have arrived at at.
func (s *Session) hear(at time.Time) {
	s.mu.Lock()
	s.lease.hear(at)
	s.moveDeadlineLocked()
	s.mu.Unlock()
}

// verdict is what a reply says of its request: the header's code or, since a multi's header says OK also when one of its
// operations was refused, the first code of theirs that is neither OK nor a mere consequence of another's. "Session
// expired" and "session moved" come before all others: for a multi servers say them nowhere else.
func verdict(op int32, header int32, body []byte) int32 {
	if op != opMulti || header != codeOK {
		return header
	}
	d := decoder{b: body}
	first := codeOK
	for {
		op, done, code := d.int(), d.bool(), d.int()
		switch {
		case d.err != nil:
			return codeUnreadable // whoever waits for it finds that out
		case done:
			return first
		case op == opCreate:
			d.skipString()
		case op == opCreate2:
			d.skipString()
			d.stat()
		case op == opSetData:
			d.stat()
		case op == opError:
			code = d.int() // as in front of it
		}
		switch {
		case code == codeSessionExpired, code == codeSessionMoved:
			return code
		case first == codeOK && code != codeInconsistent:
			first = code
		}
	}
}

// codeUnreadable is no code of a server's: the reply to a multi can't be read.
const codeUnreadable int32 = -1 << 30

// wake makes the keeper look again.
func (s *Session) wake() {
	select {
	case s.kick <- struct{}{}:
	default:
	}
}
