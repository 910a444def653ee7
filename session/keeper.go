package session

import (
	"fmt"
	"time"
)

// The keeper is the goroutine of a session that keeps its lease going: it gives up a link that does not answer, and
// sends heartbeats: a ping when the link has been silent, which costs the leader nothing, and, while something is held,
// a write about every fifth of the timeout, which confirms the lease (see retain.go). One serves a session, however
// many locks it holds. That the lease is over is not the keeper's to find out: see deadline.go.

// Fractions of the timeout.
const (
	heldPingPart = 20 // while something is held a ping this often, so that there is something recent for a write to confirm
	idlePingPart = 6  // else a ping this often: the driver's own, at a third, leave too old a lease to begin a hold with
	minPart      = 8  // no hold begins with a lease shorter than this
	freshPart    = 4  // with one longer than this, it begins without asking
	lookPart     = 20 // the keeper looks at the clock this often at least
)

// keep runs until the session is over.
func (s *Session) keep() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-s.ctx.Done():
			return
		case <-s.kick:
		case <-timer.C:
		}
		timer.Reset(s.beat())
	}
}

// beat does what is due and returns for how long nothing will be.
func (s *Session) beat() time.Duration {
	s.mu.Lock()
	now := s.clock.now()
	if s.id == 0 {
		s.mu.Unlock()
		return time.Hour // the first handshake wakes us
	}
	t, held, l := s.lease.timeout, s.held > 0, s.link
	var confirm *call
	if l != nil && held && !s.beatDueLocked(now).After(now) {
		confirm = s.beatLocked(now)
	}
	due, renew := s.beatDueLocked(now), s.renewLocked(now)
	s.mu.Unlock()

	wait := t / lookPart
	if l == nil {
		return wait
	}
	if renew {
		l.fail(errThin)
		return wait
	}
	silent, waiting := l.silence(now)
	limit := s.patience()
	if waiting && silent >= limit {
		l.fail(fmt.Errorf("%w within %v", errSilent, limit))
		return wait
	} else if waiting {
		wait = min(wait, limit-silent)
	}
	if confirm != nil {
		l.enqueue(confirm)
	}
	every := t / idlePingPart
	if held {
		every = t / heldPingPart
		wait = min(wait, max(due.Sub(now), 0))
	}
	// Also while a reply is due: the server has to hear of us, however long it takes for that.
	quiet := now.Sub(l.lastSent())
	if quiet >= every {
		l.enqueue(newPing())
		quiet = 0
	}
	wait = min(wait, every-quiet)
	return wait + time.Millisecond
}

// newPing is a request that nobody waits for.
func newPing() *call {
	return &call{op: opPing, name: "ping", read: true, urgent: true, frame: appendHeader(make([]byte, 0, 12), opPing)}
}
