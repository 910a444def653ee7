package zklock_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/internal/locktest"
	"github.com/zklock/locker/zklock"
	"github.com/zklock/locker/zktest"
)

func TestBeyondAllSessionsALockIsRefusedUntilThereIsRoom(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T, srv *zktest.Server) {
		c := dialCramped(t, srv)
		long := "/" + strings.Repeat("x", 3900) // four in a session
		var holds []*zklock.Hold
		var err error
		for i := 0; ; i++ {
			var h *zklock.Hold
			if h, err = c.Mutex(fmt.Sprintf("%s/%d", long, i)).Lock(locktest.Soon(t)); err != nil {
				break
			}
			holds = append(holds, h)
		}
		require.ErrorIs(t, err, zklock.ErrNoRoom)
		require.ErrorContains(t, err, "the 32 sessions of this client are full (WithEphemeralBytes)")
		require.Len(t, srv.Sessions(), 32)
		require.Len(t, holds, 32*4)
		ephemeralsWithin(t, srv, leastRoom)
		locktest.Unlock(t, holds[77])
		locktest.Unlock(t, locktest.Lock(t, c.Mutex(long)))
	})
}

func TestAMultiLockThatIsTooLargeForASessionIsRefused(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T, srv *zktest.Server) {
		c := dialCramped(t, srv)
		var paths []string
		for i := range 250 {
			paths = append(paths, fmt.Sprintf("/m/%d", i))
		}
		h := locktest.Lock(t, c.Mutex("/other"))
		_, err := c.MultiLock(paths).Lock(locktest.Soon(t))
		require.ErrorIs(t, err, zklock.ErrNoRoom)
		require.ErrorContains(t, err, "of 16384 are used")
		require.LessOrEqual(t, len(c.Status().Sessions), 2)
		all, err := c.MultiLock(paths[:200]).Lock(locktest.Soon(t)) // it fits in an empty one
		require.NoError(t, err)
		require.NotEqual(t, ownerOf(t, srv, h), ownerOf(t, srv, all))
		ephemeralsWithin(t, srv, leastRoom)
	})
}

func TestACallThatWaitsForAFurtherSessionTakesRoomThatComesFreeInTheFirst(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T, srv *zktest.Server) {
		c := dialCramped(t, srv)
		full := fillFirst(t, c)
		first, err := c.Session(locktest.Soon(t))
		require.NoError(t, err)
		srv.Inject(zktest.Refuse()) // as a server does that has too many connections from our address
		got := make(chan error, 1)
		go func() {
			h, err := c.Mutex("/l").Lock(locktest.Within(t, time.Hour))
			if err == nil {
				err = h.Unlock(locktest.Soon(t))
			}
			got <- err
		}()
		time.Sleep(10 * time.Second)
		require.Empty(t, got)
		require.Len(t, c.Status().Sessions, 2)
		for _, path := range full {
			require.NoError(t, first.Delete(locktest.Soon(t), path, -1))
		}
		time.Sleep(2 * time.Second)
		require.Len(t, got, 1, "it waits for a session that it does not need any more")
		require.NoError(t, <-got)
	})
}
