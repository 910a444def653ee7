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

// A hold learns of the deletion of its znode by a heartbeat. It must free
// its room in the session then: otherwise further sessions would be opened, up to ErrNoRoom, although the ensemble has no
// znode of them. "Nothing in the process grows with the number of past calls."
func TestAHoldThatIsLostGivesItsRoomBack(t *testing.T) {
	for name, k := range map[string]struct {
		opts []zklock.LockOption
		age  time.Duration // of the hold, when its znode is deleted
	}{
		"by a heartbeat, which may not read its znode": {[]zklock.LockOption{zklock.WithACL(zk.WorldACL(zk.PermCreate | zk.PermDelete | zk.PermWrite)...)}, time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			locktest.Simulate(t, func(s *locktest.Sim) {
				s.Dir("/l")
				c := s.Client(zklock.WithEphemeralBytes(16 << 10))
				for range 400 {
					h := s.Lock(c.Mutex("/l", k.opts...))
					time.Sleep(k.age)
					synctest.Wait()
					require.NoError(s, s.Server.Delete(h.Node()))
					require.ErrorIs(s, locktest.End(h), zklock.ErrNodeDeleted)
					require.ErrorIs(s, h.Unlock(s.Context()), zklock.ErrNodeDeleted)
				}
				time.Sleep(10 * time.Minute)
				st := c.Status()
				require.Zero(s, st.Session.EphemeralBytes, "nothing stands at the ensemble")
				require.Len(s, st.Sessions, 1)
			})
		})
	}
}
