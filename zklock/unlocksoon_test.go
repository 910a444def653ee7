package zklock_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/internal/locktest"
	"github.com/zklock/locker/zklock"
	"github.com/zklock/locker/zktest"
)

func TestUnlockSoonDoesNotWaitForItsAnswer(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		released := make(chan zklock.ReleasedInfo, 10)
		c := s.Client(zklock.WithHooks(zklock.Hooks{Released: func(i zklock.ReleasedInfo) { released <- i }}))
		h := s.Lock(c.Mutex("/l"))
		next := s.Start(s.Client().Mutex("/l").Lock)
		s.Server.Inject(zktest.DelayReply(time.Second).Session(c.SessionID()))
		start := time.Now()
		h.UnlockSoon()
		require.Zero(s, time.Since(start))
		require.Equal(s, zklock.ErrUnlocked, h.Err())
		s.Unlock(next.Get(s))
		require.Zero(s, time.Since(start), "the deletion is on its way")
		require.NoError(s, (<-released).Err)
		require.Equal(s, time.Second, time.Since(start))
		h.UnlockSoon()
		require.ErrorIs(s, h.Unlock(s.Context()), zklock.ErrNotHeld)
		time.Sleep(time.Minute)
		require.Empty(s, released)
	})
}

func TestAnUnlockSoonThatIsNotAnsweredIsToldAndGoesOn(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		released := make(chan zklock.ReleasedInfo, 10)
		c := s.Client(zklock.WithHooks(zklock.Hooks{Released: func(i zklock.ReleasedInfo) { released <- i }}))
		h := s.Lock(c.Mutex("/l"))
		held := s.Server.Inject(zktest.Hold().Op(zktest.OpDelete))
		h.UnlockSoon()
		require.Error(s, (<-released).Err)
		held.Remove()
		s.Empty(time.Minute, "/l")

		h = s.Lock(c.Mutex("/l"))
		defer s.Server.Inject(zktest.Hold().Op(zktest.OpDelete)).Remove()
		h.UnlockSoon()
		require.NoError(s, c.Close(), "joins it")
		require.NotEmpty(s, released)
	})
}

// For a hold that was lost no release is reported; a reentrant hold is counted down.
func TestUnlockSoonOfHoldsThatDoNotEndTheLock(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		c := s.Client()
		m := c.Mutex("/l", zklock.WithReentrancy())
		h := s.Lock(m)
		inner, err := m.Lock(h.Context())
		require.NoError(s, err)
		inner.UnlockSoon()
		synctest.Wait()
		require.NoError(s, h.Check(s.Context()))
		require.NoError(s, s.Server.Delete(h.Node()))
		time.Sleep(time.Minute)
		h.UnlockSoon()
		require.ErrorIs(s, h.Err(), zklock.ErrNodeDeleted)
	})
}
