package session

import (
	"math"
	"sync/atomic"
	"time"

	"github.com/zklock/locker/internal/session/internal/clock"
)

// deadline is the instant at which the session is over unless its lease is extended before. It is read and written without a
// mutex, and has its own timer. Each change of the lease, under Session.mu, stores the new instant (moveDeadlineLocked);
// Alive and watchLease compare it with the clock.
type deadline struct {
	at    atomic.Int64 // nanoseconds after began, on the session's clock; none: no session yet
	every atomic.Int64 // nanoseconds: the longest time between two runs of the timer
	clock *clock.Clock
	timer *time.Timer
	looks atomic.Int64 // when the timer runs at the latest: nanoseconds after began, by time.Now
}

const none = math.MaxInt64

var began = time.Now() // the instant from which deadlines count

// newDeadline returns a deadline that calls look when the instant may have come.
func newDeadline(c *clock.Clock, look func()) *deadline {
	d := &deadline{clock: c, timer: time.AfterFunc(math.MaxInt64, look)}
	d.at.Store(none)
	d.looks.Store(none)
	return d
}

// set moves the deadline. The timer stands still while the machine sleeps, and the session's clock does not, so the timer's
// function looks at that clock every so often. That is usually soon enough for an earlier end too, and the timer is not
// touched: each hold that is the session's only one makes the deadline earlier.
func (d *deadline) set(end time.Time, every time.Duration) {
	d.every.Store(int64(every))
	at := int64(end.Sub(began))
	if before := d.at.Swap(at); at < before && int64(time.Since(began)+end.Sub(d.clock.Glance())) < d.looks.Load() {
		d.timer.Reset(0) // it would run too late
	}
}

// left returns the time until the deadline; zero or less: it has come.
func (d *deadline) left(now time.Time) time.Duration {
	return time.Duration(d.at.Load()) - now.Sub(began)
}

// watchLease is the timer's function. It ends the session without a mutex.
func (s *Session) watchLease() {
	if s.Err() != nil {
		return
	}
	d, now := s.deadline, s.clock.Now()
	left := d.left(now)
	if left <= 0 {
		s.end(ErrLeaseOver)
		return
	}
	wait := min(left, time.Duration(d.every.Load()))
	d.looks.Store(int64(time.Since(began) + wait))
	d.timer.Reset(wait)
	if d.left(now) < left {
		d.timer.Reset(0) // the deadline moved closer, and our Reset undid that one's: look again
	}
}

// Alive returns Err after a look at the clock, without waiting for a timer to notice that the lease is over: after a stop of
// the whole process that may take a moment. It takes no mutex and allocates nothing.
func (s *Session) Alive() error {
	if s.ctx.Err() == nil {
		if s.deadline.left(s.clock.Glance()) > 0 {
			return nil
		}
		s.end(ErrLeaseOver)
	}
	return s.Err()
}
