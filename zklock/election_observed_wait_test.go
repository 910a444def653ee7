package zklock_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zklock/locker/internal/locktest"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/zklock"
	"github.com/zklock/locker/zktest"
)

// A candidate and an observer of one client watch the same znode, the leader's. When that has just been set, and is
// deleted before they watch it again, the candidate must hear of it, whichever of the two asked first.
func TestACandidateLeadsThoughAnObserverOfItsClientHasFoundTheLeaderGoneFirst(t *testing.T) {
	for round := range 8 { // who asks first is up to the scheduler
		t.Run(fmt.Sprint(round), func(t *testing.T) {
			locktest.Simulate(t, func(s *locktest.Sim) {
				a, b := s.Client(), s.Client()
				ctx, cancel := context.WithCancel(s.Context())
				defer cancel()
				old := lead(s, a.Election("/vote"), "old")
				done := make(chan struct{})
				go func() {
					defer close(done)
					for range b.Election("/vote").Observe(ctx) { //nolint:revive // it only has to watch
					}
				}()
				waiter := locktest.Go(s.Context(), func(ctx context.Context) (*zklock.Hold, error) {
					l, err := b.Election("/vote").Campaign(ctx, []byte("new"))
					if err != nil {
						return nil, err
					}
					return l.Hold, nil
				})
				time.Sleep(time.Second)
				in := s.Server.Inject(zktest.Hold().Op(zktest.OpExists, zktest.OpSetWatches).Session(b.SessionID()))
				require.NoError(s, old.Proclaim(s.Context(), []byte("older")))
				synctest.Wait()
				require.NoError(s, old.Resign(s.Context()))
				in.Remove()
				time.Sleep(time.Minute)
				require.True(s, waiter.Over(), "nobody leads, and the candidate waits for ever")
				require.NoError(s, waiter.Err)
				cancel()
				<-done
			})
		})
	}
}
