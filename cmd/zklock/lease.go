package main

import (
	"time"

	"github.com/zklock/locker/internal/session"
)

// # When a command is stopped
//
// The command must have ended before another client can get its lock. While the ensemble confirms
// the lease, at least the time session.HealthyLease is left of it. When the ensemble confirms it no
// longer, two instants follow:
//
//   - The lease is in doubt when no more than grace + margin is left, or less than is left of a
//     healthy lease. The command gets SIGTERM.
//   - The lease is ending when no more than margin is left. The command gets SIGKILL.
//
// So the command has the grace to end by itself, and the kernel has the margin to end it. If an
// ensemble's ticks are long for the session timeout, leases are short, and the grace is what is
// left of them. If the connection returns after the SIGTERM, the SIGKILL is deferred. The command
// has been asked to end and must still do so.

// Each is a part of the session timeout: 11 stands for timeout/11.
const (
	marginPart = 11 // the margin, with which the hold's context ends as well
	gracePart  = 4  // the upper bound of the grace
	checkPart  = 20 // the lease is checked at least this often
	latePart   = 15 // a confirmation may be so late without putting the lease in doubt
)

// verdict is the state of a lease: see "When a command is stopped".
type verdict int

const (
	leaseGood verdict = iota
	leaseInDoubt
	leaseEnding
)

// lease judges how much of a lease is left, by a hold's SafeUntil.
type lease struct {
	timeout time.Duration
	grace   time.Duration
	margin  time.Duration
	doubt   time.Duration // the lease is in doubt with no more than this left
}

// newLease returns the rule for a session timeout, on an ensemble with this tick.
func newLease(timeout, grace, tick time.Duration) lease {
	l := lease{
		timeout: timeout,
		grace:   min(grace, timeout/gracePart),
		margin:  timeout / marginPart,
	}
	healthy := session.HealthyLease(timeout, tick) - timeout/latePart
	l.doubt = max(l.margin, min(l.margin+l.grace, healthy))
	return l
}

// deadline returns the instant at which the command must be killed.
func (l lease) deadline(safeUntil time.Time) time.Time { return safeUntil.Add(-l.margin) }

// judge returns the state of a lease that ends at safeUntil, and the time until the next check.
func (l lease) judge(now, safeUntil time.Time) (verdict, time.Duration) {
	left := safeUntil.Sub(now)
	switch {
	case left <= l.margin:
		return leaseEnding, l.timeout / checkPart
	case left <= l.doubt:
		return leaseInDoubt, min(left-l.margin, l.timeout/checkPart)
	}
	return leaseGood, min(left-l.doubt, l.timeout/checkPart)
}
