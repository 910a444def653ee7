package zklock_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/tests/locktest"
	"github.com/zklock/locker/zklock"
	"github.com/zklock/locker/zktest/fault"
)

// Tests of a MultiLock; what it costs is in costs_test.go.

// cost returns a function that returns the requests of a client since its last call, without heartbeats.
func cost(s *locktest.Sim, c *locktest.Client) func() map[fault.Op]int {
	id, before := c.SessionID(), map[fault.Op]int{}
	cost := func() map[fault.Op]int {
		synctest.Wait()
		info, _ := s.Server.Session(id)
		since := map[fault.Op]int{}
		for op, n := range info.Requests {
			if op != fault.OpPing && op != fault.OpSync && n > before[op] {
				since[op] = n - before[op]
			}
			before[op] = n
		}
		return since
	}
	cost()
	return cost
}

// The lists are sent right behind the transaction: at a server whose replies each take a second, acquiring five locks takes one
// second.
func TestAMultiLocksListsTravelWithItsTransaction(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		dirs, c := dirs(s, 5), s.Client()
		held := s.Server.Inject(fault.HoldReply().Op(fault.OpMulti))
		cost := cost(s, c)
		call := locktest.Go(s.Context(), c.MultiLock(dirs).Lock)
		require.False(s, call.Over())
		require.Equal(s, map[fault.Op]int{fault.OpMulti: 1, fault.OpMultiRead: 1}, cost(), "before the first reply")
		held.Remove()
		call.Get(s)
	})
}

// A long wait, or hold, costs one watch for each path, and no watch stays.
func TestAMultiLockThatLastsWatchesEachOfItsZnodesOnce(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		dirs, c := dirs(s, 3), s.Client()
		h := s.Lock(s.Client().Mutex(dirs[1]))
		call := locktest.Go(s.Context(), c.MultiLock(dirs).Lock)
		time.Sleep(locktest.LongTime)
		require.Len(s, s.Watched(c.SessionID()), 4, "its own three, and the one before it")
		cost := cost(s, c)
		s.Unlock(h)
		mine := call.Get(s)
		time.Sleep(locktest.LongTime)
		since := cost()
		delete(since, fault.OpMulti) // the heartbeats of an hour
		require.Empty(s, since, "neither the hand-over nor a long hold costs more")
		require.Len(s, s.Watched(c.SessionID()), 3)
		s.Unlock(mine)
		synctest.Wait()
		require.Empty(s, s.Watched(c.SessionID()))
	})
}

func TestAMultiLockOfPathsThatCanNotWorkIsRefusedBeforeAnyRequest(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		dirs, c := dirs(s, 2), s.Client()
		cost := cost(s, c)
		for name, bad := range map[string]struct {
			lock *zklock.MultiLock
			want error
			says string
		}{
			"none":     {c.MultiLock(nil), zklock.ErrPath, "has no paths"},
			"twice":    {c.MultiLock([]string{dirs[0], dirs[1], dirs[0]}), zklock.ErrPath, dirs[0]},
			"empty":    {c.MultiLock([]string{dirs[0], ""}), zklock.ErrPath, "empty"},
			"relative": {c.MultiLock([]string{"a", dirs[0]}), zklock.ErrPath, "a"},
			"root":     {c.MultiLock([]string{dirs[0], "/"}), zklock.ErrPath, "root"},
			"option":   {c.MultiLock(dirs, zklock.WithMaxWait(-1)), zklock.ErrInvalid, "negative"},
		} {
			for _, lock := range []func(*zklock.MultiLock, context.Context) (context.Context, *zklock.Hold, error){
				(*zklock.MultiLock).Lock, (*zklock.MultiLock).TryLock,
			} {
				ctx, cancel := context.WithTimeout(s.Context(), time.Minute)
				_, _, err := lock(bad.lock, ctx)
				cancel()
				require.ErrorIs(s, err, bad.want, name)
				require.ErrorContains(s, err, bad.says, name)
			}
			require.ErrorIs(s, bad.lock.Do(s.Context(), neverRun), bad.want, name)
		}
		require.Empty(s, cost())
	})
}

func TestAMultiLockMakesTheDirectoriesThatAreMissing(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		dirs, c := dirs(s, 1), s.Client()
		paths := []string{"/new/deep/x", dirs[0], "/new/y", "/new/deep/x/inner"}
		for range 2 {
			h := takeAll(s, c.MultiLock(paths))
			ownedAll(s, c, h, paths...)
			s.Unlock(h)
		}
		_, h, err := c.MultiLock([]string{"/try/a", "/try/b"}).TryLock(s.Context())
		require.NoError(s, err)
		s.Unlock(h)
	})
}

func TestAMultiLockUnderOnesOwnHold(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		dirs, c := dirs(s, 3), s.Client()
		again := zklock.WithReentrancy()
		h := takeAll(s, c.MultiLock(dirs[:2], again))
		_, inner, err := c.MultiLock([]string{dirs[1], dirs[0]}, again).Lock(h.Context())
		require.NoError(s, err, "the same set, whatever its order")
		require.Equal(s, h.Token(), inner.Token())
		for name, m := range map[string]*zklock.MultiLock{
			"the same set, without reentrancy": c.MultiLock(dirs[:2]),
			"an overlapping set":               c.MultiLock(dirs[1:], again),
			"a greater set":                    c.MultiLock(dirs, again),
			"a smaller set":                    c.MultiLock(dirs[:1], again),
		} {
			_, _, err := m.Lock(inner.Context())
			require.ErrorIs(s, err, zklock.ErrDeadlock, name)
			_, _, err = m.TryLock(h.Context())
			require.ErrorIs(s, err, zklock.ErrDeadlock, name)
		}
		_, _, err = c.Mutex(dirs[0]).Lock(h.Context())
		require.ErrorIs(s, err, zklock.ErrDeadlock)
		_, apart, err := c.MultiLock(dirs[2:]).Lock(h.Context())
		require.NoError(s, err, "another set has nothing to do with it")
		s.Unlock(apart)
		s.Unlock(h)
		ownedAll(s, c, inner, dirs[:2]...)
		s.Unlock(inner)
		emptyAll(s, 0, dirs)

		alone := s.Lock(c.Mutex(dirs[0]))
		_, _, err = c.MultiLock(dirs, again).Lock(alone.Context())
		require.ErrorIs(s, err, zklock.ErrDeadlock, "under a Mutex of one of its paths")
		s.Unlock(alone)
	})
}
