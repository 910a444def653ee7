package zklock_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/internal/locktest"
	"github.com/zklock/locker/zklock"
	"github.com/zklock/locker/zktest"
)

// A holder releases between the two reads of a newcomer: the data still have its note, and the list no longer has its znode.
// It must not be taken for lost, which would cost its whole delay. "WithLockDelay keeps the lock from the next holder for d
// after a loss (not after a release)".
func TestAReleaseBetweenTheReadsOfALockDelayIsNoLoss(t *testing.T) {
	for name, kind := range map[string]func(c *zklock.Client) func() (*zklock.Hold, error){
		"semaphore": func(c *zklock.Client) func() (*zklock.Hold, error) {
			m := c.Semaphore("/l", 5, zklock.WithLockDelay(time.Hour))
			return func() (*zklock.Hold, error) { return m.Acquire(context.Background(), 1) }
		},
		"readers": func(c *zklock.Client) func() (*zklock.Hold, error) {
			m := c.RWMutex("/l", zklock.WithLockDelay(time.Hour))
			return func() (*zklock.Hold, error) { return m.RLock(context.Background()) }
		},
		"semaphore, try": func(c *zklock.Client) func() (*zklock.Hold, error) {
			m := c.Semaphore("/l", 5, zklock.WithLockDelay(time.Hour))
			return func() (*zklock.Hold, error) { return m.TryAcquire(context.Background(), 1) }
		},
	} {
		t.Run(name, func(t *testing.T) {
			locktest.Simulate(t, func(s *locktest.Sim) {
				a, b := s.Client(), s.Client()
				first, err := kind(a.Client)()
				require.NoError(s, err)

				// B has read the data, and its list is under way.
				skip := 1 // behind the create
				if name == "semaphore, try" {
					skip = 2 // and one before it
				}
				held := s.Server.Inject(zktest.Hold().Op(zktest.OpGetChildren2).Path("/l").Session(b.SessionID()).After(skip).Once())
				type result struct {
					h   *zklock.Hold
					err error
				}
				got := make(chan result, 1)
				began := time.Now()
				go func() {
					h, err := kind(b.Client)()
					got <- result{h, err}
				}()
				<-held.Hit()
				s.Unlock(first)
				held.Release()
				synctest.Wait()
				r := <-got
				require.NoError(s, r.err)
				require.Less(s, time.Since(began), time.Second, "all permits are free, and nobody was lost")
				s.Unlock(r.h)
			})
		})
	}
}

// After a loss, callers that each wait for less than the delay must get the lock once the delay has passed: the first one
// records when the loss was noticed, so that the later ones do not count from the beginning.
func TestALockDelayEndsAlsoForCallsThatWaitForLess(t *testing.T) {
	for name, try := range map[string]func(ctx context.Context, m *zklock.Mutex) (*zklock.Hold, error){
		"TryLock": func(ctx context.Context, m *zklock.Mutex) (*zklock.Hold, error) { return m.TryLock(ctx) },
		"Lock with a deadline": func(ctx context.Context, m *zklock.Mutex) (*zklock.Hold, error) {
			ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
			defer cancel()
			return m.Lock(ctx)
		},
	} {
		t.Run(name, func(t *testing.T) {
			locktest.Simulate(t, func(s *locktest.Sim) {
				const delay = time.Minute
				a, b := s.Client(), s.Client()
				h := s.Lock(a.Mutex("/l", zklock.WithLockDelay(delay)))
				require.NoError(s, s.Server.Delete(h.Node()))
				lost := time.Now()
				for {
					next, err := try(s.Context(), b.Mutex("/l", zklock.WithLockDelay(delay)))
					if err == nil {
						s.Unlock(next)
						return
					}
					require.Less(s, time.Since(lost), 30*delay, "nobody has held the lock, or waited for it, for that long: %v", err)
					time.Sleep(time.Second)
				}
			})
		})
	}
}

// The note of a lost holder is in the directory's data: with a container it would be deleted when no client comes for minutes.
func TestALockDelayIsRefusedWithAContainer(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		_, err := s.Client().Mutex("/l", zklock.WithLockDelay(time.Minute), zklock.WithContainer()).TryLock(s.Context())
		require.ErrorIs(s, err, zklock.ErrOption)
		require.ErrorContains(s, err, "the note of a lost holder would go with the container")
	})
}
