package zklock_test

import (
	"testing"
	"time"

	"github.com/zklock/locker/internal/locktest"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/zklock"
)

// A hold that was held for too long counts as lost, also when its holder lets go at that very moment: for a lock of
// several paths there are two then who give up the places.
func TestAMultiLockThatIsUnlockedAtItsMaximumStillCountsAsLost(t *testing.T) {
	for range 20 { // either of the two may be first
		locktest.Simulate(t, func(s *locktest.Sim) {
			dirs, c := dirs(s, 2), s.Client()
			const delay = 2 * time.Second
			h := takeAll(s, c.MultiLock(dirs, zklock.WithMaxHold(time.Second), zklock.WithLockDelay(delay)))
			next := locktest.Go(s.Context(), s.Client().MultiLock(dirs, zklock.WithLockDelay(delay)).Lock)
			<-h.Context().Done()
			lost := time.Now()
			require.ErrorIs(s, h.Unlock(s.Context()), zklock.ErrMaxHold)
			after := next.Get(s)
			require.GreaterOrEqual(s, next.At.Sub(lost), delay, "the next holder waits out the delay")
			s.Unlock(after)
			emptyAll(s, 0, dirs)
		})
	}
}
