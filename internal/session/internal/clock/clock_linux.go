package clock

import (
	"math"
	"time"

	"golang.org/x/sys/unix"
)

// atStart is how long the machine had slept before this process began, which affects no lease of
// ours.
var atStart = sleepOf()

// suspended returns how long the machine has slept since the process began, in whole milliseconds.
func suspended() time.Duration { return max(0, sleepOf()-atStart).Truncate(time.Millisecond) }

// sleepOf is CLOCK_BOOTTIME − CLOCK_MONOTONIC.
func sleepOf() time.Duration {
	return leastApart(func() (m0, b, m1 int64, ok bool) {
		var mono, boot, again unix.Timespec
		ok = unix.ClockGettime(unix.CLOCK_MONOTONIC, &mono) == nil &&
			unix.ClockGettime(unix.CLOCK_BOOTTIME, &boot) == nil &&
			unix.ClockGettime(unix.CLOCK_MONOTONIC, &again) == nil
		return mono.Nano(), boot.Nano(), again.Nano(), ok
	})
}

// leastApart returns how far the second clock is ahead of the first. They can't be read at one
// instant: a delay between the first and the second reading makes the difference too large, never
// too small. So the smallest of a few differences counts, and a quick reading, as the third value
// tells, is enough.
func leastApart(read func() (m0, b, m1 int64, ok bool)) time.Duration {
	least := time.Duration(math.MaxInt64)
	for range 4 {
		m0, b, m1, ok := read()
		if !ok {
			return 0 // a kernel without the clock (before 2.6.39): no worse than time.Now alone
		}
		least = min(least, time.Duration(b-m0))
		if m1-m0 < int64(100*time.Microsecond) {
			break
		}
	}
	return least
}
