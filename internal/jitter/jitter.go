// Package jitter spreads over time what many clients would otherwise do at one moment.
package jitter

import "time"

// Below returns a duration from 0 up to, and without, d; 0 when d is not positive. It is drawn from the clock: a hash of
// the present nanosecond, which two machines, or two goroutines, do not meet in. That scatters as a random number would,
// and in a simulated time it is the same in each run, so that a run that failed can be looked at again.
func Below(d time.Duration) time.Duration { return below(uint64(time.Now().UnixNano()), d) }

func below(ns uint64, d time.Duration) time.Duration {
	if d <= 0 {
		return 0
	}
	h := ns + 0x9e3779b97f4a7c15 // splitmix64
	h = (h ^ h>>30) * 0xbf58476d1ce4e5b9
	h = (h ^ h>>27) * 0x94d049bb133111eb
	return time.Duration((h ^ h>>31) % uint64(d))
}
