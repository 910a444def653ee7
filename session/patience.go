package session

import (
	"cmp"
	"errors"
	"time"
)

// errSilent says that a connected server did not answer for as long as it had.
var errSilent = errors.New("no reply")

// maxStalls bounds by how often patience doubles.
const maxStalls = 4

// patience bounds the wait for the reply of a connected server before another one is tried. It begins with a quarter of
// the timeout, or less where a holder needs time to reach another server while its lease lasts. When the connection before
// was given up for silence as well, and nothing that went through the leader has been answered promptly since, the server
// is not to blame: writes take that long everywhere, and on yet another server they would not be answered either. So
// patience doubles each time: while something is held, up to half the timeout, which leaves time for another server, and
// else up to three quarters, where the session itself would end.
func (s *Session) patience() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := cmp.Or(s.lease.timeout, s.cfg.Timeout)
	if s.unresumable {
		return t // there is no other server to try
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
	limit := firstPatience(cmp.Or(s.lease.timeout, s.cfg.Timeout))
	if s.held > 0 {
		limit = min(limit, max(s.lease.steady()-s.graces.most()-s.lease.timeout/heldPingPart, s.lease.timeout/10))
	}
	return limit
}

// errThin says that the connection was given up for a new one, though the server answers.
var errThin = errors.New("writes take too long to confirm the lease on one connection")

// renewLocked reports whether only a new connection can still confirm the lease in time. A write's reply confirms only
// acknowledgements that came at least lease.settle before the write was sent. Where writes take long, these are so old that
// the lease would be over before the heartbeat after the next is answered. A handshake needs no such interval: the first
// write after it confirms it.
func (s *Session) renewLocked(now time.Time) bool {
	t := s.lease.timeout
	return s.held > 0 && s.conn != nil && !s.unresumable && s.writeTook > t/8 && now.Sub(s.connectedAt) > s.writeTook &&
		s.lease.prospect(now).Sub(now)-s.graces.most() < s.writeTook+max(s.lease.beatEvery(), s.handshakeTook)+t/lookPart
}

// leaseLeft returns for how long the lease lasts, and whether a lock is held by it.
func (s *Session) leaseLeft() (remaining time.Duration, held bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lease.end(true).Sub(s.clock.now()), s.held > 0
}

// firstPatience is where the bound of the wait for a connected server's reply begins: see Session.patience.
func firstPatience(timeout time.Duration) time.Duration { return max(timeout/4, 100*time.Millisecond) }
