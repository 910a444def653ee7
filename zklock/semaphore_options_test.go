package zklock_test

import (
	"context"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/tests/locktest"
	"github.com/zklock/locker/zklock"
	"github.com/zklock/locker/zktest/fault"
)

// Tests of the options of a semaphore, of its holds, and of the costs of its calls.

// The time of WithMaxWait is over while the waiter lists again: the error is ErrBusy all the same, and not that of the
// caller's deadline.
func TestAWaitForPermitsThatEndsDuringAnotherLookIsBusy(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		dir, c := s.Dir("/locks/a"), s.Client()
		h := s.Take(locktest.Permits(s.Client().Semaphore(dir, 2), 2))
		waiter := s.Start(locktest.Permits(c.Semaphore(dir, 2, zklock.WithMaxWait(time.Minute)), 1))
		time.Sleep(59 * time.Second) // so that the connection is not given up for want of an answer before the end
		in := s.Server.Inject(fault.Hold().Op(fault.OpGetChildren2).Session(c.SessionID()).Once())
		behind := s.Start(locktest.Permits(s.Client().Semaphore(dir, 2), 1)) // whose arrival has the head look again
		<-in.Hit()
		<-waiter.Done
		in.Remove()
		require.ErrorIs(s, waiter.Err, zklock.ErrBusy)
		require.NotErrorIs(s, waiter.Err, context.DeadlineExceeded)
		s.Unlock(h)
		s.Unlock(behind.Get(s))
		s.NothingLeft(dir)
	})
}

// A contender that could not announce that it holds would keep those behind it waiting.
func TestASemaphoreWhoseUsersMayCreateAndNotWriteIsRefused(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		acl := zklock.WithACL(append(zk.DigestACL(zk.PermAll, "alice", "a"), zk.WorldACL(zk.PermCreate|zk.PermRead|zk.PermDelete)...)...)
		sem := s.Client().Semaphore("/locks/a", 2, acl)
		_, _, err := sem.Acquire(s.Context(), 1)
		require.ErrorIs(s, err, zklock.ErrInvalid)
		require.ErrorContains(s, err, "the access list lets world:anyone create, but not write")
		_, _, err = sem.TryAcquire(s.Context(), 1)
		require.ErrorIs(s, err, zklock.ErrInvalid)
		_, stands := s.Server.Node("/locks/a")
		require.False(s, stands)
	})
}

// A semaphore that is refused at another lock's path leaves nothing there, and the mutex still works.
func TestASemaphoreThatIsRefusedLeavesNoSize(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		c := s.Client()
		h := s.Lock(c.Mutex("/l"))
		for _, acquire := range []locktest.Acquire{
			locktest.Permits(c.Semaphore("/l", 3), 1),
			func(ctx context.Context) (context.Context, *zklock.Hold, error) {
				return c.Semaphore("/l", 3).TryAcquire(ctx, 1)
			},
			func(ctx context.Context) (context.Context, *zklock.Hold, error) {
				return ctx, nil, c.Semaphore("/l", 3).Resize(ctx, 5)
			},
		} {
			_, _, err := acquire(s.Context())
			require.ErrorIs(s, err, zklock.ErrConflict)
			n, _ := s.Server.Node("/l")
			require.Empty(s, n.Data)
		}
		s.Unlock(h)
	})
}
