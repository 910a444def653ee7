package zklock_test

import (
	"context"
	"path"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/tests/locktest"
	"github.com/zklock/locker/zklock"
	"github.com/zklock/locker/zktest/fault"
)

// triesAt returns, for each kind of lock, a call on the lock at a directory that does not wait.
var triesAt = map[string]func(c *locktest.Client, dir string) (hold, try locktest.Acquire){
	"mutex": func(c *locktest.Client, dir string) (hold, try locktest.Acquire) {
		return c.Mutex(dir, zklock.WithOwner("billing")).Lock, c.Mutex(dir).TryLock
	},
	"no wait": func(c *locktest.Client, dir string) (hold, try locktest.Acquire) {
		return c.Mutex(dir, zklock.WithOwner("billing")).Lock,
			c.Mutex(dir, zklock.WithMaxWait(0)).Lock
	},
	"write lock": func(c *locktest.Client, dir string) (hold, try locktest.Acquire) {
		return c.RWMutex(dir, zklock.WithOwner("billing")).RLock, c.RWMutex(dir).TryLock
	},
	"read lock": func(c *locktest.Client, dir string) (hold, try locktest.Acquire) {
		return c.RWMutex(dir, zklock.WithOwner("billing")).Lock, c.RWMutex(dir).TryRLock
	},
	"semaphore": func(c *locktest.Client, dir string) (hold, try locktest.Acquire) {
		return locktest.Permits(c.Semaphore(dir, 2, zklock.WithOwner("billing")), 2),
			func(ctx context.Context) (context.Context, *zklock.Hold, error) {
				return c.Semaphore(dir, 2).TryAcquire(ctx, 1)
			}
	},
	"several paths": func(c *locktest.Client, dir string) (hold, try locktest.Acquire) {
		return c.Mutex(dir, zklock.WithOwner("billing")).Lock,
			c.MultiLock([]string{"/free", dir}).TryLock
	},
}

func TestACallThatDoesNotWaitNamesTheHolder(t *testing.T) {
	for name, calls := range triesAt {
		t.Run(name, func(t *testing.T) {
			locktest.Simulate(t, func(s *locktest.Sim) {
				hold, try := calls(s.Client(), "/l")
				h := s.Take(hold)
				_, _, err := try(s.Context())
				require.ErrorIs(s, err, zklock.ErrBusy)
				require.ErrorContains(s, err, "held by billing (")
				var busy *zklock.BusyError
				require.ErrorAs(s, err, &busy)
				require.Regexp(s, `^billing \(.*:\d+\)$`, busy.Owner)
				require.Equal(s, h.Node(), busy.Node)
				require.Equal(s, 1, busy.Ahead)
				s.Unlock(h)
			})
		})
	}
}

// A TryLock does not wait long for the holder's name.
func TestACallThatDoesNotWaitIsNotKeptByTheHoldersName(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		hold, try := triesAt["mutex"](s.Client(), "/l")
		h := s.Take(hold)
		silent := s.Server.Inject(fault.Hold().Op(fault.OpExists))
		began := time.Now()
		_, _, err := try(s.Context())
		require.ErrorIs(s, err, zklock.ErrBusy)
		require.ErrorContains(s, err, "held by _c_")
		require.LessOrEqual(s, time.Since(began), 400*time.Millisecond)
		silent.Remove()
		s.Unlock(h)
	})
}

// A call that waits behind a hold of its own client says so in its error. It finds that out by the
// names, without a request.
func TestAWaitBehindAHoldOfTheSameClientSaysSo(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		c := s.Client()
		h := s.Lock(c.Mutex("/l"))
		_, _, err := c.Mutex("/l", zklock.WithMaxWait(100*time.Millisecond)).Lock(s.Context())
		require.ErrorIs(s, err, zklock.ErrBusy)
		require.ErrorContains(s, err, path.Base(h.Node())+" (this process)")
		var failed *zklock.Error
		require.ErrorAs(s, err, &failed)
		require.Equal(s, []string{"lock", "/l"}, []string{failed.Op, failed.Path})
		var busy *zklock.BusyError
		require.ErrorAs(s, err, &busy)
		require.Equal(s, h.Node(), busy.Node)
		_, _, err = s.Client().Mutex("/l",
			zklock.WithMaxWait(100*time.Millisecond)).Lock(s.Context())
		require.ErrorIs(s, err, zklock.ErrBusy)
		require.NotContains(s, err.Error(), "(this process)", "another client's")
	})
}
