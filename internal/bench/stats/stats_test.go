package stats_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/internal/bench/stats"
)

func TestPercentileIsTheNearestRank(t *testing.T) {
	require.Zero(t, stats.Percentile([]int{}, 50))
	five := []int{10, 20, 30, 40, 50}
	for p, want := range map[float64]int{0: 10, 1: 10, 20: 10, 20.1: 20, 50: 30, 80: 40, 99: 50, 100: 50} {
		require.Equal(t, want, stats.Percentile(five, p), "p%v", p)
	}
	var hundred []int
	for i := range 100 {
		hundred = append(hundred, i+1)
	}
	require.Equal(t, 50, stats.Percentile(hundred, 50))
	require.Equal(t, 99, stats.Percentile(hundred, 99))
}

func TestMedianIsTheMiddleOrTheMeanOfTheTwoInTheMiddle(t *testing.T) {
	require.Zero(t, stats.Median([]float64{}))
	require.Equal(t, 3.0, stats.Median([]float64{3}))
	odd := []float64{9, 1, 5}
	require.Equal(t, 5.0, stats.Median(odd))
	require.Equal(t, []float64{9, 1, 5}, odd, "the argument stays as it is")
	require.Equal(t, 4.0, stats.Median([]float64{9, 1, 5, 3}))
	require.Equal(t, 15*time.Millisecond, stats.Median([]time.Duration{10 * time.Millisecond, 20 * time.Millisecond}))
}

// Three cycles on one lock and one on another, in a window of a second.
func TestFiguresCountTheCyclesInsideTheWindow(t *testing.T) {
	const ms = int64(time.Millisecond)
	w := stats.Window{Start: 1000 * ms, End: 2000 * ms}
	ops := []stats.Op{
		{Lock: 0, Asked: 1100 * ms, Got: 1230 * ms, Leaving: 1240 * ms, Left: 1260 * ms}, // waited for the next line's
		{Lock: 0, Asked: 900 * ms, Got: 990 * ms, Leaving: 1200 * ms, Left: 1210 * ms},   // got it before the window
		{Lock: 0, Asked: 1300 * ms, Got: 1310 * ms, Leaving: 1900 * ms, Left: 2100 * ms}, // came to a free lock; left after the window
		{Lock: 1, Asked: 1000 * ms, Got: 1050 * ms, Leaving: 1060 * ms, Left: 1100 * ms},
	}
	f := stats.Of(ops, w, true)
	require.Equal(t, 3, f.Cycles)
	require.Equal(t, 3.0, f.Rate)
	require.Equal(t, stats.Spread{N: 3, P50: 50 * time.Millisecond, P99: 130 * time.Millisecond}, f.Acquire)
	require.Equal(t, stats.Spread{N: 3, P50: 20 * time.Millisecond, P99: 40 * time.Millisecond}, f.Release)
	require.Equal(t, 6, f.Write.N)
	require.Equal(t, stats.Spread{N: 1, P50: 30 * time.Millisecond, P99: 30 * time.Millisecond}, f.HandOver)
	require.Zero(t, f.Overlaps)
	require.Zero(t, stats.Of(ops, w, false).HandOver, "the floor has no hand-overs")
	require.Equal(t, stats.Figures{}, stats.Of(nil, stats.Window{}, true))

	ops[0].Got = 1199 * ms
	require.Equal(t, 1, stats.Of(ops, w, true).Overlaps, "it had the lock before it was released")
}
