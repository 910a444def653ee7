package load

import (
	"time"

	"golang.org/x/sys/unix"
)

// Go's monotonic clock is CLOCK_MONOTONIC without its origin.
var (
	base   = time.Now()
	origin = monotonic()
)

func monotonic() int64 {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &t); err != nil {
		panic(err) // every Unix that servers run on has it
	}
	return t.Nano()
}

// Now is the instant in nanoseconds of CLOCK_MONOTONIC.
func Now() int64 { return origin + int64(time.Since(base)) }
