package zklock_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/internal/locktest"
	"github.com/zklock/locker/internal/trusted"
	"github.com/zklock/locker/zklock"
	"github.com/zklock/locker/zktest"
)

// A caller that learns of the session's end and locks again at once may come before the kept turns have been notified.
func TestALockAtTheMomentAtWhichItsKeptTurnEndsIsNotForgotten(t *testing.T) {
	for _, try := range []bool{false, true} {
		t.Run(fmt.Sprintf("try %v", try), func(t *testing.T) {
			locktest.Simulate(t, func(s *locktest.Sim) {
				c := s.Client()
				const n = 50
				other := s.Lock(c.Mutex("/other"))
				errs := make(chan error, n)
				for i := range n {
					m := c.Mutex(fmt.Sprintf("/l%d", i), zklock.WithLocalHandoff(5), zklock.WithIdleKeep(time.Minute))
					s.Unlock(s.Lock(m)) // kept
					go func() {
						<-other.Context().Done()
						ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
						defer cancel()
						lock := m.Lock
						if try {
							lock = m.TryLock
						}
						h, err := lock(ctx)
						if err == nil {
							err = h.Unlock(ctx)
						}
						if err == nil { // kept, and found again
							var next *zklock.Hold
							if next, err = m.Lock(ctx); err == nil {
								err = next.Unlock(ctx)
								if next.Token() != h.Token() {
									err = fmt.Errorf("token %d after %d: the turn was not kept", next.Token(), h.Token())
								}
							}
						}
						errs <- err
					}()
				}
				time.Sleep(time.Second)
				in := s.Server.Inject(zktest.Freeze()) // until the lease is over
				time.AfterFunc(15*time.Second, in.Remove)
				for range n {
					require.NoError(s, <-errs)
				}
			})
		})
	}
}

// The lease is over, and Lock is the first to look at the clock.
func TestALockQueuesAnewWhenItFindsTheKeptTurnLost(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		c := s.Client()
		m := c.Mutex("/l", zklock.WithLocalHandoff(5), zklock.WithIdleKeep(time.Minute))
		s.Unlock(s.Lock(m))
		time.Sleep(time.Second)
		c.Current().ForLocks(trusted.Caller{}).Abandon() // as by any other end, and before any notification of it
		ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
		defer cancel()
		h, err := m.Lock(ctx)
		require.NoError(s, err)
		s.Unlock(h)
	})
}
