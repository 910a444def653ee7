package zklock_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/zklock"
)

// A hold that was held for too long counts as lost, also when its holder lets go at that very moment: for a lock of
// several paths there are two then who give up the places.
func TestAMultiLockThatIsUnlockedAtItsMaximumStillCountsAsLost(t *testing.T) {
	for range 20 { // either of the two may be first
		simTest(t, func(s *sim) {
			dirs, c := s.multiDirs(2), s.client()
			const delay = 2 * time.Second
			h := s.multiTake(c.MultiLock(dirs, zklock.WithMaxHold(time.Second), zklock.WithLockDelay(delay)))
			next := simGo(s.Context(), s.client().MultiLock(dirs, zklock.WithLockDelay(delay)).Lock)
			<-h.Context().Done()
			lost := time.Now()
			require.ErrorIs(s, h.Unlock(s.Context()), zklock.ErrMaxHold)
			after := next.get(s)
			require.GreaterOrEqual(s, next.at.Sub(lost), delay, "the next holder waits out the delay")
			s.unlock(after)
			s.multiEmpty(0, dirs)
		})
	}
}
