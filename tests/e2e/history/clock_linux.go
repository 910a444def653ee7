package history

import (
	"time"

	"golang.org/x/sys/unix"
)

// Slept returns for how long the machine has been suspended since it was started: no stamp counts
// that time.
func Slept() time.Duration { return time.Duration(read(unix.CLOCK_BOOTTIME) - Now()) }
