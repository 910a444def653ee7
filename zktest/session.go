package zktest

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/binary"
	"slices"
	"sync/atomic"
	"time"

	"github.com/zklock/locker/zktest/fault"
)

// Sessions are the leader's, whichever member serves their clients. Each request and each ping
// keeps one alive (touchLocked); its client (closeSession), the clock, or the test (Expire) ends
// it, in each case by endSessionLocked, one transaction that also deletes its ephemerals.
//
// The clock is the process's, read as the time since the server's start and divided into ticks. A
// session always expires at the end of a tick, so a test in a bubble can predict the instant to the
// nanosecond.

// session is the leader's state of one session, which lives as long as it is in Server.sessions.
// The server's lock guards all of it.
type session struct {
	id       int64
	timeout  time.Duration // as last negotiated
	expires  time.Duration // the end of its bucket, on the server's clock
	owner    *Member       // where the client last connected; writes from elsewhere are refused
	conn     *conn         // the latest connection; nil while the client is away
	latest   int64         // that connection's number, also while the client is away
	requests map[fault.Op]int
	notified int
}

// serverNumber separates the session ids of all servers in one process: a client that reconnects to
// the wrong one must not find another client's session.
var serverNumber atomic.Int64

// firstSession returns a server's first session id. The top byte is the server's number, which is
// never 0xff (owners with that byte are TTL nodes), and the next five are the time.
func firstSession(now time.Time) int64 {
	n := (serverNumber.Add(1)-1)%120 + 1
	return n<<56 | int64(uint64(now.UnixMilli())<<24>>8)
}

// passwordSize is the length of a session's password, in bytes.
const passwordSize = 16

// password derives a session's password from its id, so that nothing has to be stored.
func (s *Server) password(id int64) []byte {
	h := sha256.New()
	h.Write(s.secret[:])
	h.Write(binary.BigEndian.AppendUint64(nil, uint64(id)))
	return h.Sum(nil)[:passwordSize]
}

// passwordIs reports whether pw is the password of a session. Session 0 belongs to no client.
func (s *Server) passwordIs(id int64, pw []byte) bool {
	return id != 0 && subtle.ConstantTimeCompare(pw, s.password(id)) == 1
}

// clampTimeoutLocked returns the session timeout that a client gets: the one that it asks for, in
// milliseconds, or the nearer of the member's bounds.
func (m *Member) clampTimeoutLocked(ms int32) time.Duration {
	return min(max(time.Duration(ms)*time.Millisecond, m.minTimeout), m.maxTimeout)
}

// bucket returns the instant, on the server's clock, at which a session that is touched now
// expires. Sessions expire in batches, at the first full tick after their timeout. So each lasts up
// to one tick longer than promised, and never less.
func (s *Server) bucket(now time.Time, timeout time.Duration) time.Duration {
	t := now.Sub(s.born).Truncate(time.Millisecond) + timeout
	return (t/s.opt.tick + 1) * s.opt.tick
}

// touchLocked records a sign of life of a session: it now expires after timeout, whatever was due
// before. It returns false if the session no longer exists.
func (s *Server) touchLocked(id int64, timeout time.Duration) bool {
	ss := s.sessions[id]
	if ss == nil {
		return false
	}
	before := ss.expires
	ss.expires = s.bucket(time.Now(), timeout)
	if ss.expires < before { // the client has reconnected with a shorter timeout
		s.poke()
	}
	return true
}

// openSessionLocked creates a session for the client of a connection. Like any write it takes a
// zxid.
func (s *Server) openSessionLocked(c *conn, timeout time.Duration) *session {
	ss := &session{id: s.nextSession, timeout: timeout, owner: c.member, conn: c, latest: c.number,
		requests: map[fault.Op]int{}}
	s.nextSession++
	ss.expires = s.bucket(time.Now(), timeout)
	s.sessions[ss.id] = ss
	s.commitLocked(c.member, nil, 0)
	s.poke()
	return ss
}

// idle is how long the clock sleeps when nothing can become due: a timer needs a finite duration.
const idle = 1000 * time.Hour

// clock is the goroutine that expires sessions and sweeps containers. The server owns it, and it
// ends when done is closed. It sleeps until the next instant at which anything can be due, so that
// an idle server costs nothing and a synctest bubble can jump. What is due earlier than expected
// pokes it.
func (s *Server) clock() {
	defer s.wg.Done()
	timer := time.NewTimer(idle)
	defer timer.Stop()
	for {
		timer.Reset(s.runDue())
		select {
		case <-timer.C:
		case <-s.poked:
		case <-s.done:
			return
		}
	}
}

// runDue does what is due, and returns the time until anything is due next.
func (s *Server) runDue() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.clockStoppedLocked() {
		return idle // restartClockLocked pokes the clock
	}
	now := time.Now()
	at := now.Sub(s.born)
	for _, ss := range s.sortedSessionsLocked() {
		if ss.expires <= at {
			s.log.Info("zktest: session expired", "session", ss.id)
			s.endSessionLocked(s.leader, ss.id)
		}
	}
	if at >= s.nextSweep {
		s.sweepLocked(now)
		s.nextSweep = (at/s.opt.sweep + 1) * s.opt.sweep
	}
	return s.untilDueLocked(at)
}

// untilDueLocked returns the time from at until a session may expire or a sweep find something.
func (s *Server) untilDueLocked(at time.Duration) time.Duration {
	wait := idle
	for _, ss := range s.sessions {
		wait = min(wait, ss.expires-at)
	}
	if len(s.leader.tree.expiring) > 0 {
		wait = min(wait, s.nextSweep-at)
	}
	return max(wait, 0)
}

// StopClock keeps the ensemble from ending sessions and removing containers until StartClock,
// however much time passes, as while there is no leader. Clients are still served.
func (s *Server) StopClock() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopped = true
}

// StartClock ends StopClock, as a new leader does: every session gets its whole timeout again.
func (s *Server) StartClock() {
	s.mu.Lock()
	defer s.mu.Unlock()
	wasStopped := s.clockStoppedLocked()
	s.stopped = false
	s.restartClockLocked(wasStopped)
}

// clockStoppedLocked reports whether the clock is stopped: no member is up, or the test stopped it.
func (s *Server) clockStoppedLocked() bool {
	return s.stopped || !slices.ContainsFunc(s.members, func(m *Member) bool { return !m.down })
}

// restartClockLocked gives every session its whole timeout again, if the clock runs now and was
// stopped before the caller's change.
func (s *Server) restartClockLocked(wasStopped bool) {
	if !wasStopped || s.clockStoppedLocked() {
		return
	}
	for _, ss := range s.sessions {
		ss.expires = s.bucket(time.Now(), ss.timeout)
	}
	s.poke()
}

// poke wakes the clock, because something may now be due earlier than it expects.
func (s *Server) poke() {
	select {
	case s.poked <- struct{}{}:
	default:
	}
}
