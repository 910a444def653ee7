package zklock_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/internal/session"
	"github.com/zklock/locker/tests/locktest"
	"github.com/zklock/locker/zklock"
)

// scenario 13: Unlock while no server is reachable for longer than the session timeout: it returns
// within its ctx, goroutines stay bounded, and the ensemble expires the znode.
func TestScenario13_UnlockWithoutAServerReturnsWithinItsContextAndLeavesNothing(t *testing.T) {
	const holds = 40
	locktest.Simulate(t, func(s *locktest.Sim) {
		s.Dir("/locks")
		a, b := s.Client(), s.Client()
		idle, old := locktest.Goroutines(), a.SessionID()
		var held []*zklock.Hold
		for i := range holds {
			held = append(held, s.Lock(a.Mutex("/locks/"+string(rune('A'+i)))))
		}
		s.Server.Leader().Down()
		s.Until(time.Second, "the connection is known to be gone", func() bool {
			return a.SessionStatus().State != session.Connected
		})
		var wg sync.WaitGroup
		errs, spent := make([]error, holds), make([]time.Duration, holds)
		for i, h := range held {
			wg.Go(func() {
				began := time.Now()
				errs[i] = h.Unlock()
				spent[i] = time.Since(began)
			})
		}
		wg.Wait()
		for i := range held {
			require.NoError(s, errs[i])
			require.Zero(s, spent[i], "at once")
			require.ErrorIs(s, held[i].Err(), zklock.ErrUnlocked)
		}
		require.LessOrEqual(s, locktest.Goroutines(), idle+2*holds,
			"one for each znode that is still to be deleted")
		time.Sleep(10 * time.Second)
		require.LessOrEqual(s, locktest.Goroutines(), idle+8,
			"the session is over, and with it all that worked for it")
		for range 100 { // calls that fail meanwhile leave nothing either
			ctx, cancel := context.WithTimeout(s.Context(), 10*time.Millisecond)
			_, _, err := a.Mutex("/locks/A").Lock(ctx)
			cancel()
			require.ErrorIs(s, err, context.DeadlineExceeded)
		}
		require.LessOrEqual(s, locktest.Goroutines(), idle+8)
		s.Server.Leader().Up()
		time.Sleep(time.Minute)
		for i := range holds {
			require.Empty(s, s.Server.Children("/locks/"+string(rune('A'+i))),
				"the ensemble has expired the session")
		}
		for i := range holds {
			s.Unlock(s.Lock(b.Mutex("/locks/" + string(rune('A'+i)))))
		}
		s.Unlock(s.Lock(a.Mutex("/locks/A")))
		require.NotEqual(s, old, a.SessionID())
		require.LessOrEqual(s, locktest.Goroutines(), idle+2)
	})
}
