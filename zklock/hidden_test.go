package zklock_test

import (
	"context"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/internal/session"
	"github.com/zklock/locker/tests/locktest"
	"github.com/zklock/locker/zktest"
)

// A neighbour who may only create queues, and lets the next contender set a watch. Then it removes
// READ for all from its znode's access list, and disconnects. No notification is sent (3.8.4, 3.9.2
// and later). The next contender must not wait forever for a free lock. SECURITY.md: a neighbour
// can't "keep a lock after his znodes have gone".
func TestANeighbourWhoHidesItsZnodeAndGoesKeepsNoContenderWaiting(t *testing.T) {
	for name, opts := range map[string][]zktest.Option{"3.8": nil,
		"3.9": {zktest.WithVersion(zktest.Version39)}} {
		t.Run(name, func(t *testing.T) {
			locktest.Simulate(t, func(s *locktest.Sim) {
				s.Dir("/l")
				neighbour := s.Stranger()
				node := "/l/_c_00000000-0000-4000-8000-000000000000-lock-"
				made, err := neighbour.Create(s.Context(), node, nil, session.EphemeralSequential,
					session.WorldACL())
				require.NoError(s, err)

				c := s.Client()
				call := locktest.Go(s.Context(), c.Mutex("/l").Lock)
				time.Sleep(5 * time.Second)
				require.False(s, call.Over())

				_, err = neighbour.SetACL(s.Context(), made.Path,
					zk.DigestACL(zk.PermAll, "neighbour", "x"), -1)
				require.NoError(s, err)
				require.NoError(s, neighbour.Close())
				require.NotContains(s, s.Server.Nodes(), made.Path, "nobody else is in line")

				s.Until(10*time.Minute, "the only one in line has the lock", call.Over)
				s.Unlock(call.Get(s))
			}, opts...)
		})
	}
}

// The same for others who wait for the end of a znode: an observer of an election, a reader behind
// a writer.
func TestANeighbourWhoHidesItsZnodeAndGoesFromOnlookersAndReaders(t *testing.T) {
	hide := func(s *locktest.Sim, neighbour *session.Session, node string) {
		_, err := neighbour.SetACL(s.Context(), node, zk.DigestACL(zk.PermAll, "neighbour", "x"),
			-1)
		require.NoError(s, err)
		require.NoError(s, neighbour.Close())
	}
	queue := func(s *locktest.Sim, mark string) (*session.Session, string) {
		neighbour := s.Stranger()
		made, err := neighbour.Create(s.Context(),
			"/l/_c_00000000-0000-4000-8000-000000000000-"+
				mark, nil, session.EphemeralSequential, session.WorldACL())
		require.NoError(s, err)
		return neighbour, made.Path
	}
	t.Run("Observe", func(t *testing.T) {
		locktest.Simulate(t, func(s *locktest.Sim) {
			s.Dir("/l")
			n, node := queue(s, "lock-")
			c := s.Client()
			ctx, cancel := context.WithCancel(s.Context())
			changes := make(chan error, 10)
			go func() {
				for _, err := range c.Election("/l").Observe(ctx) {
					changes <- err
				}
				close(changes)
			}()
			time.Sleep(5 * time.Second)
			hide(s, n, node)
			_, l, err := s.Client().Election("/l").Campaign(s.Context(), []byte("new"))
			require.NoError(s, err)
			defer cancel()
			s.Until(10*time.Minute, "the observer hears of the new leader", func() bool {
				return len(changes) >= 3
			})
			require.NoError(s, l.Unlock())
		})
	})
	t.Run("a reader behind a writer", func(t *testing.T) {
		locktest.Simulate(t, func(s *locktest.Sim) {
			s.Dir("/l")
			n, node := queue(s, "__WRIT__")
			call := locktest.Go(s.Context(), s.Client().RWMutex("/l").RLock)
			time.Sleep(5 * time.Second)
			hide(s, n, node)
			s.Until(10*time.Minute, "the reader holds", call.Over)
			s.Unlock(call.Get(s))
		})
	})
}
