//go:build !linux

package clock

import "time"

// suspended is zero where there is no clock to ask: a lease there is as good as time.Now's
// monotonic reading, which on Windows counts sleep by itself.
func suspended() time.Duration { return 0 }
