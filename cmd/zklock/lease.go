package main

import (
	"time"

	"github.com/zklock/locker/internal/session"
)

// The rule by which a command is stopped before another client can get its lock.
//
// As long as the ensemble confirms the lease, at least a healthy rest of it is left
// (session.HealthyLease). When a lease is no longer confirmed,
//
//	doubt  begins when no more than grace + margin is left, or less than a healthy lease has: SIGTERM
//	end    comes when no more than margin is left: SIGKILL
//
// so the command has grace to end by itself, and the kernel has margin to end it. An ensemble whose
// ticks are long for the session timeout makes short leases; there the grace is what is left of
// them. If the connection returns after the SIGTERM, the SIGKILL is deferred, but the command has
// been asked to end and must still do so.
const (
	marginPart = 11 // of the timeout: margin, with which the hold's context ends as well
	gracePart  = 4  // the upper bound of grace
	lookPart   = 20 // the lease is checked at least this often
	latePart   = 15 // of the timeout: a confirmation may be this late without a doubt
)

// verdict is what the state of the lease requires.
type verdict int

const (
	leaseGood verdict = iota
	leaseInDoubt
	leaseEnding
)

// lease judges SafeUntil.
type lease struct {
	timeout time.Duration
	grace   time.Duration
	margin  time.Duration
	doubt   time.Duration // the lease is in doubt with no more than this left
}

// newLease derives the rule for a session timeout, on an ensemble with this tick.
func newLease(timeout, grace, tick time.Duration) lease {
	l := lease{timeout: timeout, grace: min(grace, timeout/gracePart), margin: timeout / marginPart}
	l.doubt = max(l.margin, min(l.margin+l.grace, session.HealthyLease(timeout, tick)-timeout/latePart))
	return l
}

// deadline is the instant at which the command must be killed.
func (l lease) deadline(safeUntil time.Time) time.Time { return safeUntil.Add(-l.margin) }

// judge returns what SafeUntil requires now, and the time until the next check.
func (l lease) judge(now, safeUntil time.Time) (verdict, time.Duration) {
	left := safeUntil.Sub(now)
	switch {
	case left <= l.margin:
		return leaseEnding, l.timeout / lookPart
	case left <= l.doubt:
		return leaseInDoubt, min(left-l.margin, l.timeout/lookPart)
	}
	return leaseGood, min(left-l.doubt, l.timeout/lookPart)
}
