package session

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// The keeper is the one goroutine of a session that looks at the clock. It ends the session when its lease is over,
// gives up a link that does not answer, and sends heartbeats: a ping when the link has been silent, which costs the
// leader nothing, and, while something is held, an empty write about every fifth of the timeout, which confirms the
// lease. One serves a session, however many locks it holds.

// Fractions of the timeout.
const (
	confirmPart  = 5  // a write this often while something is held
	heldPingPart = 10 // and in between a ping, so that there is something recent for a write to confirm
	idlePingPart = 6  // else a ping this often: the driver's own, at a third, leave too old a lease to begin a hold with
	thinPart     = 2  // a lease shorter than this is confirmed at once
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
	t, held := s.lease.timeout, s.held > 0
	end := s.lease.end(held)
	l := s.link
	due := s.confirmDue(now)
	s.mu.Unlock()

	if !now.Before(end) {
		s.end(ErrLeaseOver)
		return time.Hour
	}
	// A timer does not run while the machine sleeps: look at the clock that does, every now and then.
	wait := min(end.Sub(now), t/lookPart)
	if l == nil {
		return wait
	}
	silent, waiting := l.silence(now)
	if limit := s.patience(); waiting && silent >= limit {
		l.fail(fmt.Errorf("%w within %v", errSilent, limit))
		return wait
	} else if waiting {
		wait = min(wait, limit-silent)
	}
	if held && !due.After(now) {
		l.confirm()
		due = now.Add(t / heldPingPart)
	}
	every := t / idlePingPart
	if held {
		every = t / heldPingPart
		wait = min(wait, due.Sub(now))
	}
	// Also while a reply is due: the server has to hear of us, however long it takes for that.
	quiet := now.Sub(l.lastSent())
	if quiet >= every {
		l.enqueue(heartbeat(opPing))
		quiet = 0
	}
	wait = min(wait, every-quiet)
	return wait + time.Millisecond
}

// confirmDue is when the next write has to go out: a fifth of the timeout after the leader was last asked, or, when the
// confirmed lease is running thin, a tenth. A hold that has just begun waits its fifth as well, so that a short one
// costs none at all. The caller holds mu.
func (s *Session) confirmDue(now time.Time) time.Time {
	t := s.lease.timeout
	if s.lease.end(true).Sub(now) < t/thinPart {
		return s.asked.Add(t / heldPingPart)
	}
	last := s.asked
	if s.heldSince.After(last) {
		last = s.heldSince
	}
	return last.Add(t / confirmPart)
}

// confirm sends the write that confirms the lease, unless one is on its way.
func (l *link) confirm() {
	if l.beating.CompareAndSwap(false, true) {
		beat := heartbeat(opMulti)
		beat.hook = func(int32) { l.beating.Store(false) }
		l.enqueue(beat)
	}
}

// heartbeat is a request that nobody waits for.
func heartbeat(op int32) *call {
	c := &call{op: op, name: "heartbeat", read: true, urgent: true, frame: appendHeader(make([]byte, 0, 24), op)}
	if op == opMulti { // a transaction that changes nothing: it takes a majority to say so
		c.frame = appendMultiHeader(c.frame, opCheck, false)
		c.frame = appendInt(appendString(c.frame, "/"), -1)
		c.frame = appendMultiHeader(c.frame, -1, true)
	}
	return c
}

// Retain makes the session's end a matter of somebody's safety until Release: its lease is confirmed through the
// leader by heartbeats, and the session is over, for its holder, when the confirmed lease is.
//
// When Retain returns nil, SafeUntil is at least an eighth of the timeout ahead. Mostly that is so already and nothing
// is sent; after a long time without a write it takes one round trip to the leader. An error says that the session, or
// ctx, ended first; then there is nothing to Release.
func (s *Session) Retain(ctx context.Context) error {
	for asked := false; ; asked = true {
		s.mu.Lock()
		if s.state == Over {
			s.mu.Unlock()
			return s.Err()
		}
		t := s.lease.timeout
		enough := t / freshPart
		if asked {
			enough = t / minPart
		}
		if s.lease.end(true).Sub(s.clock.now()) >= enough {
			s.retain()
			s.mu.Unlock()
			return nil
		}
		s.mu.Unlock()
		if asked { // too early for the leader to have heard of us: give the follower time to report
			if err := s.pause(ctx, t/20); err != nil {
				return err
			}
		}
		confirm := heartbeat(opMulti)
		confirm.urgent, confirm.done = false, make(chan struct{})
		if err := s.yes(ctx, confirm); err != nil {
			return err
		}
	}
}

// pause waits for d, or less when ctx or the session ends.
func (s *Session) pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-s.ctx.Done():
		return s.Err()
	case <-ctx.Done():
		return Waited(ctx, errors.New("waiting for the leader to confirm the session"))
	}
}

// retain counts one more holder. The keeper is not woken when its next look, a twentieth of the timeout away at most,
// is early enough. The caller holds mu.
func (s *Session) retain() {
	if s.held++; s.held == 1 {
		s.heldSince = s.clock.stamp()
		if s.lease.end(true).Sub(s.heldSince) < s.lease.timeout/thinPart {
			s.wake()
		}
	}
}

// Release undoes one Retain.
func (s *Session) Release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held--
}
