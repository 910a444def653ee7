package main

import "time"

// The rule by which a command is stopped before its lock can be somebody else's.
//
// The ensemble confirms the lease about every fifth of the session timeout, and every tenth when little of it is left.
// While that goes well, SafeUntil stays far ahead. Of a lease that is not confirmed any more,
//
//	doubt  begins when no more than grace + margin is left and nothing has come for a sixth of the timeout: SIGTERM
//	end    comes when no more than margin is left: SIGKILL
//
// so the command has grace to end by itself, and the kernel has margin to end it. The sixth keeps a healthy lease that is
// short by nature (a timeout of few ticks) from being doubted. Should the connection come back after the SIGTERM, the
// SIGKILL is put off, but the command has been told to end and goes on ending.
const (
	marginPart = 16 // of the timeout: margin
	doubtPart  = 6  // nothing heard for this part of the timeout
	gracePart  = 4  // the most that grace may be: a healthy lease has more left than that
	lookPart   = 20 // the lease is looked at this often at least
)

// verdict is what has to be done about a lease.
type verdict int

const (
	leaseGood verdict = iota
	leaseInDoubt
	leaseEnding
)

// lease judges SafeUntil. It is used by one goroutine.
type lease struct {
	timeout, grace time.Duration

	until time.Time // SafeUntil as last seen
	moved time.Time // when it was last seen to move on
}

func newLease(timeout, grace time.Duration) *lease {
	return &lease{timeout: timeout, grace: min(grace, timeout/gracePart)}
}

func (l *lease) margin() time.Duration { return l.timeout / marginPart }

// deadline is the instant at which the command must be killed.
func (l *lease) deadline() time.Time { return l.until.Add(-l.margin()) }

// judge says what SafeUntil means now, and after how long to look again.
func (l *lease) judge(now, safeUntil time.Time) (verdict, time.Duration) {
	// It may also move back, when the clocks show that the machine was asleep.
	if d := safeUntil.Sub(l.until); l.moved.IsZero() || d > time.Millisecond || d < -time.Millisecond {
		if l.moved.IsZero() || d > 0 {
			l.moved = now
		}
		l.until = safeUntil
	}
	end := l.deadline().Sub(now)
	doubt := max(end-l.grace, l.moved.Add(l.timeout/doubtPart).Sub(now))
	switch {
	case end <= 0:
		return leaseEnding, l.timeout / lookPart
	case doubt <= 0:
		return leaseInDoubt, min(end, l.timeout/lookPart)
	}
	return leaseGood, min(doubt, end, l.timeout/lookPart)
}
