package session

import (
	"time"

	"golang.org/x/sys/unix"
)

// atStart is the sleep before this process began, which no lease of ours has seen.
var atStart = sleepOf()

// suspended returns for how long the machine has slept since the process began, in whole milliseconds.
func suspended() time.Duration { return max(0, sleepOf()-atStart).Truncate(time.Millisecond) }

// sleepOf is CLOCK_BOOTTIME − CLOCK_MONOTONIC. The two can't be read at one instant: it reads the second clock on
// both sides of the first, and again when the thread was held up in between.
func sleepOf() time.Duration {
	var d time.Duration
	for range 4 {
		var m0, b, m1 unix.Timespec
		if unix.ClockGettime(unix.CLOCK_MONOTONIC, &m0) != nil || unix.ClockGettime(unix.CLOCK_BOOTTIME, &b) != nil ||
			unix.ClockGettime(unix.CLOCK_MONOTONIC, &m1) != nil {
			return 0 // a kernel without the clock (before 2.6.39): no worse than time.Now alone
		}
		d = time.Duration(b.Nano() - m0.Nano())
		if m1.Nano()-m0.Nano() < int64(100*time.Microsecond) {
			break
		}
	}
	return d
}
