package zktest

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/binary"
	"slices"
	"sync/atomic"
	"time"
)

// Sessions live in the leader, whoever serves their clients. What keeps one alive is each request and each ping
// (touchLocked); what ends it is its client (closeSession), the clock, or the test (Expire), and all three end in
// endSessionLocked, one transaction that takes its ephemerals along.
//
// The clock is that of the process, read as the distance from the server's start, and cut into ticks. A session's
// expiry is always at the end of a tick. So a test in a bubble can say to the nanosecond when it will be.

// session is what the leader knows of one. All of it is guarded by the server's lock.
type session struct {
	id       int64
	timeout  time.Duration // as last negotiated
	expires  time.Duration // the end of its bucket, on the server's clock
	owner    *Member       // where its client was last seen; writes from elsewhere are refused
	conn     *conn         // the latest connection; nil while the client is away
	latest   int64         // that connection's number, also while the client is away
	requests map[Op]int
	notified int
}

// serverNumber keeps the session ids of all servers in one process apart: a client that comes back to the wrong one
// must not find a stranger's session.
var serverNumber atomic.Int64

// firstSession puts the server's number in the top byte and the time in the next five. 0xff is left out: owners
// with that byte are TTL nodes.
func firstSession(now time.Time) int64 {
	n := (serverNumber.Add(1)-1)%120 + 1
	return n<<56 | int64(uint64(now.UnixMilli())<<24>>8)
}

// password derives a session's password from its id, so that nothing needs to be kept.
func (s *Server) password(id int64) []byte {
	if s.opt.dialect.keeper {
		return make([]byte, 16)
	}
	h := sha256.New()
	h.Write(s.secret[:])
	h.Write(binary.BigEndian.AppendUint64(nil, uint64(id)))
	return h.Sum(nil)[:16]
}

// passwordIs checks a claim to a session. Nobody has session 0.
func (s *Server) passwordIs(id int64, pw []byte) bool {
	return id != 0 && subtle.ConstantTimeCompare(pw, s.password(id)) == 1
}

// clampTimeoutLocked negotiates. What the client asks for only ever moves to the nearer bound.
func (m *Member) clampTimeoutLocked(ms int32) time.Duration {
	return min(max(time.Duration(ms)*time.Millisecond, m.minTimeout), m.maxTimeout)
}

// bucket is the moment at which a session touched now expires: sessions go in batches, at the first full tick
// after their timeout, which leaves each between zero and one tick longer than promised, never less.
func (s *Server) bucket(now time.Time, timeout time.Duration) time.Duration {
	t := now.Sub(s.born).Truncate(time.Millisecond) + timeout
	return (t/s.opt.tick + 1) * s.opt.tick
}

// touchLocked notes a sign of life. It reports false if there is no such session any more.
func (s *Server) touchLocked(id int64, timeout time.Duration) bool {
	ss := s.sessions[id]
	if ss == nil {
		return false
	}
	// The deadline only depends on the latest touch; a shorter timeout may bring it nearer.
	b := s.bucket(time.Now(), timeout)
	if b < ss.expires {
		defer s.poke() // the client came back with a shorter timeout: the clock may sleep too long
	}
	ss.expires = b
	return true
}

// openSessionLocked begins a session; like any write it takes a zxid.
func (s *Server) openSessionLocked(c *conn, timeout time.Duration) *session {
	ss := &session{id: s.nextSession, timeout: timeout, owner: c.member, conn: c, latest: c.number, requests: map[Op]int{}}
	s.nextSession++
	ss.expires = s.bucket(time.Now(), timeout)
	s.sessions[ss.id] = ss
	s.commitLocked(c.member, nil, 0)
	s.poke()
	return ss
}

// clock expires sessions and sweeps containers. It sleeps until the next moment at which anything can be due, so
// that an idle server costs nothing and a synctest bubble can jump. Owned by the server; ends with s.done.
func (s *Server) clock() {
	defer s.wg.Done()
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		wait := s.runDue()
		timer.Reset(wait)
		select {
		case <-timer.C:
		case <-s.poked:
		case <-s.done:
			return
		}
	}
}

// runDue does what is due and returns how long nothing will be.
func (s *Server) runDue() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stillLocked() {
		return 1000 * time.Hour // restart pokes
	}
	now := time.Now()
	at := now.Sub(s.born)
	for _, ss := range s.sortedSessionsLocked() {
		if ss.expires <= at { // all of a bucket, in the order of their ids, each in a transaction of its own
			s.log.Info("zktest: session expired", "session", ss.id)
			s.endSessionLocked(s.leader, ss.id)
		}
	}
	if at >= s.nextSweep {
		s.sweepLocked(now)
		s.nextSweep = (at/s.opt.sweep + 1) * s.opt.sweep
	}
	// With nothing to expire it sleeps for weeks, not for ever: timers want a number.
	wait := 1000 * time.Hour
	for _, ss := range s.sessions {
		wait = min(wait, ss.expires-at)
	}
	if len(s.leader.tree.expiring) > 0 {
		wait = min(wait, s.nextSweep-at)
	}
	return max(wait, 0)
}

// StopClock keeps the ensemble from ending sessions and removing containers until StartClock, however much time passes:
// so it is while no leader serves. Clients are served on.
func (s *Server) StopClock() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopped = true
}

// StartClock ends StopClock, as a new leader begins: every session has its whole timeout again.
func (s *Server) StartClock() {
	s.mu.Lock()
	defer s.mu.Unlock()
	wasStill := s.stillLocked()
	s.stopped = false
	s.restartLocked(wasStill)
}

// stillLocked reports whether the clock stands still: nobody leads, or the test stopped it.
func (s *Server) stillLocked() bool {
	return s.stopped || !slices.ContainsFunc(s.members, func(m *Member) bool { return !m.down })
}

// restartLocked gives every session its whole timeout if the clock stood still and runs now.
func (s *Server) restartLocked(wasStill bool) {
	if !wasStill || s.stillLocked() {
		return
	}
	for _, ss := range s.sessions {
		ss.expires = s.bucket(time.Now(), ss.timeout)
	}
	s.poke()
}

// poke wakes the clock because something may now be due earlier than it thinks.
func (s *Server) poke() {
	select {
	case s.poked <- struct{}{}:
	default:
	}
}
