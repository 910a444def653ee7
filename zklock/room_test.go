package zklock_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/tests/locktest"
	"github.com/zklock/locker/zklock"
)

// leastRoom is the room for ephemerals of a client for whom jute.maxbuffer is 32 KB.
const leastRoom = 16 << 10

func TestAClientWhoseSessionIsFullRefusesLocksUntilThereIsRoom(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		c := s.Client(zklock.WithJuteMaxBuffer(2 * leastRoom))
		long := "/" + strings.Repeat("x", 3900) // there is room for four
		var holds []*zklock.Hold
		for i := range 4 {
			holds = append(holds, s.Lock(c.Mutex(fmt.Sprintf("%s/%d", long, i))))
		}
		began := time.Now()
		_, _, err := c.Mutex(long).Lock(s.Context())
		require.ErrorIs(s, err, zklock.ErrSessionFull)
		require.ErrorContains(s, err, "open another Client for more locks")
		require.ErrorContains(s, err, "of 16384 are used")
		_, _, err = c.MultiLock([]string{"/a", long, "/b"}).Lock(s.Context())
		require.ErrorIs(s, err, zklock.ErrSessionFull)
		require.Zero(s, time.Since(began), "nothing is waited for")
		require.NoError(s, holds[0].Check(s.Context()), "the holds stay")

		another := s.Client(zklock.WithJuteMaxBuffer(2 * leastRoom))
		s.Unlock(s.Lock(another.Mutex(long)))
		s.Unlock(holds[2])
		s.Unlock(s.Lock(c.Mutex(long)))
	})
}

// A hold learns by a heartbeat that another client deleted its znode. It must give its room back
// then: else calls would be refused although the ensemble has no znode of theirs.
func TestAHoldThatIsLostGivesItsRoomBack(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		s.Dir("/l")
		c := s.Client(zklock.WithJuteMaxBuffer(2 * leastRoom))
		unreadable := zklock.WithACL(zk.WorldACL(zk.PermCreate | zk.PermDelete | zk.PermWrite)...)
		for range 800 { // there is room for some 500
			h := s.Lock(c.Mutex("/l", unreadable))
			time.Sleep(time.Second)
			synctest.Wait()
			require.NoError(s, s.Server.Delete(h.Node()))
			require.ErrorIs(s, locktest.End(h), zklock.ErrNodeDeleted)
			require.ErrorIs(s, h.Unlock(), zklock.ErrNodeDeleted)
		}
		require.Zero(s, c.Status().Session.EphemeralBytes, "nothing stands at the ensemble")
	})
}
