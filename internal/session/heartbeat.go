package session

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/zklock/locker/internal/session/internal/wire"
)

// A session has one heartbeat, however many locks it holds. It gives up a conn whose server has owed an answer for too long
// (patience), or on which the lease can't be confirmed in time (renewLocked). It sends pings, which cost the leader nothing,
// and while the session is retained the writes that confirm the lease (retain.go: beatLocked, beatDueLocked).

// Fractions of the timeout.
const (
	retainedPingPart = 20 // between pings while the session is retained: a write has something recent to confirm
	idlePingPart     = 6  // else between pings: the driver's, at a third, come too late for a hold to begin
	minPart          = 8  // least lease with which a hold begins
	freshPart        = 4  // lease with which a hold begins without a request
	lookPart         = 20 // longest time between two runs of the heartbeat
)

// beat does what is due on c, which is open, and returns the time until more is due. conn.run calls it then.
func (c *conn) beat() time.Duration {
	s := c.s
	s.mu.Lock()
	now := s.clock.Now()
	wait, every := s.lease.timeout/lookPart, s.lease.timeout/idlePingPart
	if s.retentions > 0 {
		every = s.lease.timeout / retainedPingPart
	}
	if c.beatDueLocked(now) <= 0 {
		c.enqueue(c.beatLocked(now))
	}
	next, renew := c.beatDueLocked(now), c.renewLocked(now)
	s.mu.Unlock()
	unsent, unheard := c.quiet(now)
	limit := s.patience()
	switch {
	case renew:
		c.fail(errThin)
	case unheard >= limit:
		c.fail(fmt.Errorf("%w within %v", errSilent, limit))
	case unsent >= every: // also while a reply is due: the server has to hear of us, however long the reply takes
		c.enqueue(newPing())
		unsent = 0
	}
	return min(wait, limit-unheard, max(next, 0), every-unsent) + time.Millisecond
}

func newPing() *request {
	return &request{op: wire.OpPing, name: "ping", repeatable: true, urgent: true, frame: wire.AppendHeader(make([]byte, 0, 12), wire.OpPing)}
}

var errSilent = errors.New("no reply")

// maxStalls bounds how often patience doubles.
const maxStalls = 4

// patience bounds the wait for a connected server's reply before another server is tried. It begins with a quarter of the
// timeout, or less if a holder needs time to reach another server while its lease lasts, and is longer than the latest write
// took. If the connection before was given up for silence too, and the leader has answered nothing promptly since, the
// server is not to blame: writes take that long on every server. So patience doubles each time, up to half the timeout while
// the session is retained, which leaves time for another server, and else up to three quarters, since the session itself
// would end.
func (s *Session) patience() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := cmp.Or(s.lease.timeout, s.cfg.Timeout)
	most := t - t/4
	if s.retentions > 0 {
		most = t / 2
	}
	least := s.promptLocked()
	return max(least, min(max(least<<s.stalls, s.writeTook+s.writeTook/4), most))
}

// promptLocked returns how long a reply takes at most when all is well.
func (s *Session) promptLocked() time.Duration {
	limit := firstPatience(cmp.Or(s.lease.timeout, s.cfg.Timeout))
	if s.retentions > 0 {
		limit = min(limit, max(s.lease.steady()-s.lease.timeout/retainedPingPart, s.lease.timeout/10))
	}
	return limit
}

var errThin = errors.New("writes take too long to confirm the lease on one connection")

// renewLocked reports whether only a new connection can still confirm the lease in time. A write's reply confirms only
// acknowledgements that came at least lease.settle before the write was sent. If writes take long, these are so old that the
// lease would be over before the heartbeat after the next is answered. A handshake needs no such interval: the first write
// after it confirms it, if there is time for both.
func (c *conn) renewLocked(now time.Time) bool {
	s, shook := c.s, c.upAt.Sub(c.began)
	t := s.lease.timeout
	return s.retentions > 0 && s.writeTook > t/10 && now.Sub(c.upAt) > s.writeTook && s.lease.end(true).Sub(now) > shook+s.writeTook &&
		s.lease.prospect(now).Sub(now) < s.writeTook+max(s.lease.beatEvery(), shook)+t/lookPart
}

func firstPatience(timeout time.Duration) time.Duration { return max(timeout/4, 100*time.Millisecond) }
