package zklock_test

import (
	"context"
	"path"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/tests/locktest"
	"github.com/zklock/locker/zklock"
	"github.com/zklock/locker/zktest/fault"
)

// asked returns the number of requests to the server, without heartbeats and handshakes.
func asked(s *locktest.Sim) int {
	n := 0
	for op, count := range s.Server.Requests() {
		switch op {
		case fault.OpPing, fault.OpSync, fault.OpMulti, fault.OpConnect, fault.OpSetWatches, fault.OpCloseSession:
		default:
			n += count
		}
	}
	return n
}

// inLine makes n goroutines queue for m, one after the other.
func inLine(s *locktest.Sim, m *zklock.Mutex, n int) []*locktest.Call {
	calls := make([]*locktest.Call, n)
	for i := range calls {
		calls[i] = locktest.Go(s.Context(), m.Lock)
		synctest.Wait()
	}
	return calls
}

// clean requires that nothing is left: no znode in dir, no watch, no retained wait.
func clean(s *locktest.Sim, dir string) {
	s.Helper()
	s.Empty(time.Minute, dir)
	s.Until(time.Minute, "no watch left", func() bool { return s.Server.WatchCount() == 0 })
}

func TestGoroutinesOfOneProcessShareAZnode(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		m := s.Client().Mutex("/l", zklock.WithLocalHandoff())
		first := s.Lock(m)
		calls := inLine(s, m, 5)
		require.Len(s, s.Server.Children("/l"), 1)
		before := s.Server.Requests()
		last := first
		for _, c := range calls {
			require.False(s, c.Over(), "the lock is held")
			s.Unlock(last)
			h := c.Get(s)
			require.Equal(s, zklock.ErrUnlocked, last.Err())
			require.NoError(s, h.Err())
			require.NotSame(s, last, h)
			require.Equal(s, first.Node(), h.Node())
			require.Equal(s, first.Token(), h.Token(), "one znode, one token")
			last = h
		}
		require.Equal(s, before, s.Server.Requests(), "handed on without a request")
		s.Unlock(last)
		clean(s, "/l")

		again := s.Lock(m)
		require.Greater(s, again.Token(), first.Token(), "another znode")
		s.Unlock(again)
		clean(s, "/l")
	})
}

func TestLocalWaitersAreServedInOrderOfArrivalAndNoCallerBarges(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		m := s.Client().Mutex("/l", zklock.WithLocalHandoff())
		h := s.Lock(m)
		var mu sync.Mutex
		var order []int
		var all sync.WaitGroup
		for i := range 20 {
			all.Go(func() {
				_, h, err := m.Lock(s.Context())
				if err != nil {
					s.Error(err)
					return
				}
				mu.Lock()
				order = append(order, i)
				mu.Unlock()
				if err := h.Unlock(); err != nil {
					s.Error(err)
				}
			})
			synctest.Wait()
		}
		s.Unlock(h)
		late := s.Lock(m) // last in line, although it calls at the moment of the release
		mu.Lock()
		require.Len(s, order, 20)
		mu.Unlock()
		s.Unlock(late)
		all.Wait()
		for i := range order {
			require.Equal(s, i, order[i])
		}
	})
}

func TestTryLockOfAProcessThatHoldsOrWaitsIsBusyWithoutARequest(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		m := s.Client().Mutex("/l", zklock.WithLocalHandoff(), zklock.WithOwner("me"))
		_, h, err := m.TryLock(s.Context())
		require.NoError(s, err)
		before := asked(s)
		_, _, err = m.TryLock(s.Context())
		require.ErrorIs(s, err, zklock.ErrBusy)
		require.ErrorContains(s, err, "held by me (")
		calls := inLine(s, m, 2)
		time.Sleep(time.Millisecond)
		_, _, err = m.TryLock(s.Context())
		require.ErrorContains(s, err, "2 waiting")
		require.Equal(s, before+1, asked(s), "the list that handing on needs")
		s.Unlock(h)
		for _, c := range calls {
			s.Unlock(c.Get(s))
		}
		clean(s, "/l")

		outside := s.Lock(s.Client().Mutex("/l"))
		w := locktest.Go(s.Context(), m.Lock)
		require.False(s, w.Over())
		before = asked(s)
		_, _, err = m.TryLock(s.Context())
		require.ErrorIs(s, err, zklock.ErrBusy)
		require.ErrorContains(s, err, path.Base(outside.Node())+", 1 waiting")
		require.Equal(s, before, asked(s))
		s.Unlock(outside)
		s.Unlock(w.Get(s))
		clean(s, "/l")

		outside = s.Lock(s.Client().Mutex("/l"))
		_, _, err = m.TryLock(s.Context())
		require.ErrorIs(s, err, zklock.ErrBusy)
		_, _, err = s.Client().Mutex("/l", zklock.WithLocalHandoff(), zklock.WithMaxWait(0)).Lock(s.Context())
		require.ErrorIs(s, err, zklock.ErrBusy)
		s.Unlock(outside)
		_, h, err = m.TryLock(s.Context())
		require.NoError(s, err)
		s.Unlock(h)
		clean(s, "/l")
	})
}

