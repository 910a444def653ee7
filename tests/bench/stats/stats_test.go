package stats_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/tests/bench/stats"
)

func TestMedianIsTheMiddleOrTheMeanOfTheTwoInTheMiddle(t *testing.T) {
	require.Zero(t, stats.Median([]float64{}))
	odd := []float64{9, 1, 5}
	require.Equal(t, 5.0, stats.Median(odd))
	require.Equal(t, []float64{9, 1, 5}, odd, "the argument stays as it is")
	require.Equal(t, 15*time.Millisecond,
		stats.Median([]time.Duration{10 * time.Millisecond, 20 * time.Millisecond}))
}

// Three cycles on one lock and one on another, in a window of a second.
func TestFiguresCountTheCyclesInsideTheWindow(t *testing.T) {
	const ms = int64(time.Millisecond)
	ops := []stats.Op{
		{Lock: 0, Asked: 1100 * ms, Got: 1230 * ms, Left: 1260 * ms}, // waited for the next line's
		{Lock: 0, Asked: 900 * ms, Got: 1200 * ms, Left: 1210 * ms},  // asked before the window
		// came to a free lock; left after the window
		{Lock: 0, Asked: 1300 * ms, Got: 1310 * ms, Left: 2100 * ms},
		{Lock: 1, Asked: 1000 * ms, Got: 1050 * ms, Left: 1100 * ms},
	}
	cost := stats.Cost{CPU: 3 * time.Millisecond, Allocations: 6, SystemCalls: 9}
	require.Equal(t, stats.Figures{
		Rate: 3, Acquire: 130 * time.Millisecond, HandOver: 30 * time.Millisecond,
		CPU: time.Millisecond, Allocations: 2, SystemCalls: 3,
	}, stats.Of(ops, stats.Window{Start: 1000 * ms, End: 2000 * ms}, cost))
	require.Equal(t, stats.Figures{}, stats.Of(nil, stats.Window{}, cost))
}
