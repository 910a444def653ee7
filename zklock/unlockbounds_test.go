package zklock

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// The first of several calls has its own bound, since nothing tells that others will follow.
func TestFrequentUnlocksShareTheirBoundForAHundredthOfIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var bounds unlockBounds
		bounds.finish(bounds.begin(time.Second))
		began := time.Now()
		first := bounds.begin(time.Second)

		time.Sleep(9 * time.Millisecond)
		require.Same(t, first, bounds.begin(time.Second))
		time.Sleep(time.Millisecond)
		second := bounds.begin(time.Second)
		require.NotSame(t, first, second)

		<-first.ctx.Done()
		require.Equal(t, time.Second, time.Since(began))
		<-second.ctx.Done()
		require.Equal(t, 1010*time.Millisecond, time.Since(began))
	})
}

func TestASharedBoundEndsWithItsLastCallOnceItIsReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var bounds unlockBounds
		bounds.finish(bounds.begin(time.Second))
		first := bounds.begin(time.Second)
		time.Sleep(5 * time.Millisecond)
		bounds.finish(bounds.begin(time.Second))
		time.Sleep(5 * time.Millisecond)
		second := bounds.begin(time.Second)
		require.NoError(t, first.ctx.Err(), "a call waits with it")
		bounds.finish(first)
		require.ErrorIs(t, first.ctx.Err(), context.Canceled)

		bounds.finish(second)
		require.NoError(t, second.ctx.Err(), "the next call may share it")
		time.Sleep(5 * time.Millisecond)
		bounds.finish(bounds.begin(time.Second))
		time.Sleep(5 * time.Millisecond)
		bounds.begin(time.Second)
		require.ErrorIs(t, second.ctx.Err(), context.Canceled)
	})
}

// A timer that nobody stops would wake the process once for each Unlock.
func TestTheBoundOfARareUnlockEndsWithIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var bounds unlockBounds
		for range 3 {
			bound := bounds.begin(time.Second)
			require.NoError(t, bound.ctx.Err())
			bounds.finish(bound)
			require.ErrorIs(t, bound.ctx.Err(), context.Canceled)
			time.Sleep(20 * time.Millisecond)
		}
	})
}

// The session timeout, and so the bound, may be another one in the next session.
func TestUnlocksWithOtherBoundsShareNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var bounds unlockBounds
		bounds.finish(bounds.begin(time.Second))
		long := bounds.begin(time.Second)
		began := time.Now()
		<-bounds.begin(400 * time.Millisecond).ctx.Done()
		require.Equal(t, 400*time.Millisecond, time.Since(began))
		require.NoError(t, long.ctx.Err())
	})
}
