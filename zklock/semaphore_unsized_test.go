package zklock_test

import (
	"context"
	"testing"

	"github.com/zklock/locker/internal/locktest"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/zklock"
	"github.com/zklock/locker/zktest"
)

// Somebody deletes the directory between the read of the size and the create: who makes it again writes the size, too.
func TestASemaphoresDirectoryThatIsDeletedWhileOneEntersGetsItsSizeBack(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		dir, c := s.Dir("/locks")+"/sem", s.Client()
		warm, err := c.Semaphore(dir, 3).Acquire(s.Context(), 1)
		require.NoError(s, err)
		s.Unlock(warm)
		held := s.Server.Inject(zktest.Hold().Op(zktest.OpCreate).Path(dir + "/*").Once())
		call := locktest.Go(s.Context(), func(ctx context.Context) (*zklock.Hold, error) { return c.Semaphore(dir, 3).Acquire(ctx, 2) })
		<-held.Hit()
		require.NoError(s, s.Server.Delete(dir))
		held.Release()
		h := call.Get(s)
		n, _ := s.Server.Node(dir)
		require.JSONEq(s, `{"size":3}`, string(n.Data))
		line, err := c.Queue(s.Context(), dir)
		require.NoError(s, err)
		require.Len(s, line, 1)
		require.True(s, line[0].Holds)
		_, err = s.Client().Semaphore(dir, 2).TryAcquire(s.Context(), 1)
		require.ErrorIs(s, err, zklock.ErrConflict)
		s.Unlock(h)
	})
}
