package session

import (
	"math"
	"sync/atomic"
	"time"
)

// deadline is the instant at which the session is over unless its lease is moved on before. It waits for nothing: it is
// read and written without a mutex, and a timer of its own watches it. Each change of the lease, under Session.mu, stores the
// new instant (moveDeadlineLocked); Alive and watchLease compare it with the clock.
type deadline struct {
	at    atomic.Int64 // nanoseconds after origin, on the session's clock; none: there is no session yet
	every atomic.Int64 // nanoseconds: the timer looks at the clock this often at least
	clock *clock
	timer *time.Timer
	looks atomic.Int64 // when the timer runs at the latest: nanoseconds after origin, by time.Now
}

const none = math.MaxInt64

// newDeadline returns one that calls look, in a goroutine of its own, when the instant may have come.
func newDeadline(c *clock, look func()) *deadline {
	d := &deadline{clock: c, timer: time.AfterFunc(math.MaxInt64, look)}
	d.at.Store(none)
	d.looks.Store(none)
	return d
}

// set moves the deadline. A timer does not run while the machine sleeps, so it looks at the clock, which does count that
// time, every so often. Mostly that is soon enough for an earlier end as well, and the timer is not touched: each hold of a
// session without another one moves the deadline back. grace is the longest that a holder has: the timer has to look that
// much before the end.
func (d *deadline) set(end time.Time, grace, every time.Duration) {
	d.every.Store(int64(every))
	at := int64(end.Sub(origin))
	if before := d.at.Swap(at); at < before && int64(time.Since(origin)+end.Sub(d.clock.glance())-grace) < d.looks.Load() {
		d.timer.Reset(0) // it would look too late
	}
}

// passed reports whether the deadline has come by now.
func (d *deadline) passed(now time.Time) bool { return int64(now.Sub(origin)) >= d.at.Load() }

// watchLease runs when the deadline's timer does. It ends the session without a mutex, and takes only graces.mu until the
// graces have been called.
func (s *Session) watchLease() {
	if s.Err() != nil {
		return
	}
	now := s.clock.now()
	if s.deadline.passed(now) {
		s.end(ErrLeaseOver)
		return
	}
	d := s.deadline
	at := d.at.Load()
	left := time.Duration(at - int64(now.Sub(origin)))
	most, added := s.graces.fire(left)
	wait := max(0, min(left-most, time.Duration(d.every.Load())))
	d.looks.Store(int64(time.Since(origin) + wait))
	d.timer.Reset(wait)
	if _, late := s.graces.fire(left); late != added || d.at.Load() < at {
		d.timer.Reset(0) // a grace was added, or the deadline moved to an earlier instant; our Reset above undid theirs: look again
	}
}

// Alive returns Err after a look at the clock: it does not wait for a timer to notice that the lease is over, which
// after a stop of the whole process may take a moment. It takes no mutex and makes no garbage.
func (s *Session) Alive() error {
	if s.ctx.Err() == nil {
		if !s.deadline.passed(s.clock.glance()) {
			return nil
		}
		s.end(ErrLeaseOver)
	}
	return s.Err()
}
