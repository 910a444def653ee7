package session

import (
	"sync/atomic"
	"time"
)

// clock is the time that leases are kept in: time.Now, plus the time for which the machine was suspended.
//
// Go's monotonic clock stands still while a laptop or a virtual machine sleeps; the ensemble's does not. A lease kept
// in it would outlive the session by the length of the sleep. (A hypervisor that pauses a guest may have none of the
// guest's clocks count that, as QEMU does with kvm-clock. Nothing here can notice it: only the ensemble's next answer
// ends such a lease.) CLOCK_BOOTTIME runs on, but a process that is tested
// under a simulated time.Now must follow that one; so the difference of the two system clocks is added to time.Now.
type clock struct {
	asleep atomic.Int64 // nanoseconds, as last read
	apart  atomic.Int64 // wall − monotonic time, nanoseconds, when it was read
}

// stamp is the present instant with the sleep as last read: cheap, and never ahead of now, which for the time at
// which a request was sent is the safe side.
func (c *clock) stamp() time.Time { return time.Now().Add(time.Duration(c.asleep.Load())) }

// now is the present instant; it asks the system how long the machine has slept.
func (c *clock) now() time.Time {
	apart := wallAhead(time.Now()) // before: a sleep in between is then asked for once more, and not missed
	c.asleep.Store(int64(suspended()))
	c.apart.Store(apart)
	return c.stamp()
}

// glance is now without its system calls when there is a sign that the machine has not slept since the last now. While
// it sleeps the monotonic clock stands still; when it wakes the kernel sets the wall clock, and CLOCK_BOOTTIME, forward
// by one and the same step. So as long as wall and monotonic time are as far apart as they were, to a millisecond,
// there was no such step. A wall clock that is set, or slewed, only has us ask. One that is set back by just the length
// of a sleep right after it hides that until the heartbeat looks, which never relies on this.
func (c *clock) glance() time.Time {
	t := time.Now()
	if d := wallAhead(t) - c.apart.Load(); d < int64(-time.Millisecond) || d > int64(time.Millisecond) {
		return c.now()
	}
	return t.Add(time.Duration(c.asleep.Load()))
}

// origin is some instant with both readings.
var origin = time.Now()

// wallAhead is how far the wall clock of t is ahead of its monotonic reading, but for a constant.
func wallAhead(t time.Time) int64 { return t.UnixNano() - int64(t.Sub(origin)) }

// local turns an instant of this clock into one that compares with time.Now.
func (c *clock) local(t time.Time) time.Time { return t.Add(-time.Duration(c.asleep.Load())) }

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}
