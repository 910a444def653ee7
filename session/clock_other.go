//go:build !linux

package session

import "time"

// suspended is zero where there is no clock to ask: there, a lease is as good as time.Now's monotonic reading
// (which on Windows counts a sleep by itself).
func suspended() time.Duration { return 0 }
