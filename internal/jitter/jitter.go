// Package jitter spreads over time actions that many clients would otherwise take at the same
// moment.
package jitter

import "time"

// Below returns a duration from 0 up to, and without, d; 0 when d is not positive. It is drawn from
// the clock: a hash of the current nanosecond, which differs between machines and goroutines. That
// scatters like a random number, and in simulated time it is the same in each run, so that a failed
// run can be repeated.
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
