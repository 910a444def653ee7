package zklock_test

import (
	"context"
	"testing"
	"time"

	"github.com/zklock/locker/internal/locktest"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/zklock"
	"github.com/zklock/locker/zktest"
)

// Scenario 56: writes take longer than a quarter of the timeout, on every server. Locks are taken, kept and handed over
// all the same.
func TestScenarioLocksWorkWhileWritesAreSlow(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		a, b := s.Client(), s.Client()
		s.Server.Inject(zktest.DelayReply(3*time.Second).Op(zktest.OpCreate, zktest.OpDelete, zktest.OpSetData, zktest.OpMulti, zktest.OpSync))
		for range 5 {
			for _, c := range []*locktest.Client{a, b} {
				ctx, cancel := context.WithTimeout(s.Context(), 2*time.Minute)
				began := time.Now()
				hold, err := c.Mutex("/locks/slow").Lock(ctx)
				require.NoError(s, err)
				s.Logf("locked after %v", time.Since(began))
				time.Sleep(30 * time.Second)
				require.NoError(s, hold.Err())
				require.NoError(s, hold.Unlock(ctx))
				cancel()
			}
		}
	})
}

// Scenarios 51 and 52: a directory whose list no client can read fails the lock in it, and not the client's other locks; and
// so does a transaction that no server would take.
func TestScenarioWhatIsTooLargeFailsItsOwnLock(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		c := s.Client()
		other, err := c.Mutex("/locks/other").Lock(s.Context())
		require.NoError(s, err)
		require.NoError(s, s.Server.Create("/locks/long", nil))
		name := make([]byte, 900<<10)
		for i := range name {
			name[i] = 'n'
		}
		for i := range 40 {
			require.NoError(s, s.Server.Create("/locks/long/"+string(rune('a'+i%26))+string(rune('a'+i/26))+string(name), nil))
		}
		connects := s.Server.Requests()[zktest.OpConnect]
		for range 3 {
			_, err = c.Mutex("/locks/long").Lock(s.Context())
			require.ErrorIs(s, err, zklock.ErrTooLarge)
			require.Less(s, len(err.Error()), 400)
			_, err = c.Mutex("/locks/long").TryLock(s.Context())
			require.ErrorIs(s, err, zklock.ErrTooLarge)
		}
		time.Sleep(5 * time.Second)
		for _, name := range s.Server.Children("/locks/long") {
			require.Greater(s, len(name), 1000, "nothing of ours is left there")
		}

		paths := make([]string, 20)
		for i := range paths {
			paths[i] = "/locks/m" + string(rune('a'+i))
		}
		ctx, cancel := context.WithTimeout(s.Context(), time.Minute)
		defer cancel()
		_, err = c.MultiLock(paths, zklock.WithData(make([]byte, 60<<10))).Lock(ctx)
		require.ErrorIs(s, err, zklock.ErrTooLarge)

		require.Equal(s, connects, s.Server.Requests()[zktest.OpConnect], "no connection was lost")
		require.NoError(s, other.Check(s.Context()))
		require.NoError(s, other.Unlock(s.Context()))
	})
}
