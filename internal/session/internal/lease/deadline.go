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
// instant (Keeper.moved); Left and look compare it with the clock.
type Deadline struct {
	at    atomic.Int64 // nanoseconds after began, on the session's clock; none: no session yet
	every atomic.Int64 // nanoseconds: the longest time between two runs of the timer
	clock *clock.Clock
	timer *time.Timer
	ctx   context.Context // ends with the session
	over  func()          // ends it
	looks atomic.Int64    // when the timer runs at the latest: nanoseconds after began, by time.Now
}

const none = math.MaxInt64

var began = time.Now() // the instant from which deadlines count

// NewDeadline returns a deadline that calls over when it has come, without a mutex, unless ctx has
// ended before.
func NewDeadline(ctx context.Context, c *clock.Clock, over func()) *Deadline {
	d := &Deadline{clock: c, ctx: ctx, over: over}
	d.timer = time.AfterFunc(math.MaxInt64, d.look)
	d.at.Store(none)
	d.looks.Store(none)
	return d
}

// set moves the deadline. The timer stands still while the machine sleeps, and the session's clock
// does not, so the timer's function looks at that clock every so often. That is usually soon enough
// for an earlier end too, and the timer is not touched: each hold that is the session's only one
// makes the deadline earlier.
func (d *Deadline) set(end time.Time, every time.Duration) {
	d.every.Store(int64(every))
	at := int64(end.Sub(began))
	if before := d.at.Swap(at); at < before && int64(time.Since(began)+end.Sub(d.clock.Glance())) < d.looks.Load() {
		d.timer.Reset(0) // it would run too late
	}
}

// left returns the time until the deadline; zero or less: it has come.
func (d *Deadline) left(now time.Time) time.Duration {
	return time.Duration(d.at.Load()) - now.Sub(began)
}

// look is the timer's function.
func (d *Deadline) look() {
	if d.ctx.Err() != nil {
		return
	}
	now := d.clock.Now()
	left := d.left(now)
	if left <= 0 {
		d.over()
		return
	}
	wait := min(left, time.Duration(d.every.Load()))
	d.looks.Store(int64(time.Since(began) + wait))
	d.timer.Reset(wait)
	if d.left(now) < left {
		d.timer.Reset(0) // the deadline moved closer, and our Reset undid that one's: look again
	}
}

// Left returns the time until the deadline; zero or less: it has come. It takes no mutex and
// allocates nothing.
func (d *Deadline) Left() time.Duration { return d.left(d.clock.Glance()) }

// Stop stops the timer.
func (d *Deadline) Stop() { d.timer.Stop() }
