package zklock

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestUnlocksShareTheirBoundForATenthOfIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var bound unlockBound
		began := time.Now()
		first := bound.within(time.Second)

		time.Sleep(99 * time.Millisecond)
		require.Same(t, first, bound.within(time.Second))
		time.Sleep(time.Millisecond)
		second := bound.within(time.Second)
		require.NotSame(t, first, second)

		<-first.Done()
		require.Equal(t, time.Second, time.Since(began))
		<-second.Done()
		require.Equal(t, 1100*time.Millisecond, time.Since(began))
	})
}

// The session timeout, and so the bound, may be another one in the next session.
func TestUnlocksWithOtherBoundsShareNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var bound unlockBound
		defer bound.stop()
		long := bound.within(time.Second)
		began := time.Now()
		<-bound.within(400 * time.Millisecond).Done()
		require.Equal(t, 400*time.Millisecond, time.Since(began))
		require.NoError(t, long.Err())
	})
}

func TestAStoppedBoundLeavesNoTimer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var bound unlockBound
		bound.stop() // there is none
		stopped := bound.within(time.Second)
		bound.stop()
		require.ErrorIs(t, stopped.Err(), context.Canceled)
		require.NoError(t, bound.within(time.Second).Err(), "a late Unlock has a bound as well")
		bound.stop()
	})
}
