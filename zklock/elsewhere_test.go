package zklock_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/tests/locktest"
	"github.com/zklock/locker/zklock"
	"github.com/zklock/locker/zktest"
)

// Scenario 92. Two packages of a program have a Client each, and one calls the other under a lock.
func TestALockThatItsCallerHoldsThroughAnotherClientIsADeadlock(t *testing.T) {
	for kind := range kindsOfLock(&zklock.Client{}, "/l") {
		t.Run(kind, func(t *testing.T) {
			locktest.Bubble(t, func(t *testing.T, srv *zktest.Server) {
				one, two := locktest.Dial(t, srv), locktest.Dial(t, srv)
				ctx, hold, err := kindsOfLock(one, "/l")[kind].hold(locktest.Within(t, time.Hour))
				require.NoError(t, err)
				inner, other, err := one.Mutex("/other").Lock(ctx) // a hold between the two
				require.NoError(t, err)

				began := time.Now()
				_, _, err = kindsOfLock(two, "/l")[kind].hold(inner)
				require.ErrorIs(t, err, zklock.ErrDeadlock)
				require.Less(t, time.Since(began), time.Second, "at once")
				require.Len(t, srv.Children("/l"), 1)

				locktest.Unlock(t, other)
				locktest.Unlock(t, hold)
				locktest.Unlock(t, locktest.Take(t, kindsOfLock(two, "/l")[kind].hold))
			})
		})
	}
}

// The same path by another name: the chroot of one Client is a parent of its locks for the other
// one.
func TestADeadlockIsSeenThroughAChroot(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T, srv *zktest.Server) {
		one := locktest.Dial(t, srv)
		two, err := zklock.Dial(t.Context(), srv.Addr()+"/app", zklock.WithDialer(srv.Dial),
			zklock.WithCreateChroot())
		require.NoError(t, err)
		defer two.Close()
		ctx, hold, err := two.Mutex("/l").Lock(locktest.Within(t, time.Hour))
		require.NoError(t, err)
		_, _, err = one.Mutex("/app/l").Lock(ctx)
		require.ErrorIs(t, err, zklock.ErrDeadlock)
		_, _, err = one.Mutex("/app/l", zklock.WithLocalHandoff()).Lock(ctx)
		require.ErrorIs(t, err, zklock.ErrDeadlock)
		locktest.Unlock(t, hold)
	})
}

// Two ensembles may have locks of one path, and nested calls for them are fine.
func TestTheSamePathOfAnotherEnsembleIsAnotherLock(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T, srv *zktest.Server) {
		second := zktest.Run(t, zktest.WithoutListener())
		one, two := locktest.Dial(t, srv), locktest.Dial(t, second)
		require.NoError(t, one.Mutex("/l").Do(t.Context(), func(ctx context.Context) error {
			return two.Mutex("/l").Do(ctx, func(context.Context) error { return nil })
		}))
	})
}

// Permits of a semaphore are added up: a call that others can serve waits for them.
func TestPermitsOfTwoClientsAreAddedUp(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T, srv *zktest.Server) {
		one, two := locktest.Dial(t, srv), locktest.Dial(t, srv)
		ctx, hold, err := one.Semaphore("/s", 3).Acquire(locktest.Within(t, time.Hour), 2)
		require.NoError(t, err)
		_, more, err := two.Semaphore("/s", 3).Acquire(ctx, 1)
		require.NoError(t, err)
		_, _, err = two.Semaphore("/s", 3).Acquire(ctx, 2)
		require.ErrorIs(t, err, zklock.ErrDeadlock)
		locktest.Unlock(t, more)
		locktest.Unlock(t, hold)
	})
}
