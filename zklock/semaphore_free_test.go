package zklock_test

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/zklock/locker/internal/locktest"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/zklock"
	"github.com/zklock/locker/zktest"
)

func TestASemaphoresSizeAndWhatIsFreeCanBeReadAndTaken(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		c, other := s.Client(), s.Client()
		sem := c.Semaphore("/s", 5)
		sizes := func(wantSize, wantFree int) {
			s.Helper()
			size, free, err := sem.Size(s.Context())
			require.NoError(s, err)
			require.Equal(s, []int{wantSize, wantFree}, []int{size, free})
		}
		sizes(5, 5)
		_, there := s.Server.Node("/s")
		require.False(s, there, "nothing is written")

		h := s.Take(locktest.Permits(other.Semaphore("/s", 5), 2))
		sizes(5, 3)
		rest, err := sem.TryAcquireFree(s.Context())
		require.NoError(s, err)
		require.Equal(s, 3, rest.Permits())
		sizes(5, 0)
		_, err = sem.TryAcquireFree(s.Context())
		require.ErrorIs(s, err, zklock.ErrBusy)
		s.Unlock(rest)

		waiter := locktest.Go(s.Context(), func(ctx context.Context) (*zklock.Hold, error) { return other.Semaphore("/s", 5).Acquire(ctx, 4) })
		synctest.Wait()
		sizes(5, 0)
		_, err = sem.TryAcquireFree(s.Context())
		require.ErrorIs(s, err, zklock.ErrBusy, "what is left is not taken from under one who waits")
		s.Unlock(h)
		<-waiter.Done
		require.NoError(s, waiter.Err)
		one, err := sem.TryAcquireFree(s.Context())
		require.NoError(s, err)
		require.Equal(s, 1, one.Permits())
		s.Unlock(one)

		require.NoError(s, sem.Resize(s.Context(), 2))
		sizes(2, 0)
		s.Unlock(waiter.Hold)
		sizes(2, 2)
		require.Zero(s, s.Lock(c.Mutex("/m")).Permits())

		// Somebody is quicker, once: what is left then is taken.
		held := s.Server.Inject(zktest.Hold().Op(zktest.OpCreate).Session(c.SessionID()).Once())
		taken := locktest.Go(s.Context(), sem.TryAcquireFree)
		<-held.Hit()
		s.Take(locktest.Permits(other.Semaphore("/s", 2), 1))
		held.Remove()
		<-taken.Done
		require.NoError(s, taken.Err)
		require.Equal(s, 1, taken.Hold.Permits())

		require.NoError(s, s.Server.SetData("/s", []byte("somebody else's")))
		_, _, err = sem.Size(s.Context())
		require.ErrorIs(s, err, zklock.ErrConflict)
		_, _, err = c.Semaphore("s", 1).Size(s.Context())
		require.ErrorIs(s, err, zklock.ErrPath)
	})
}
