package zklock_test

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/internal/locktest"
	"github.com/zklock/locker/session"
	"github.com/zklock/locker/zklock"
	"github.com/zklock/locker/zktest"
)

const graceOf = 2 * time.Second

// graceCutOff cuts the client's session off from all servers, until heal.
func graceCutOff(s *locktest.Sim, c *locktest.Client) (heal func()) {
	away, frozen := s.Server.Inject(zktest.Refuse()), s.Server.Inject(zktest.Freeze().Session(c.SessionID()))
	return func() { away.Remove(); frozen.Remove() }
}

// The context of a holder that is cut off at any moment ends at least its grace before the next client holds, and before
// SafeUntil.
func TestAHoldWithAGraceEndsThatMuchBeforeAnotherClientHolds(t *testing.T) {
	with := zklock.WithGrace(graceOf)
	locks := map[string]func(c *locktest.Client) locktest.Acquire{
		"mutex":     func(c *locktest.Client) locktest.Acquire { return c.Mutex("/l", with).Lock },
		"writer":    func(c *locktest.Client) locktest.Acquire { return c.RWMutex("/l", with).Lock },
		"several":   func(c *locktest.Client) locktest.Acquire { return c.MultiLock([]string{"/l", "/m"}, with).Lock },
		"handed on": func(c *locktest.Client) locktest.Acquire { return c.Mutex("/l", with, zklock.WithHandoffs(3)).Lock },
	}
	for name, lock := range locks {
		t.Run(name, func(t *testing.T) {
			for range 10 {
				held := time.Duration(rand.Int64N(int64(20 * time.Second)))
				locktest.Simulate(t, func(s *locktest.Sim) {
					c, other := s.Client(), s.Client()
					h, err := lock(c)(s.Context())
					require.NoError(s, err)
					call := other.Mutex("/l").Lock
					if name == "writer" {
						call = other.RWMutex("/l").Lock
					}
					next := s.Start(call)
					time.Sleep(held)
					require.NoError(s, h.Err(), "the ensemble answers")
					defer graceCutOff(s, c)()
					work, release := h.With(s.Context())
					defer release()
					<-work.Done()
					ended := time.Now()
					require.ErrorIs(s, h.Err(), zklock.ErrLeaseOver)
					require.ErrorIs(s, context.Cause(work), zklock.ErrLost)
					require.ErrorContains(s, h.Err(), "grace of 2s")
					require.GreaterOrEqual(s, time.Until(h.SafeUntil()), graceOf)
					require.NoError(s, c.Current().Err(), "the session goes on")
					next.Get(s)
					require.GreaterOrEqual(s, next.At.Sub(ended), graceOf, "held for %v", held)
				})
			}
		})
	}
}

// A hold is lost because less than its grace is left, and then the ensemble answers again, so that the session goes on. The
// hold stays lost and keeps its place until Unlock; then the next client gets the lock.
func TestAHoldThatWasLostToItsGraceKeepsItsPlaceUntilUnlock(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		var lost []error
		var mu sync.Mutex
		c := s.Client(zklock.WithHooks(zklock.Hooks{Lost: func(i zklock.LostInfo) {
			mu.Lock()
			defer mu.Unlock()
			lost = append(lost, i.Cause)
		}}))
		h := s.Lock(c.Mutex("/l", zklock.WithGrace(graceOf)))
		next := s.Start(s.Client().Mutex("/l").Lock)
		time.Sleep(time.Minute)
		heal := graceCutOff(s, c)
		<-h.Context().Done()
		heal()
		time.Sleep(time.Minute)
		require.ErrorIs(s, h.Err(), zklock.ErrLeaseOver)
		require.False(s, next.Over(), "what it does may not have ended")
		require.ErrorIs(s, h.Unlock(s.Context()), zklock.ErrLeaseOver)
		s.Unlock(next.Get(s))
		mu.Lock()
		defer mu.Unlock()
		require.Len(s, lost, 1)
		require.ErrorIs(s, lost[0], zklock.ErrLeaseOver)
	})
}

