package clock

import (
	"sync/atomic"
	"time"
)

// Clock is the time of leases: time.Now, plus the time for which the machine was suspended. Go's
// monotonic clock stands still while a laptop or a virtual machine sleeps, and a lease measured by
// it would outlive the session. CLOCK_BOOTTIME runs on, but tests simulate time.Now; so the
// difference of the two system clocks is added to time.Now. (When a hypervisor pauses a guest, all
// the guest's clocks may stand still, as QEMU's kvm-clock does: only the ensemble's next answer
// ends such a lease.)
type Clock struct {
	asleep atomic.Int64 // nanoseconds, as last read
	apart  atomic.Int64 // wall − monotonic time, nanoseconds, when it was read
}

// Stamp returns the present instant with the sleep as last read: cheap, and never ahead of now,
// which is the safe side for the time at which a request was sent.
func (c *Clock) Stamp() time.Time { return time.Now().Add(time.Duration(c.asleep.Load())) }

// Now returns the present instant; it asks the system how long the machine has slept.
func (c *Clock) Now() time.Time {
	// first: a sleep in between is then asked for once more, not missed
	apart := wallAhead(time.Now())
	c.asleep.Store(int64(suspended()))
	c.apart.Store(apart)
	return c.Stamp()
}

// Glance is now without its system calls, unless the machine may have slept since the last now.
// When a machine wakes, the kernel moves the wall clock and CLOCK_BOOTTIME forward by the same
// step, but not the monotonic clock: as long as wall and monotonic time are equally far apart, to a
// millisecond, it has not slept. A wall clock that is set, or slewed, only causes a call of now.
// One that is set back by just the length of a sleep hides that sleep until the heartbeat calls
// now.
func (c *Clock) Glance() time.Time {
	t := time.Now()
	if d := wallAhead(t) - c.apart.Load(); d < int64(-time.Millisecond) ||
		d > int64(time.Millisecond) {
		return c.Now()
	}
	return t.Add(time.Duration(c.asleep.Load()))
}

var origin = time.Now() // some instant with both readings

// wallAhead returns how far the wall clock of t is ahead of its monotonic reading, up to a
// constant.
func wallAhead(t time.Time) int64 { return t.UnixNano() - int64(t.Sub(origin)) }

// Shift is for tests: the machine seems to have slept so much longer, and its wall clock to be so
// much farther ahead.
func (c *Clock) Shift(asleep, ahead time.Duration) {
	c.asleep.Add(int64(asleep))
	c.apart.Add(int64(ahead))
}

// Local converts an instant of this clock to one comparable with time.Now.
func (c *Clock) Local(t time.Time) time.Time {
	c.Glance() // the machine may have slept
	return t.Add(-time.Duration(c.asleep.Load()))
}

// Later returns the later of two instants.
func Later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// Earlier returns the earlier of two instants.
func Earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}
