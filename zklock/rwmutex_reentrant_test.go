package zklock_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/tests/locktest"
	"github.com/zklock/locker/zklock"
)

// Tests of the reentrancy of a read/write lock: which locks the context of a hold allows.

// under is call with the context of a hold.
func under(h *zklock.Hold, call locktest.Acquire) locktest.Acquire {
	return func(context.Context) (context.Context, *zklock.Hold, error) { return call(h.Context()) }
}

// A read lock under a read lock counts up with reentrancy, past a writer that waits; without, it is refused, since
// waiting behind that writer would never end.
func TestAReadUnderAReadPassesAWriterThatWaitsOnlyWithReentrancy(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		dir, c := s.Dir("/locks/a"), s.Client()
		m := c.RWMutex(dir, zklock.WithReentrancy())
		r := s.Take(m.RLock)
		writer := s.Start(s.Client().RWMutex(dir).Lock)
		second := s.Take(under(r, m.RLock))
		_, _, err := c.RWMutex(dir).RLock(r.Context())
		require.ErrorIs(s, err, zklock.ErrDeadlock)
		_, _, err = m.TryRLock(s.Context())
		require.ErrorIs(s, err, zklock.ErrBusy, "a context that does not come from the hold has to wait")
		s.Unlock(r)
		require.False(s, writer.Over())
		s.Owned(c, second)
		s.Unlock(second)
		s.Unlock(writer.Get(s))
		s.NothingLeft(dir)
	})
}

// The other of the two locks under a hold is refused at once, with reentrancy too.
func TestAReadUnderAWriteAndAWriteUnderAReadAreDeadlocks(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		dir, c := s.Dir("/locks/a"), s.Client()
		m := c.RWMutex(dir, zklock.WithReentrancy())
		w := s.Take(m.Lock)
		_, _, err := m.RLock(w.Context())
		require.ErrorIs(s, err, zklock.ErrDeadlock)
		require.ErrorContains(s, err, "as a write lock")
		s.Unlock(w)
		r := s.Take(m.RLock)
		_, _, err = m.Lock(r.Context())
		require.ErrorIs(s, err, zklock.ErrDeadlock)
		require.ErrorContains(s, err, "as a read lock")
		s.Unlock(r)
		s.NothingLeft(dir)
	})
}
