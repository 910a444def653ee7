package session

import (
	"fmt"
	"time"
)

// The heartbeat keeps a session's lease going:
//
//   - It gives up a conn whose server has owed an answer for too long (patience), or on which the lease can't be confirmed in
//     time (renewLocked).
//   - It sends a ping when we have sent nothing for a while, which costs the leader nothing.
//   - While something is held it sends a write, which confirms the lease, about a fifth of the timeout after the latest write
//     that has been acknowledged was sent: see beatDueLocked.
//
// A session has one heartbeat, however many locks it holds: a timer, Session.heartbeat, whose calls shutdown joins. The end of
// the lease is noticed elsewhere: see deadline.go.

// Fractions of the timeout.
const (
	heldPingPart = 20 // while something is held a ping this often, so that there is something recent for a write to confirm
	idlePingPart = 6  // else a ping this often: the driver pings at a third, when the lease is already too old to begin a hold
	minPart      = 8  // no hold begins with a lease shorter than this
	freshPart    = 4  // with one longer than this, it begins without asking
	lookPart     = 20 // the heartbeat looks at the clock this often at least
	gracePart    = 16 // a hold with a grace begins with that much more of the lease than its grace
)

// beatOnce is the function of the heartbeat's timer, and sets the timer again. Several may run at once: each does what is
// due at that time. One that starts when the session is over does nothing, so shutdown need not wait for it.
func (s *Session) beatOnce() {
	s.mu.Lock()
	if s.Err() != nil {
		s.mu.Unlock()
		return
	}
	s.bg.Add(1)
	s.mu.Unlock()
	defer s.bg.Done()
	woken := s.wakes.Load()
	s.heartbeat.Reset(s.beat())
	if s.wakes.Load() != woken { // wakeHeartbeat set the timer meanwhile, and the Reset above has undone that
		s.heartbeat.Reset(0)
	}
}

// wakeHeartbeat makes the heartbeat check now whether something is due.
func (s *Session) wakeHeartbeat() {
	s.wakes.Add(1)
	s.heartbeat.Reset(0)
}

// beat does what is due and returns for how long nothing will be.
func (s *Session) beat() time.Duration {
	s.mu.Lock()
	now := s.clock.now()
	if s.id == 0 {
		s.mu.Unlock()
		return time.Hour // the first connection wakes us
	}
	t, held, c := s.lease.timeout, s.held > 0, s.conn
	var confirm *request
	if at, due := s.beatDueLocked(now); c != nil && due && !at.After(now) {
		confirm = s.beatLocked(now)
	}
	next, due := s.beatDueLocked(now)
	renew := s.renewLocked(now)
	s.mu.Unlock()

	wait := t / lookPart
	if c == nil {
		return wait
	}
	if renew {
		c.fail(errThin)
		return wait
	}
	unsent, unheard, waiting := c.quiet(now)
	limit := s.patience()
	if waiting && unheard >= limit {
		c.fail(fmt.Errorf("%w within %v", errSilent, limit))
		return wait
	} else if waiting {
		wait = min(wait, limit-unheard)
	}
	if confirm != nil {
		c.enqueue(confirm)
	}
	every := t / idlePingPart
	if held {
		every = t / heldPingPart
	}
	if due {
		wait = min(wait, max(next.Sub(now), 0))
	}
	// Also while a reply is due: the server has to hear of us, however long its reply takes.
	if unsent >= every {
		c.enqueue(newPing())
		unsent = 0
	}
	wait = min(wait, every-unsent)
	return wait + time.Millisecond
}

// newPing returns a ping. No call waits for its reply.
func newPing() *request {
	return &request{op: opPing, name: "ping", repeatable: true, urgent: true, frame: appendHeader(make([]byte, 0, 12), opPing)}
}
