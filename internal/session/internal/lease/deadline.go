package lease

import (
	"context"
	"math"
	"sync/atomic"
	"time"

	"github.com/zklock/locker/internal/session/internal/clock"
)

// Deadline is the instant at which the session is over unless its lease is extended before. It is
// read and written without a mutex, and has its own timer. Each change of the lease stores the new
// instant (Keeper.changed). Left and check compare it with the clock.
type Deadline struct {
	// nanoseconds after epoch, on the session's clock; noDeadline before there is a session
	at      atomic.Int64
	maxWait atomic.Int64 // nanoseconds: the longest time between two runs of the timer
	clock   *clock.Clock
	timer   *time.Timer
	ctx     context.Context // ends with the session
	end     func()          // ends it
	// when the timer runs at the latest: nanoseconds after epoch, by time.Now
	timerDue atomic.Int64
}

const noDeadline = math.MaxInt64

// epoch is the instant from which deadlines count.
var epoch = time.Now()

// NewDeadline returns a deadline that calls end when it has come, without a mutex, unless ctx has
// ended before.
func NewDeadline(ctx context.Context, c *clock.Clock, end func()) *Deadline {
	d := &Deadline{clock: c, ctx: ctx, end: end}
	d.timer = time.AfterFunc(math.MaxInt64, d.check)
	d.at.Store(noDeadline)
	d.timerDue.Store(noDeadline)
	return d
}

// set moves the deadline.
//
// The timer stands still while the machine sleeps, and the session's clock does not. So the timer's
// function checks that clock at least every maxWait. That is usually soon enough for an earlier
// deadline too, and then the timer is not touched. That saves a Reset for each hold that is the
// session's only one: it makes the deadline earlier.
func (d *Deadline) set(at time.Time, maxWait time.Duration) {
	d.maxWait.Store(int64(maxWait))
	next := int64(at.Sub(epoch))
	before := d.at.Swap(next)
	if next >= before {
		return
	}
	due := int64(time.Since(epoch) + at.Sub(d.clock.Glance()))
	if due < d.timerDue.Load() {
		d.timer.Reset(0)
	}
}

// left returns the time until the deadline. It is zero or less if the deadline has come.
func (d *Deadline) left(now time.Time) time.Duration {
	return time.Duration(d.at.Load()) - now.Sub(epoch)
}

// check is the timer's function.
func (d *Deadline) check() {
	if d.ctx.Err() != nil {
		return
	}
	now := d.clock.Now()
	left := d.left(now)
	if left <= 0 {
		d.end()
		return
	}
	wait := min(left, time.Duration(d.maxWait.Load()))
	d.timerDue.Store(int64(time.Since(epoch) + wait))
	d.timer.Reset(wait)
	if d.left(now) < left {
		// The deadline moved closer meanwhile. set has left the timer to us, or our Reset has
		// undone its.
		d.timer.Reset(0)
	}
}

// Left returns the time until the deadline. It is zero or less if the deadline has come. It takes
// no mutex and allocates nothing.
func (d *Deadline) Left() time.Duration { return d.left(d.clock.Glance()) }

// Stop stops the timer.
func (d *Deadline) Stop() { d.timer.Stop() }
