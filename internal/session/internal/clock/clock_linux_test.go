package clock_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/internal/session/internal/clock"
)

// A delay of the thread between the readings of the two clocks looks like a sleep of the machine,
// and would end the lease.
func TestOfDelayedReadingsOfTheTwoClocksTheSmallestDifferenceCounts(t *testing.T) {
	const slept = 3 * time.Hour
	for name, c := range map[string]struct {
		delays []time.Duration // of each reading of the second clock
		want   time.Duration
	}{
		"a quick one": {[]time.Duration{0}, slept},
		"a slow one, then a quick one": {[]time.Duration{time.Second, time.Microsecond},
			slept + time.Microsecond},
		"four slow ones": {[]time.Duration{2 * time.Second, time.Millisecond,
			time.Minute, 30 * time.Second}, slept + time.Millisecond},
	} {
		now, n := time.Duration(0), 0
		got := clock.LeastApart(func() (m0, b, m1 int64, ok bool) {
			m0 = int64(now)
			now += c.delays[n]
			n++
			return m0, int64(now + slept), int64(now), true
		})
		require.Equal(t, c.want, got, name)
		require.Len(t, c.delays, n, name)
	}
	require.Zero(t, clock.LeastApart(func() (m0, b, m1 int64, ok bool) {
		return 1, 2, 3, false
	}), "a kernel without the clock")
}
