package zklock_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/zklock"
)

// A hold whose znode its own client may not read is not told of the znode's deletion, its own Unlock: the watch must not
// stay in the session's table for that, where every reconnection would set it again.
func TestHoldsOfUnreadableZnodesLeaveNoWatches(t *testing.T) {
	simTest(t, func(s *sim) {
		dir, c := s.dir("/l"), s.client()
		m := c.Mutex(dir, zklock.WithACL(zk.ACL{Perms: zk.PermAll &^ zk.PermRead, Scheme: "world", ID: "anyone"}))
		for range 20 {
			h := s.lock(m)
			time.Sleep(time.Second)
			s.unlock(h)
		}
		synctest.Wait()
		before := s.srv.Notifications()
		s.reconnect(c)
		time.Sleep(time.Second)
		require.Zero(s, s.srv.Notifications()-before, "watches of the past are set again")
	})
}
