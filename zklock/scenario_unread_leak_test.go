package zklock_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/zklock/locker/internal/locktest"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/zklock"
)

// A hold whose znode its own client may not read is not told of the znode's deletion, its own Unlock: the watch must not
// stay in the session's table for that, where every reconnection would set it again.
func TestHoldsOfUnreadableZnodesLeaveNoWatches(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		dir, c := s.Dir("/l"), s.Client()
		m := c.Mutex(dir, zklock.WithACL(zk.ACL{Perms: zk.PermAll &^ zk.PermRead, Scheme: "world", ID: "anyone"}))
		for range 20 {
			h := s.Lock(m)
			time.Sleep(time.Second)
			s.Unlock(h)
		}
		synctest.Wait()
		before := s.Server.Notifications()
		reconnect(s, c)
		time.Sleep(time.Second)
		require.Zero(s, s.Server.Notifications()-before, "watches of the past are set again")
	})
}
