package history

import (
	"time"

	"golang.org/x/sys/unix"
)

// Stamp is an instant of the machine's monotonic clock, in nanoseconds; all processes read the
// same. Zero: never.
type Stamp int64

// Forever is later than every instant: the return of an operation that may still be under way.
const Forever Stamp = 1<<63 - 1

// Now returns the present instant.
func Now() Stamp { return read(unix.CLOCK_MONOTONIC) }

func read(clock int32) Stamp {
	var t unix.Timespec
	if err := unix.ClockGettime(clock, &t); err != nil {
		panic(err) // no kernel that Go runs on is without it
	}
	return Stamp(t.Nano())
}

// Add returns the stamp d later.
func (s Stamp) Add(d time.Duration) Stamp { return s + Stamp(d) }

// Sub returns how much later s is than t.
func (s Stamp) Sub(t Stamp) time.Duration { return time.Duration(s - t) }
