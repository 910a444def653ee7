package zklock_test

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/session"
	"github.com/zklock/locker/zklock"
	"github.com/zklock/locker/zktest"
)

const graceOf = 2 * time.Second

type graceLock = func(context.Context) (*zklock.Hold, error)

// cutOff has the client's session hear nothing any more, nor reach a server, until heal.
func (s *sim) cutOff(c *simClient) (heal func()) {
	away, frozen := s.srv.Inject(zktest.Refuse()), s.srv.Inject(zktest.Freeze().Session(c.id()))
	return func() { away.Remove(); frozen.Remove() }
}

// A holder that is cut off, whenever that is, is told its grace before the next one holds, and before SafeUntil.
func TestAHoldWithAGraceEndsThatMuchBeforeAnybodyElseHolds(t *testing.T) {
	with := zklock.WithGrace(graceOf)
	locks := map[string]func(c *simClient) graceLock{
		"mutex":     func(c *simClient) graceLock { return c.Mutex("/l", with).Lock },
		"writer":    func(c *simClient) graceLock { return c.RWMutex("/l", with).Lock },
		"several":   func(c *simClient) graceLock { return c.MultiLock([]string{"/l", "/m"}, with).Lock },
		"handed on": func(c *simClient) graceLock { return c.Mutex("/l", with, zklock.WithLocalHandoff(3)).Lock },
	}
	for name, lock := range locks {
		t.Run(name, func(t *testing.T) {
			for range 10 {
				held := time.Duration(rand.Int64N(int64(20 * time.Second)))
				simTest(t, func(s *sim) {
					c, other := s.client(), s.client()
					h, err := lock(c)(s.Context())
					require.NoError(s, err)
					call := other.Mutex("/l").Lock
					if name == "writer" {
						call = other.RWMutex("/l").Lock
					}
					next := simGo(s.Context(), call)
					time.Sleep(held)
					require.NoError(s, h.Err(), "the ensemble answers")
					defer s.cutOff(c)()
					work, release := h.With(s.Context())
					defer release()
					<-work.Done()
					ended := time.Now()
					require.ErrorIs(s, h.Err(), zklock.ErrLeaseOver)
					require.ErrorIs(s, context.Cause(work), zklock.ErrLost)
					require.ErrorContains(s, h.Err(), "grace of 2s")
					require.GreaterOrEqual(s, time.Until(h.SafeUntil()), graceOf)
					require.NoError(s, c.session().Err(), "the session goes on")
					<-next.done
					require.NoError(s, next.err)
					require.GreaterOrEqual(s, next.at.Sub(ended), graceOf, "held for %v", held)
				})
			}
		})
	}
}

// The session of a hold that was lost to its grace goes on when the ensemble answers again: the hold stays lost, keeps its
// place until Unlock, and the next one gets the lock then.
func TestAHoldThatWasLostToItsGraceKeepsItsPlaceUntilUnlock(t *testing.T) {
	simTest(t, func(s *sim) {
		var lost []error
		var mu sync.Mutex
		c := s.client(zklock.WithHooks(zklock.Hooks{Lost: func(i zklock.LostInfo) {
			mu.Lock()
			defer mu.Unlock()
			lost = append(lost, i.Cause)
		}}))
		h := s.lock(c.Mutex("/l", zklock.WithGrace(graceOf)))
		next := simGo(s.Context(), s.client().Mutex("/l").Lock)
		time.Sleep(time.Minute)
		heal := s.cutOff(c)
		<-h.Context().Done()
		heal()
		time.Sleep(time.Minute)
		require.ErrorIs(s, h.Err(), zklock.ErrLeaseOver)
		require.False(s, next.over(), "what it does may not have ended")
		require.ErrorIs(s, h.Unlock(s.Context()), zklock.ErrLeaseOver)
		s.unlock(next.get(s))
		mu.Lock()
		defer mu.Unlock()
		require.Len(s, lost, 1)
		require.ErrorIs(s, lost[0], zklock.ErrLeaseOver)
	})
}

