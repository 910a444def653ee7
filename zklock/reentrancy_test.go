package zklock_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/tests/locktest"
	"github.com/zklock/locker/zklock"
	"github.com/zklock/locker/zktest"
	"github.com/zklock/locker/zktest/fault"
)

func TestLockingAgainUnderOnesOwnHoldIsADeadlockAndNotAHang(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T, srv *zktest.Server) {
		c := locktest.Dial(t, srv)
		h := locktest.Lock(t, c.Mutex("/l"))
		writes := srv.Requests()[fault.OpCreate]
		deeper, cancel := context.WithTimeout(context.WithValue(h.Context(), struct{ k int }{}, 1), time.Hour)
		defer cancel()
		for name, call := range mutexCalls {
			start := time.Now()
			err := call(deeper, c.Mutex("/l", zklock.WithOwner("somebody else by name")))
			require.ErrorIs(t, err, zklock.ErrDeadlock, name)
			require.Zero(t, time.Since(start), name)
		}
		require.Equal(t, writes, srv.Requests()[fault.OpCreate])
		require.NoError(t, h.Err(), "the hold itself is not harmed")

		other := locktest.Lock(t, c.Mutex("/other"))
		_, _, err := c.Mutex("/l").TryLock(other.Context())
		require.ErrorIs(t, err, zklock.ErrBusy, "another lock's hold")
		require.ErrorIs(t, c.Mutex("/other").Do(other.Context(), func(context.Context) error { return nil }), zklock.ErrDeadlock)
	})
}

func TestADeadlockAcrossNestedHoldsIsFound(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T, srv *zktest.Server) {
		c := locktest.Dial(t, srv)
		outer := locktest.Lock(t, c.Mutex("/outer"))
		_, inner, err := c.Mutex("/inner").Lock(outer.Context())
		require.NoError(t, err)
		_, _, err = c.Mutex("/outer").Lock(inner.Context())
		require.ErrorIs(t, err, zklock.ErrDeadlock, "found through the hold in between")
	})
}

func TestAContextOfAHoldThatIsOverIsNoHold(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T, srv *zktest.Server) {
		c := locktest.Dial(t, srv)
		h := locktest.Lock(t, c.Mutex("/l"))
		ctx := context.WithoutCancel(h.Context())
		locktest.Unlock(t, h)
		for _, opts := range [][]zklock.LockOption{nil, {zklock.WithReentrancy()}} {
			_, next, err := c.Mutex("/l", opts...).Lock(ctx)
			require.NoError(t, err)
			require.NotEqual(t, h.Token(), next.Token())
			locktest.Unlock(t, next)
		}
	})
}

func TestAnotherClientsHoldIsAnotherHolders(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T, srv *zktest.Server) {
		a, b := locktest.Dial(t, srv), locktest.Dial(t, srv)
		h := locktest.Lock(t, a.Mutex("/l", zklock.WithReentrancy()))
		_, _, err := b.Mutex("/l", zklock.WithReentrancy()).TryLock(h.Context())
		require.ErrorIs(t, err, zklock.ErrBusy)
	})
}

func TestWithReentrancyLocksAreCounted(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T, srv *zktest.Server) {
		c := locktest.Dial(t, srv)
		m := c.Mutex("/l", zklock.WithReentrancy())
		first := locktest.Lock(t, m)
		requests := srv.Requests()[fault.OpCreate] + srv.Requests()[fault.OpGetChildren2]
		_, second, err := m.Lock(first.Context())
		require.NoError(t, err)
		_, third, err := c.Mutex("/l", zklock.WithReentrancy()).TryLock(second.Context())
		require.NoError(t, err)
		require.Equal(t, requests, srv.Requests()[fault.OpCreate]+srv.Requests()[fault.OpGetChildren2], "it costs nothing")
		require.Equal(t, first.Token(), second.Token())
		require.Equal(t, first.Node(), third.Node())

		locktest.Unlock(t, first) // in whatever order
		require.Equal(t, zklock.ErrUnlocked, first.Err())
		require.NoError(t, second.Err())
		require.NoError(t, third.Context().Err())
		locktest.Unlock(t, third)
		require.ErrorIs(t, third.Unlock(), zklock.ErrUnlocked, "counted once only")
		require.NoError(t, second.Err())
		require.Len(t, srv.Children("/l"), 1)
		_, _, err = locktest.Dial(t, srv).Mutex("/l").TryLock(locktest.Soon(t))
		require.ErrorIs(t, err, zklock.ErrBusy)
		locktest.Unlock(t, second)
		require.Empty(t, srv.Children("/l"), "the last one releases")
	})
}

func TestALossEndsAllReentrantHolds(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T, srv *zktest.Server) {
		c := locktest.Dial(t, srv)
		m := c.Mutex("/l", zklock.WithReentrancy())
		first := locktest.Lock(t, m)
		_, second, err := m.Lock(first.Context())
		require.NoError(t, err)
		time.Sleep(time.Second)
		require.NoError(t, srv.Delete(first.Node()))
		require.ErrorIs(t, locktest.End(first), zklock.ErrNodeDeleted)
		require.ErrorIs(t, locktest.End(second), zklock.ErrNodeDeleted)
		require.ErrorIs(t, first.Unlock(), zklock.ErrLost)
		require.ErrorIs(t, second.Unlock(), zklock.ErrLost)
		_, next, err := m.Lock(context.WithoutCancel(second.Context()))
		require.NoError(t, err, "a new hold, not one of the lost one")
		require.Greater(t, next.Token(), second.Token())
	})
}

func TestReentrancyFromManyGoroutines(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T, srv *zktest.Server) {
		m := locktest.Dial(t, srv).Mutex("/l", zklock.WithReentrancy())
		for range 20 {
			first := locktest.Lock(t, m)
			var wg sync.WaitGroup
			for range 10 {
				wg.Go(func() {
					_, h, err := m.Lock(context.WithoutCancel(first.Context()))
					if err != nil {
						t.Error(err)
						return
					}
					if err := h.Unlock(); err != nil {
						t.Error(err)
					}
				})
			}
			locktest.Unlock(t, first) // a call that comes later queues for its own hold
			wg.Wait()
			synctest.Wait()
			require.Empty(t, srv.Children("/l"))
		}
	})
}
