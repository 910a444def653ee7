package zklock_test

import (
	"context"
	"testing"
	"time"

	"github.com/zklock/locker/internal/locktest"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/zklock"
)

// Scenario 50, for the data of the directory itself: somebody else keeps 1 MB at a lock's path, and a burst of calls that
// read the directory's data (a semaphore's size, a lock delay's claims) costs no other hold of the client.
func TestScenario50_MuchDataAtALocksPathCostNoOtherHold(t *testing.T) {
	for name, call := range map[string]func(c *zklock.Client, dir string) func(context.Context) (*zklock.Hold, error){
		"semaphore": func(c *zklock.Client, dir string) func(context.Context) (*zklock.Hold, error) {
			return func(ctx context.Context) (*zklock.Hold, error) { return c.Semaphore(dir, 3).Acquire(ctx, 1) }
		},
		"lock delay": func(c *zklock.Client, dir string) func(context.Context) (*zklock.Hold, error) {
			return c.RWMutex(dir, zklock.WithLockDelay(0)).RLock
		},
	} {
		t.Run(name, func(t *testing.T) {
			locktest.Simulate(t, func(s *locktest.Sim) {
				dir, c := s.Dir("/l"), slowClient(s, 5_000_000)
				require.NoError(s, s.Server.SetData(dir, bulk))
				other, err := c.Mutex("/other").Lock(s.Context())
				require.NoError(s, err)
				ends := make(chan error, 100) // 20 s for their data, if all asked at once
				for range cap(ends) {
					go func() {
						_, err := call(c, dir)(s.Context())
						ends <- err
					}()
				}
				for range cap(ends) {
					require.ErrorIs(s, <-ends, zklock.ErrConflict)
				}
				time.Sleep(time.Minute)
				require.NoError(s, other.Err())
			})
		})
	}
}
