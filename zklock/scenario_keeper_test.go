package zklock_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/internal/locktest"
	"github.com/zklock/locker/zklock"
	"github.com/zklock/locker/zktest"
)

// Scenario 66, from a user's view: ClickHouse Keeper, which has no removeWatches, resumes no session and in old versions has no
// containers. session/conn_unresumable_test.go tests single requests there.

// onKeepers runs f on a ClickHouse Keeper of each version.
func onKeepers(t *testing.T, f func(s *locktest.Sim)) {
	t.Helper()
	for _, v := range []zktest.Version{zktest.Keeper22, zktest.Keeper26} {
		t.Run(string(v), func(t *testing.T) { locktest.Simulate(t, f, zktest.WithVersion(v)) })
	}
}

func TestScenario66_OnAKeeperAWaitThatIsGivenUpLosesNoHold(t *testing.T) {
	onKeepers(t, func(s *locktest.Sim) {
		c, other := s.Client(), s.Client()
		id := c.SessionID()
		held := s.Lock(c.Mutex("/held", zklock.WithContainer()))
		for _, kind := range anyKinds {
			dir := "/busy" + kind.mark
			theirs := s.Take(kind.lock(other.Client, dir, zklock.WithContainer()))
			ctx, cancel := context.WithTimeout(s.Context(), 2*time.Second) // long enough for its watches to be set
			_, err := kind.lock(c.Client, dir, zklock.WithContainer())(ctx)
			cancel()
			require.ErrorIs(s, err, context.DeadlineExceeded, kind.name)
			s.Until(time.Second, "the one that gave up has left the line", func() bool { return len(s.Server.Children(dir)) == 1 })
			require.NoError(s, held.Check(s.Context()), kind.name)
			s.Unlock(theirs)
		}
		require.Equal(s, id, c.SessionID(), "all of it took place in one session")
		require.NoError(s, held.Err())
		require.Len(s, s.Server.Sessions(), 2)
		s.Unlock(held)
		requests := s.Server.Requests()
		for _, op := range []zktest.Op{zktest.OpSetWatches, zktest.OpRemoveWatches, zktest.OpCreateContainer} {
			require.Zero(s, requests[op], op)
		}
	})
}

func TestScenario66_OnAKeeperALostConnectionLeavesNoSessionBehind(t *testing.T) {
	onKeepers(t, func(s *locktest.Sim) {
		c := s.Client()
		lost, m := c.SessionID(), c.Mutex("/l")
		h := s.Lock(m)
		s.Server.DropConnections()
		require.ErrorIs(s, locktest.End(h), zklock.ErrLeaseOver)
		next := s.Lock(m) // once the lost session's znode has been deleted with it
		require.Greater(s, next.Token(), h.Token())
		require.NotEqual(s, lost, c.SessionID())
		require.Len(s, s.Server.Sessions(), 1, "the lost session is over, and there is no third one")
		s.Unlock(next)
		require.NoError(s, c.Close())
		synctest.Wait()
		require.Empty(s, s.Server.Sessions())
	})
}
