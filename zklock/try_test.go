package zklock_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/tests/locktest"
	"github.com/zklock/locker/zklock"
	"github.com/zklock/locker/zktest"
	"github.com/zklock/locker/zktest/fault"
)

// triesOf are the calls that do not wait for another contender.
func triesOf(c *zklock.Client, path string) map[string]func(ctx context.Context) error {
	return map[string]func(ctx context.Context) error{
		"TryLock": func(ctx context.Context) error {
			_, _, err := c.Mutex(path).TryLock(ctx)
			return err
		},
		"TryDo": func(ctx context.Context) error {
			_, err := c.Mutex(path).TryDo(ctx, func(context.Context) error { return nil })
			return err
		},
		"Lock, WithMaxWait(0)": func(ctx context.Context) error {
			_, _, err := c.Mutex(path, zklock.WithMaxWait(0)).Lock(ctx)
			return err
		},
		"TryLock, WithMaxWait": func(ctx context.Context) error {
			_, _, err := c.Mutex(path, zklock.WithMaxWait(time.Second)).TryLock(ctx)
			return err
		},
		"TryLock, WithLocalHandoff": func(ctx context.Context) error {
			_, _, err := c.Mutex(path, zklock.WithLocalHandoff()).TryLock(ctx)
			return err
		},
		"TryRLock": func(ctx context.Context) error {
			_, _, err := c.RWMutex(path).TryRLock(ctx)
			return err
		},
		"TryAcquire": func(ctx context.Context) error {
			_, _, err := c.Semaphore(path, 1).TryAcquire(ctx, 1)
			return err
		},
		"MultiLock": func(ctx context.Context) error {
			_, _, err := c.MultiLock([]string{path, path + "-2"}).TryLock(ctx)
			return err
		},
	}
}

// Scenario 87.
func TestATryDoesNotWaitForServersThatAreDown(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T, srv *zktest.Server) {
		c := locktest.Dial(t, srv)
		srv.Leader().Down()
		for name, try := range triesOf(c, "/l") {
			began := time.Now()
			err := try(locktest.Within(t, 30*time.Minute))
			require.LessOrEqual(t, time.Since(began), 6*time.Second, name)
			require.ErrorIs(t, err, zklock.ErrUnreachable, name)
			require.NotErrorIs(t, err, zklock.ErrBusy, name)
			require.NotErrorIs(t, err, context.DeadlineExceeded, "%s: the caller's context goes on",
				name)
		}
		srv.Leader().Up()
	})
}

// Scenario 87. WithMaxWait bounds the wait for a server too.
func TestACallThatMayWaitALittleDoesNotWaitLongerForServersThatAreDown(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T, srv *zktest.Server) {
		c := locktest.Dial(t, srv)
		srv.Leader().Down()
		began := time.Now()
		_, _, err := c.Mutex("/l",
			zklock.WithMaxWait(3*time.Second)).Lock(locktest.Within(t, 30*time.Minute))
		require.Equal(t, 3*time.Second, time.Since(began))
		require.ErrorIs(t, err, zklock.ErrUnreachable)
		require.NotErrorIs(t, err, zklock.ErrBusy)
		require.NotErrorIs(t, err, context.DeadlineExceeded, "the caller's context goes on")
		require.ErrorContains(t, err,
			"no answer within 3s, so it is not known whether the lock is free: ")
		require.ErrorContains(t, err, ": waiting for a connection: no server reachable: ",
			"whichever step it was")
		require.NotContains(t, err.Error(), "deadline")
		srv.Leader().Up()
	})
}

// A context that ends first is the reason that the caller is told.
func TestATryWhoseContextEndsSaysSo(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T, srv *zktest.Server) {
		c := locktest.Dial(t, srv)
		srv.Leader().Down()
		for name, try := range triesOf(c, "/l") {
			err := try(locktest.Within(t, time.Second))
			require.ErrorIs(t, err, context.DeadlineExceeded, name)
			require.ErrorIs(t, err, zklock.ErrUnreachable, name)
		}
		srv.Leader().Up()
	})
}

// kindsOfLock are the locks of path, of each kind: how one is held, and how another contender
// tries.
func kindsOfLock(c *zklock.Client, path string) map[string]struct{ hold, try locktest.Acquire } {
	rw, sem := c.RWMutex(path), c.Semaphore(path, 1)
	multi := c.MultiLock([]string{path, path + "-2"})
	try := func(ctx context.Context) (context.Context, *zklock.Hold, error) {
		return sem.TryAcquire(ctx, 1)
	}
	return map[string]struct{ hold, try locktest.Acquire }{
		"mutex":     {c.Mutex(path).Lock, c.Mutex(path).TryLock},
		"writer":    {rw.Lock, rw.TryLock},
		"reader":    {rw.Lock, rw.TryRLock},
		"semaphore": {locktest.Permits(sem, 1), try},
		"multi":     {multi.Lock, multi.TryLock},
	}
}

// Scenario 88. Another client's Unlock has returned. A server that lags still lists its contender.
func TestATryAtAServerThatLagsFindsTheLockFree(t *testing.T) {
	for kind := range kindsOfLock(&zklock.Client{}, "/l") {
		t.Run(kind, func(t *testing.T) {
			locktest.Bubble(t, func(t *testing.T, srv *zktest.Server) {
				late, err := srv.Follower()
				require.NoError(t, err)
				holder := locktest.Dial(t, srv)
				c := locktest.Dial(t, srv, zklock.WithDialer(late.Dial))
				hold := locktest.Take(t, kindsOfLock(holder, "/l")[kind].hold)
				_, _, err = kindsOfLock(c, "/l")[kind].try(locktest.Soon(t))
				require.ErrorIs(t, err, zklock.ErrBusy, "it is held")

				late.Lag(1)
				locktest.Unlock(t, hold)
				require.Empty(t, srv.Children("/l"), "the lock is free")
				locktest.Unlock(t, locktest.Take(t, kindsOfLock(c, "/l")[kind].try))
				late.Lag(0)
			})
		})
	}
}

// Scenario 88. The server has lost its leader, and serves reads until it notices.
func TestATryAtAServerWithoutALeaderSaysNothingOfTheLock(t *testing.T) {
	for kind := range kindsOfLock(&zklock.Client{}, "/l") {
		t.Run(kind, func(t *testing.T) {
			locktest.Bubble(t, func(t *testing.T, srv *zktest.Server) {
				late, err := srv.Follower()
				require.NoError(t, err)
				holder := locktest.Dial(t, srv)
				c := locktest.Dial(t, srv, zklock.WithDialer(late.Dial))
				hold := locktest.Take(t, kindsOfLock(holder, "/l")[kind].hold)
				late.CutOff()
				locktest.Unlock(t, hold)

				began := time.Now()
				_, _, err = kindsOfLock(c, "/l")[kind].try(locktest.Within(t, time.Minute))
				require.LessOrEqual(t, time.Since(began), 6*time.Second)
				require.ErrorIs(t, err, zklock.ErrUnreachable)
				require.NotErrorIs(t, err, zklock.ErrBusy)
				late.Heal()
			})
		})
	}
}

// A lock that is free, and a server that does not lag: a try costs no sync.
func TestATryOfAFreeLockCostsNothingMore(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T, srv *zktest.Server) {
		c := locktest.Dial(t, srv)
		locktest.Unlock(t, locktest.Take(t, c.Mutex("/l").TryLock))
		before := srv.Requests()
		locktest.Unlock(t, locktest.Take(t, c.Mutex("/l").TryLock))
		require.Equal(t, before[fault.OpSync], srv.Requests()[fault.OpSync])
	})
}
