package zklock_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/tests/locktest"
	"github.com/zklock/locker/zklock"
	"github.com/zklock/locker/zktest"
	"github.com/zklock/locker/zktest/fault"
)

// takeNumber takes the first of n numbers that is free, as the page about worker ids shows.
func takeNumber(ctx context.Context, c *zklock.Client, n int) (int, *zklock.Hold, error) {
	for i := range n {
		_, hold, err := c.Mutex(fmt.Sprintf("/workers/%d", i)).TryLock(ctx)
		if err == nil {
			return i, hold, nil
		}
		if !errors.Is(err, zklock.ErrBusy) {
			return 0, nil, err
		}
	}
	return 0, nil, errors.New("all numbers are taken")
}

// An instance is cut off from the ensemble. Its number's context ends before another instance can
// take the number.
func TestAnInstanceThatIsCutOffStopsBeforeItsNumberIsGivenAway(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T, srv *zktest.Server) {
		first, second := locktest.Dial(t, srv), locktest.Dial(t, srv)
		number, hold, err := takeNumber(t.Context(), first, 2)
		require.NoError(t, err)
		require.Zero(t, number)
		other, otherHold, err := takeNumber(t.Context(), second, 2)
		require.NoError(t, err)
		require.Equal(t, 1, other)
		defer locktest.Unlock(t, otherHold)

		cut := srv.Inject(fault.Freeze().Session(first.SessionStatus().ID))
		third := locktest.Dial(t, srv)
		var taken *zklock.Hold
		for taken == nil {
			require.False(t, hold.Err() != nil &&
				time.Now().After(hold.SafeUntil().Add(time.Minute)))
			_, taken, err = takeNumber(t.Context(), third, 1)
			if err != nil {
				time.Sleep(100 * time.Millisecond)
			}
		}
		require.ErrorIs(t, hold.Err(), zklock.ErrLost)
		require.True(t, time.Now().After(hold.SafeUntil()))
		cut.Remove()
		locktest.Unlock(t, taken)
		require.ErrorIs(t, hold.Unlock(), zklock.ErrLost)
	})
}