func TestLocksThatMakeOtherZnodesExcludeEachOtherThroughTheEnsemble(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		c := s.Client()
		a := c.Mutex("/l", zklock.WithLocalHandoff())
		b := c.Mutex("/l", zklock.WithLocalHandoff(), zklock.WithOwner("b"))
		h := s.Lock(a)
		w, plain := inLine(s, b, 1)[0], inLine(s, c.Mutex("/l"), 1)[0]
		same := c.Mutex("/l", zklock.WithMaxHold(time.Hour), zklock.WithLocalHandoff(), zklock.WithReentrancy())
		joined := locktest.Go(s.Context(), same.Lock)
		require.False(s, w.Over() || plain.Over() || joined.Over())
		require.Len(s, s.Server.Children("/l"), 3)
		s.Unlock(h)
		next := joined.Get(s)
		require.Equal(s, h.Token(), next.Token())
		s.Unlock(next)
		for _, c := range []*locktest.Call{w, plain} {
			got := c.Get(s)
			require.Greater(s, got.Token(), h.Token())
			s.Unlock(got)
		}
		clean(s, "/l")
	})
}

func TestReentrancyAndDeadlockUnderAHandedOnHold(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		c := s.Client()
		plain := c.Mutex("/l", zklock.WithLocalHandoff())
		again := c.Mutex("/l", zklock.WithLocalHandoff(), zklock.WithReentrancy())
		first := s.Lock(plain)
		w := locktest.Go(s.Context(), plain.Lock)
		require.False(s, w.Over())
		s.Unlock(first)
		h := w.Get(s)
		under, cancel := context.WithTimeout(h.Context(), time.Minute)
		defer cancel()
		_, _, err := plain.Lock(under)
		require.ErrorIs(s, err, zklock.ErrDeadlock)
		_, _, err = plain.TryLock(h.Context())
		require.ErrorIs(s, err, zklock.ErrDeadlock)
		var nested []*zklock.Hold
		for range 3 {
			_, n, err := again.Lock(h.Context())
			require.NoError(s, err)
			nested = append(nested, n)
		}
		next := locktest.Go(s.Context(), plain.Lock)
		s.Unlock(h)
		require.Equal(s, zklock.ErrUnlocked, context.Cause(h.Context()))
		for _, n := range nested {
			require.NoError(s, n.Err())
			require.False(s, next.Over(), "it is held still")
			s.Unlock(n)
			require.ErrorIs(s, n.Err(), zklock.ErrUnlocked)
		}
		last := next.Get(s)
		_, n, err := again.Lock(last.Context())
		require.NoError(s, err)
		s.Unlock(n)
		require.NoError(s, last.Err(), "the inner one was released, not the outer")
		got, ok := zklock.HoldFrom(n.Context(), "/l")
		require.True(s, ok)
		require.Same(s, n, got)
		s.Unlock(last)
		require.ErrorIs(s, last.Unlock(), zklock.ErrUnlocked)
		clean(s, "/l")
	})
}

func TestTheEndOfASharedHoldReachesItsReentrantOnes(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		m := s.Client().Mutex("/l", zklock.WithLocalHandoff(), zklock.WithReentrancy())
		h := s.Lock(m)
		_, n, err := m.Lock(h.Context())
		require.NoError(s, err)
		w := locktest.Go(s.Context(), m.Lock)
		require.False(s, w.Over())
		require.NoError(s, s.Server.Delete(h.Node()))
		next := w.Get(s)
		require.ErrorIs(s, h.Err(), zklock.ErrNodeDeleted)
		require.ErrorIs(s, n.Err(), zklock.ErrNodeDeleted)
		require.Greater(s, next.Token(), h.Token())
	})
}

func TestWhenTheLastWaiterGoesTheZnodeGoes(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		other := s.Client()
		outside := s.Lock(other.Mutex("/l"))
		c := s.Client()
		before := locktest.Goroutines()
		m := c.Mutex("/l", zklock.WithLocalHandoff())
		for round := range 10 {
			ctx, cancel := context.WithCancel(s.Context())
			var calls []*locktest.Call
			for range 100 {
				calls = append(calls, locktest.Go(ctx, m.Lock))
			}
			time.Sleep(time.Duration(round) * 50 * time.Millisecond) // from before its create until it watches
			cancel()
			for _, w := range calls {
				require.True(s, w.Over())
				require.ErrorIs(s, w.Err, context.Canceled)
			}
			require.Len(s, s.Server.Children("/l"), 1, "round %d", round)
			require.Empty(s, s.Watched(c.SessionID()))
			require.Zero(s, zklock.LocalQueues(c.Client))
			require.Equal(s, before, locktest.Goroutines())
			_, _, err := m.TryLock(s.Context())
			require.ErrorIs(s, err, zklock.ErrBusy)
		}
		s.Unlock(outside)
		_, h, err := m.TryLock(s.Context())
		require.NoError(s, err)
		s.Unlock(h)
	})
}
