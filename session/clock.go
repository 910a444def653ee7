package session

import (
	"sync/atomic"
	"time"
)

// clock is the time that leases are kept in: time.Now, plus the time for which the machine was suspended.
//
// Go's monotonic clock stands still while a laptop or a virtual machine sleeps; the ensemble's does not. A lease kept
// in it would outlive the session by the length of the sleep. CLOCK_BOOTTIME runs on, but a process that is tested
// under a simulated time.Now must follow that one; so the difference of the two system clocks is added to time.Now.
type clock struct {
	asleep atomic.Int64 // nanoseconds, as last read
}

// stamp is the present instant with the sleep as last read: cheap, and never ahead of now, which for the time at
// which a request was sent is the safe side.
func (c *clock) stamp() time.Time { return time.Now().Add(time.Duration(c.asleep.Load())) }

// now is the present instant; it asks the system how long the machine has slept.
func (c *clock) now() time.Time {
	c.asleep.Store(int64(suspended()))
	return c.stamp()
}

// local turns an instant of this clock into one that compares with time.Now.
func (c *clock) local(t time.Time) time.Time { return t.Add(-time.Duration(c.asleep.Load())) }
