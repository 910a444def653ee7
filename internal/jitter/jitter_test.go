package jitter_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/internal/jitter"
)

func TestNeighbouringNanosecondsAreScatteredEvenly(t *testing.T) {
	draw := func() (all [10]int) {
		synctest.Test(t, func(t *testing.T) {
			for range 10_000 {
				d := jitter.Below(time.Second)
				require.GreaterOrEqual(t, d, time.Duration(0))
				all[d/(100*time.Millisecond)]++
				time.Sleep(time.Nanosecond)
			}
		})
		return all
	}
	all := draw()
	for i, n := range all {
		require.InDelta(t, 1000, n, 200, "tenth %d of the range", i)
	}
	require.Equal(t, all, draw(), "the same in each run of a simulated time")
}

func TestBelowZeroOrLessIsZero(t *testing.T) {
	require.Zero(t, jitter.Below(0))
	require.Zero(t, jitter.Below(-time.Second))
}