// Scenario 63 with a grace: every call reports the loss as soon as less than the grace is left, although no timer has run.
func TestAHoldIsInItsGraceAtOnceWithoutATimer(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		c := s.Client()
		h := s.Lock(c.Mutex("/l", zklock.WithGrace(graceOf)))
		work, release := h.With(s.Context())
		defer release()
		defer graceCutOff(s, c)()
		end := h.SafeUntil().Add(-session.DefaultTimeout / 25).Add(-graceOf)
		var askers sync.WaitGroup
		for _, ctx := range []context.Context{h.Context(), work} {
			for range 20 {
				askers.Go(func() {
					time.Sleep(time.Until(end))
					if ctx.Err() == nil {
						s.Error("told that the lock is held")
					}
				})
			}
		}
		askers.Wait()
	})
}

// While writes are slow, but answered, a hold with a grace lasts.
func TestAHoldWithAGraceLastsWhileTheEnsembleAnswers(t *testing.T) {
	for _, slow := range []time.Duration{0, 300 * time.Millisecond} {
		locktest.Simulate(t, func(s *locktest.Sim) {
			c := s.Client()
			h := s.Lock(c.Mutex("/l", zklock.WithGrace(2500*time.Millisecond)))
			s.Server.Inject(zktest.DelayReply(slow).Session(c.SessionID()))
			time.Sleep(10 * time.Minute)
			require.NoError(s, h.Err(), "replies %v late", slow)
			s.Unlock(h)
			time.Sleep(10 * time.Minute)
			s.Unlock(s.Lock(c.Mutex("/l", zklock.WithGrace(2500*time.Millisecond))))
		})
	}
}

func TestAGraceThatTheLeaseDoesNotHaveIsRefusedWithTheRule(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		c, long := s.Client(), s.Client(zklock.WithSessionTimeout(30*time.Second))
		for _, d := range []time.Duration{0, -1} {
			_, err := c.Mutex("/l", zklock.WithGrace(d)).Lock(s.Context())
			require.ErrorIs(s, err, zklock.ErrOption)
		}
		_, err := c.Mutex("/l", zklock.WithGrace(10*time.Second)).Lock(s.Context())
		require.ErrorIs(s, err, zklock.ErrOption)
		require.EqualError(s, err, "zklock: lock /l: bad configuration: grace 10s: is not below 2.65s, which is what a lease has left "+
			"before each heartbeat is answered, with a session timeout of 10s and a server tick of 2s: ask for a longer session timeout")
		require.Empty(s, s.Server.Children("/l"), "nothing was asked for")
		h := s.Lock(long.Mutex("/l", zklock.WithGrace(10*time.Second)))
		time.Sleep(locktest.LongTime)
		s.Unlock(h)
	})
}

func TestWithAMaxHoldTheZnodeGoesAGraceAfterTheContext(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		h := s.Lock(s.Client().Mutex("/l", zklock.WithMaxHold(time.Minute), zklock.WithGrace(graceOf)))
		next := s.Start(s.Client().Mutex("/l").Lock)
		start := time.Now()
		<-h.Context().Done()
		require.Equal(s, time.Minute, time.Since(start))
		require.ErrorIs(s, h.Err(), zklock.ErrMaxHold)
		s.Unlock(next.Get(s))
		require.Equal(s, time.Minute+graceOf, next.At.Sub(start))

		again := s.Lock(s.Client().Mutex("/l", zklock.WithMaxHold(time.Minute), zklock.WithGrace(graceOf)))
		next = s.Start(s.Client().Mutex("/l").Lock)
		<-again.Context().Done()
		require.ErrorIs(s, again.Unlock(s.Context()), zklock.ErrMaxHold)
		synctest.Wait()
		require.True(s, next.Over(), "the holder has said that its work has stopped")
		s.Unlock(next.Get(s))
	})
}

func TestAGraceLongerThanTheMaxHoldIsRefused(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		c := s.Client()
		for _, opts := range [][]zklock.LockOption{
			{zklock.WithGrace(2 * time.Second), zklock.WithMaxHold(time.Second)},
			{zklock.WithMaxHold(time.Second), zklock.WithGrace(2 * time.Second)},
		} {
			_, err := c.Mutex("/l", opts...).Lock(s.Context())
			require.ErrorIs(s, err, zklock.ErrOption)
			require.ErrorContains(s, err, "grace 2s: is longer than the max hold 1s")
		}
		s.Unlock(s.Lock(c.Mutex("/l", zklock.WithGrace(time.Second), zklock.WithMaxHold(time.Second))))
	})
}
