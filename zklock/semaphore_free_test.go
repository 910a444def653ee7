package zklock_test

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/zklock"
	"github.com/zklock/locker/zktest"
)

func TestASemaphoresSizeAndWhatIsFreeCanBeReadAndTaken(t *testing.T) {
	simTest(t, func(s *sim) {
		c, other := s.client(), s.client()
		sem := c.Semaphore("/s", 5)
		sizes := func(wantSize, wantFree int) {
			s.Helper()
			size, free, err := sem.Size(s.Context())
			require.NoError(s, err)
			require.Equal(s, []int{wantSize, wantFree}, []int{size, free})
		}
		sizes(5, 5)
		_, there := s.srv.Node("/s")
		require.False(s, there, "nothing is written")

		h := semTake(s, other.Semaphore("/s", 5), 2)
		sizes(5, 3)
		rest, err := sem.TryAcquireFree(s.Context())
		require.NoError(s, err)
		require.Equal(s, 3, rest.Permits())
		sizes(5, 0)
		_, err = sem.TryAcquireFree(s.Context())
		require.ErrorIs(s, err, zklock.ErrBusy)
		s.unlock(rest)

		waiter := simGo(s.Context(), func(ctx context.Context) (*zklock.Hold, error) { return other.Semaphore("/s", 5).Acquire(ctx, 4) })
		synctest.Wait()
		sizes(5, 0)
		_, err = sem.TryAcquireFree(s.Context())
		require.ErrorIs(s, err, zklock.ErrBusy, "what is left is not taken from under one who waits")
		s.unlock(h)
		<-waiter.done
		require.NoError(s, waiter.err)
		one, err := sem.TryAcquireFree(s.Context())
		require.NoError(s, err)
		require.Equal(s, 1, one.Permits())
		s.unlock(one)

		require.NoError(s, sem.Resize(s.Context(), 2))
		sizes(2, 0)
		s.unlock(waiter.hold)
		sizes(2, 2)
		require.Zero(s, s.lock(c.Mutex("/m")).Permits())

		// Somebody is quicker, once: what is left then is taken.
		held := s.srv.Inject(zktest.Hold().Op(zktest.OpCreate).Session(c.id()).Once())
		taken := simGo(s.Context(), sem.TryAcquireFree)
		<-held.Hit()
		semTake(s, other.Semaphore("/s", 2), 1)
		held.Remove()
		<-taken.done
		require.NoError(s, taken.err)
		require.Equal(s, 1, taken.hold.Permits())

		require.NoError(s, s.srv.SetData("/s", []byte("somebody else's")))
		_, _, err = sem.Size(s.Context())
		require.ErrorIs(s, err, zklock.ErrConflict)
		_, _, err = c.Semaphore("s", 1).Size(s.Context())
		require.ErrorIs(s, err, zklock.ErrPath)
	})
}