// Scenario 63 with a grace: whoever asks is told that less than the grace is left, although no timer has run.
func TestWhoeverAsksIsToldThatTheGraceHasBegun(t *testing.T) {
	simTest(t, func(s *sim) {
		c := s.client()
		h := s.lock(c.Mutex("/l", zklock.WithGrace(graceOf)))
		work, release := h.With(s.Context())
		defer release()
		defer s.cutOff(c)()
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
		simTest(t, func(s *sim) {
			c := s.client()
			h := s.lock(c.Mutex("/l", zklock.WithGrace(2500*time.Millisecond)))
			s.srv.Inject(zktest.DelayReply(slow).Session(c.id()))
			time.Sleep(10 * time.Minute)
			require.NoError(s, h.Err(), "replies %v late", slow)
			s.unlock(h)
			time.Sleep(10 * time.Minute)
			s.unlock(s.lock(c.Mutex("/l", zklock.WithGrace(2500*time.Millisecond))))
		})
	}
}

func TestAGraceThatTheLeaseDoesNotHaveIsRefusedWithTheRule(t *testing.T) {
	simTest(t, func(s *sim) {
		c, long := s.client(), s.client(zklock.WithSessionTimeout(30*time.Second))
		for _, d := range []time.Duration{0, -1} {
			_, err := c.Mutex("/l", zklock.WithGrace(d)).Lock(s.Context())
			require.ErrorIs(s, err, zklock.ErrOption)
		}
		_, err := c.Mutex("/l", zklock.WithGrace(10*time.Second)).Lock(s.Context())
		require.ErrorIs(s, err, zklock.ErrOption)
		require.EqualError(s, err, "zklock: lock /l: bad configuration: grace 10s: is not below 2.65s, which is what a lease has left "+
			"before each heartbeat is answered, with a session timeout of 10s and a server tick of 2s: ask for a longer session timeout")
		require.Empty(s, s.srv.Children("/l"), "nothing was asked for")
		h := s.lock(long.Mutex("/l", zklock.WithGrace(10*time.Second)))
		time.Sleep(time.Hour)
		s.unlock(h)
	})
}

func TestWithAMaxHoldTheZnodeGoesAGraceAfterTheContext(t *testing.T) {
	simTest(t, func(s *sim) {
		h := s.lock(s.client().Mutex("/l", zklock.WithMaxHold(time.Minute), zklock.WithGrace(graceOf)))
		next := simGo(s.Context(), s.client().Mutex("/l").Lock)
		start := time.Now()
		<-h.Context().Done()
		require.Equal(s, time.Minute, time.Since(start))
		require.ErrorIs(s, h.Err(), zklock.ErrMaxHold)
		s.unlock(next.get(s))
		require.Equal(s, time.Minute+graceOf, next.at.Sub(start))

		again := s.lock(s.client().Mutex("/l", zklock.WithMaxHold(time.Minute), zklock.WithGrace(graceOf)))
		next = simGo(s.Context(), s.client().Mutex("/l").Lock)
		<-again.Context().Done()
		require.ErrorIs(s, again.Unlock(s.Context()), zklock.ErrMaxHold)
		synctest.Wait()
		require.True(s, next.over(), "the holder has said that its work has stopped")
		s.unlock(next.get(s))
	})
}

// A znode that the process has kept is handed to a call with a grace, without a request: not before the lease has it.
func TestAHoldWithAGraceOnAKeptZnodeBeginsWithItsLease(t *testing.T) {
	simTest(t, func(s *sim) {
		c := s.client()
		m := c.Mutex("/l", zklock.WithLocalHandoff(3), zklock.WithIdleKeep(time.Minute), zklock.WithGrace(2200*time.Millisecond))
		s.unlock(s.lock(m))
		s.srv.Inject(zktest.DelayReply(1600 * time.Millisecond).Session(c.id()))
		for range 300 {
			time.Sleep(370 * time.Millisecond)
			h := s.lock(m)
			require.NoError(s, h.Err())
			s.unlock(h)
		}
	})
}
