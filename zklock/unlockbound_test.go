package zklock

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestUnlocksShareTheirBoundForAHundredthOfIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var bound unlockBound
		began := time.Now()
		first := bound.within(time.Second)

		time.Sleep(9 * time.Millisecond)
		require.Same(t, first, bound.within(time.Second))
		time.Sleep(time.Millisecond)
		second := bound.within(time.Second)
		require.NotSame(t, first, second)

		<-first.Done()
		require.Equal(t, time.Second, time.Since(began))
		<-second.Done()
		require.Equal(t, 1010*time.Millisecond, time.Since(began))
	})
}

// The session timeout, and so the bound, may be another one in the next session.
func TestUnlocksWithOtherBoundsShareNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var bound unlockBound
		long := bound.within(time.Second)
		began := time.Now()
		<-bound.within(400 * time.Millisecond).Done()
		require.Equal(t, 400*time.Millisecond, time.Since(began))
		require.NoError(t, long.Err())
	})
}
