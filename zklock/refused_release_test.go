package zklock_test

import (
	"context"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/tests/locktest"
	"github.com/zklock/locker/zklock"
	"github.com/zklock/locker/zktest"
	"github.com/zklock/locker/zktest/fault"
)

// grant makes perms the permissions of every client at path.
func grant(t *testing.T, c *zklock.Client, path string, perms int32) {
	t.Helper()
	s, err := c.Session(t.Context())
	require.NoError(t, err)
	_, err = s.SetACL(t.Context(), path, zk.WorldACL(perms), -1)
	require.NoError(t, err)
}

// lockWithin locks m, which has to be free within limit.
func lockWithin(t *testing.T, m *zklock.Mutex, limit time.Duration) *zklock.Hold {
	t.Helper()
	_, hold, err := m.Lock(locktest.Within(t, limit))
	require.NoError(t, err)
	return hold
}

const allButDelete = zk.PermAll &^ zk.PermDelete

// Scenario 91. The permission to delete is missing for a while.
func TestAReleaseThatWasRefusedIsMadeOnceItIsAllowed(t *testing.T) {
	for _, missing := range []time.Duration{time.Second, time.Minute, time.Hour} {
		t.Run(missing.String(), func(t *testing.T) {
			locktest.Bubble(t, func(t *testing.T, srv *zktest.Server) {
				holder, next := locktest.Dial(t, srv), locktest.Dial(t, srv)
				hold := locktest.Lock(t, holder.Mutex("/l"))
				grant(t, holder, "/l", allButDelete)

				err := hold.Unlock()
				require.ErrorIs(t, err, zk.ErrNoAuth, "the lock stays taken")
				require.NotErrorIs(t, err, zklock.ErrLost, "it was ours until now")
				time.Sleep(missing)
				before := srv.Requests()[fault.OpDelete]
				time.Sleep(10 * time.Minute)
				require.LessOrEqual(t, srv.Requests()[fault.OpDelete]-before, 20,
					"it is tried now and then")
				require.Len(t, srv.Children("/l"), 1)

				grant(t, holder, "/l", zk.PermAll)
				locktest.Unlock(t, lockWithin(t, next.Mutex("/l"), 2*time.Minute))
				require.Empty(t, srv.Children("/l"))
			})
		})
	}
}

func TestWorkIsDoneAlthoughTheReleaseIsRefused(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T, srv *zktest.Server) {
		c := locktest.Dial(t, srv)
		require.NoError(t, c.Mutex("/l").Do(t.Context(), func(context.Context) error {
			grant(t, c, "/l", allButDelete)
			return nil
		}), "fn has returned nil while the lock was held")
		grant(t, c, "/l", zk.PermAll)
	})
}

// Scenario 91. A call gives up its place, and may not delete it.
func TestAPlaceThatWasGivenUpGoesOnceThatIsAllowed(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T, srv *zktest.Server) {
		holder, waiter, next := locktest.Dial(t, srv), locktest.Dial(t, srv), locktest.Dial(t, srv)
		hold := locktest.Lock(t, holder.Mutex("/l"))
		time.AfterFunc(time.Second, func() { grant(t, holder, "/l", allButDelete) })
		_, _, err := waiter.Mutex("/l").Lock(locktest.Within(t, 5*time.Second))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		time.Sleep(time.Hour)

		grant(t, holder, "/l", zk.PermAll)
		locktest.Unlock(t, hold)
		locktest.Unlock(t, lockWithin(t, next.Mutex("/l"), 2*time.Minute))
	})
}

// A create's reply is lost, its call ends, and the directory may not be listed, so nobody knows
// what was made.
func TestAZnodeThatMayHaveBeenMadeIsSearchedForOnceThatIsAllowed(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T, srv *zktest.Server) {
		owner, caller, next := locktest.Dial(t, srv), locktest.Dial(t, srv), locktest.Dial(t, srv)
		locktest.Unlock(t, locktest.Lock(t, owner.Mutex("/l")))
		grant(t, owner, "/l", zk.PermAll&^zk.PermRead)
		srv.Inject(fault.CloseAfter().Op(fault.OpCreate).Session(caller.SessionStatus().ID).Once())
		_, _, err := caller.Mutex("/l").Lock(locktest.Within(t, 5*time.Second))
		require.Error(t, err)
		require.Len(t, srv.Children("/l"), 1)
		time.Sleep(time.Hour)

		grant(t, owner, "/l", zk.PermAll)
		locktest.Unlock(t, lockWithin(t, next.Mutex("/l"), 2*time.Minute))
	})
}

// Unlock waits for the answer for about a tenth of the session timeout, also just after another
// Unlock.
func TestUnlockReturnsARefusalThatComesInTime(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T, srv *zktest.Server) {
		c := locktest.Dial(t, srv)
		a, b := locktest.Lock(t, c.Mutex("/a")), locktest.Lock(t, c.Mutex("/b"))
		grant(t, c, "/b", allButDelete)
		limit := c.SessionStatus().Timeout / 10
		locktest.Unlock(t, a)
		time.Sleep(limit/10 - time.Millisecond)
		srv.Inject(fault.DelayReply(limit * 98 / 100).Op(fault.OpDelete).Once())
		require.ErrorIs(t, b.Unlock(), zk.ErrNoAuth)
		grant(t, c, "/b", zk.PermAll)
	})
}
