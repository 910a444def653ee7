package zklock_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/internal/locktest"
	"github.com/zklock/locker/zklock"
	"github.com/zklock/locker/zktest"
)

func TestLocksFindsWhatIsInUseBelowARoot(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		c := s.Client()
		for _, p := range []string{"/app", "/app/unused", "/app/deep", "/other"} {
			require.NoError(s, s.Server.Create(p, nil))
		}
		h := s.Lock(c.Mutex("/app/a", zklock.WithOwner("me")))
		waits := locktest.Go(s.Context(), s.Client().Mutex("/app/a").Lock)
		synctest.Wait()
		p, err := c.Semaphore("/app/deep/s", 3).Acquire(s.Context(), 2)
		require.NoError(s, err)
		s.Lock(c.Mutex("/other/b"))

		found, err := c.Locks(s.Context(), "/app")
		require.NoError(s, err)
		require.Len(s, found.Locks, 2)
		require.Equal(s, "/app/a", found.Locks[0].Path)
		require.Equal(s, 1, found.Locks[0].Holding)
		require.Equal(s, 1, found.Locks[0].Waiting)
		require.Len(s, found.Locks[0].Contenders, 1, "one that holds")
		require.Equal(s, "me", found.Locks[0].Contenders[0].Owner)
		require.Equal(s, zklock.KindSemaphore, found.Locks[1].Kind)
		require.Equal(s, 3, found.Locks[1].Permits)
		require.False(s, found.Cut)
		require.Zero(s, found.Hidden)

		found, err = c.Locks(s.Context(), "/", zklock.SearchRows(5))
		require.NoError(s, err)
		require.Len(s, found.Locks, 3)
		require.Len(s, found.Locks[0].Contenders, 2)
		found, err = c.Locks(s.Context(), "/app", zklock.SearchDepth(1))
		require.NoError(s, err)
		require.Len(s, found.Locks, 1)
		require.True(s, found.Cut)
		found, err = c.Locks(s.Context(), "/app", zklock.SearchZnodes(2))
		require.NoError(s, err)
		require.Equal(s, 2, found.Looked)
		require.True(s, found.Cut)

		s.Unlock(p)
		s.Unlock(h)
		s.Unlock(waits.Get(s))
		found, err = c.Locks(s.Context(), "/app")
		require.NoError(s, err)
		require.Empty(s, found.Locks)
	})
}

func TestLocksLeavesOutWhatMayNotBeReadAndSaysSo(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		alice, bob := s.Client(zklock.WithAuth("digest", []byte("alice:a"))), s.Client()
		require.NoError(s, s.Server.Create("/app", nil))
		s.Lock(alice.Mutex("/app/closed", zklock.WithACL(zk.ACL{Perms: zk.PermAll, Scheme: "auth"})))
		s.Lock(bob.Mutex("/app/open"))
		found, err := bob.Locks(s.Context(), "/app")
		require.NoError(s, err)
		require.Len(s, found.Locks, 1)
		require.Equal(s, 1, found.Hidden)
		_, err = bob.Locks(s.Context(), "/app/closed")
		require.ErrorIs(s, err, zk.ErrNoAuth, "an empty list would say that nobody holds it")
	})
}

func TestLocksRefusesLimitsThatLeaveNothing(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		c := s.Client()
		for _, o := range []zklock.SearchOption{zklock.SearchZnodes(0), zklock.SearchDepth(-1), zklock.SearchRows(-1)} {
			_, err := c.Locks(s.Context(), "/", o)
			require.ErrorIs(s, err, zklock.ErrOption)
		}
		_, err := c.Locks(s.Context(), "no path")
		require.ErrorIs(s, err, zklock.ErrPath)
		ctx, cancel := context.WithCancel(s.Context())
		cancel()
		_, err = c.Locks(ctx, "/")
		require.ErrorIs(s, err, context.Canceled)
	})
}

func TestWaitFreeReturnsWhenNoContenderIsInLine(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		dir, a, b := s.Dir("/locks/a"), s.Client(), s.Client()
		require.NoError(s, a.WaitFree(s.Context(), dir))
		require.NoError(s, a.WaitFree(s.Context(), "/nowhere"))
		h := s.Lock(a.Mutex(dir))
		next := locktest.Go(s.Context(), a.Mutex(dir).Lock)
		synctest.Wait()
		done := make(chan error, 1)
		go func() { done <- b.WaitFree(s.Context(), dir) }()
		synctest.Wait()
		looked := s.Server.Requests()[zktest.OpSync]
		s.Unlock(h)
		h = next.Get(s)
		time.Sleep(time.Minute)
		require.Empty(s, done)
		require.Equal(s, looked, s.Server.Requests()[zktest.OpSync], "a line that moves does not wake it")
		require.NoError(s, s.Server.Expire(b.SessionID())) // it goes on in the next session
		time.Sleep(time.Minute)
		require.Empty(s, done)
		s.Unlock(h)
		require.NoError(s, <-done)
		synctest.Wait()
		require.Zero(s, s.Server.WatchCount())
	})
}

func TestWaitFreeThatIsOutOfTimeSaysThatItWasBusy(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		dir, c := s.Dir("/locks/a"), s.Client()
		h := s.Lock(c.Mutex(dir))
		ctx, cancel := context.WithTimeout(s.Context(), time.Second)
		defer cancel()
		err := c.WaitFree(ctx, dir)
		require.ErrorIs(s, err, context.DeadlineExceeded)
		require.ErrorIs(s, err, zklock.ErrBusy)
		require.ErrorContains(s, err, "1 in line")
		require.ErrorIs(s, c.WaitFree(s.Context(), "/"), zklock.ErrPath)
		s.Unlock(h)
		synctest.Wait()
		require.Zero(s, s.Server.WatchCount())
		require.NoError(s, c.Close())
		require.ErrorIs(s, c.WaitFree(s.Context(), dir), zklock.ErrClosed)
	})
}

// WaitFree must not wait for ever if it may not read the last contender in line, and so is not notified of its end.
func TestWaitFreeLooksAgainWhereItIsNotTold(t *testing.T) {
	for _, version := range []zktest.Version{zktest.Version38, zktest.Version39} {
		t.Run(fmt.Sprint(version), func(t *testing.T) {
			locktest.Simulate(t, func(s *locktest.Sim) {
				require.NoError(s, s.Server.Create("/l", nil))
				alice, bob := s.Client(zklock.WithAuth("digest", []byte("alice:a"))), s.Client()
				h := s.Lock(alice.Mutex("/l", zklock.WithACL(zk.ACL{Perms: zk.PermAll, Scheme: "auth"})))
				done := make(chan error, 1)
				go func() { done <- bob.WaitFree(s.Context(), "/l") }()
				time.Sleep(locktest.LongTime)
				require.Empty(s, done)
				s.Unlock(h)
				at := time.Now()
				require.NoError(s, <-done)
				require.LessOrEqual(s, time.Since(at), 2*unreadPause)
			}, zktest.WithVersion(version))
		})
	}
}
