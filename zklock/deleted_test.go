package zklock_test

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/tests/locktest"
	"github.com/zklock/locker/zklock"
	"github.com/zklock/locker/zktest"
	"github.com/zklock/locker/zktest/fault"
)

// The holder was told that its znode is gone, and asks who has deleted it; the answer is late.
// Another process's client holds by now, so no call of this process may get the lock on that znode.
func TestNoTurnIsHandedOnWhileADeletionIsExplained(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T, srv *zktest.Server) {
		ours, theirs := locktest.Dial(t, srv), locktest.Dial(t, srv)
		m := ours.Mutex("/l", zklock.WithLocalHandoff())
		first := locktest.Lock(t, m)
		time.Sleep(time.Second) // its znode is watched by now
		second := locktest.Go(t.Context(), m.Lock)
		other := locktest.Go(t.Context(), theirs.Mutex("/l").Lock)
		time.Sleep(time.Second)

		late := srv.Inject(fault.HoldReply().Op(fault.OpExists).Session(ours.SessionStatus().ID))
		require.NoError(t, srv.Delete(first.Node()))
		synctest.Wait()
		require.True(t, other.Over(), "the other client holds")
		err := first.Unlock()
		require.ErrorIs(t, err, zklock.ErrNodeGone)
		require.NotErrorIs(t, err, zklock.ErrNodeDeleted)
		synctest.Wait()
		require.False(t, second.Over(), "two would hold")
		late.Remove()
		require.NoError(t, theirs.Close())
		<-time.After(20 * time.Second)
		require.True(t, second.Over())
	})
}

// The session is ended by force while no server can be reached: work that ends just now has lost
// its lock.
func TestWorkThatEndsWhileADeletionIsExplainedHasLostItsLock(t *testing.T) {
	for _, pause := range []time.Duration{0, 10 * time.Millisecond, 50 * time.Millisecond} {
		locktest.Bubble(t, func(t *testing.T, srv *zktest.Server) {
			var away atomic.Bool
			c := locktest.Dial(t, srv,
				zklock.WithDialer(func(network, addr string, limit time.Duration) (net.Conn,
					error) {
					if away.Load() {
						return nil, net.ErrClosed
					}
					return srv.Dial(network, addr, limit)
				}))
			err := c.Mutex("/l").Do(t.Context(), func(context.Context) error {
				time.Sleep(time.Second)
				away.Store(true)
				require.NoError(t, srv.Expire(c.SessionStatus().ID))
				synctest.Wait()
				time.Sleep(pause)
				return nil
			})
			require.ErrorIs(t, err, zklock.ErrLost)
			require.ErrorIs(t, err, zklock.ErrNodeGone)
			away.Store(false)
		})
	}
}
