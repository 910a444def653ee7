// Package clock is the time by which leases are measured. Unlike Go's monotonic clock it counts the
// time for which the machine was suspended.
//
// It knows nothing of sessions. It starts no goroutines, and a Clock is safe for concurrent use.
package clock
