package zklock_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/tests/ensemble"
	"github.com/zklock/locker/tests/locktest"
	"github.com/zklock/locker/zklock"
)

// The leader is killed while clients take turns at a lock, and comes back as a follower; then the next one. No two clients hold
// at once, and work goes on after each failure.
func TestTurnsGoOnWhenLeadersAreKilled(t *testing.T) {
	const clients, kills = 8, 2
	s := locktest.SiteOf(t, 3)
	s.Control(t)
	path := s.Path(t)
	var turns locktest.Exclusion
	release := locktest.Late(t) // each hold is to be released, also the last ones
	ctx, cancel := context.WithCancel(release)
	var workers sync.WaitGroup
	var lost atomic.Int64
	t.Cleanup(func() { cancel(); workers.Wait() })
	for range clients {
		m := s.Client(t).Mutex(path)
		workers.Go(func() {
			for ctx.Err() == nil {
				_, h, err := m.Lock(ctx)
				if err != nil {
					if !errors.Is(err, context.Canceled) {
						t.Error(err) // a Lock waits until the servers are back
					}
					return
				}
				turns.Enter(h)
				turns.Leave(h)
				switch err := h.Unlock(); {
				case err == nil:
				case errors.Is(err, zklock.ErrLost):
					lost.Add(1)
				default:
					t.Error(err)
				}
			}
		})
	}
	goesOn := func(why string) {
		t.Helper()
		from, began := turns.Count(), time.Now()
		ensemble.Until(t, locktest.Bound, "200 turns "+why, func() error {
			if n := turns.Count() - from; n < 200 {
				return fmt.Errorf("there were %d", n)
			}
			return nil
		})
		t.Logf("200 turns %s took %v", why, locktest.Millis(time.Since(began)))
	}
	goesOn("before anything is done")
	for range kills {
		leader := s.Leader(t)
		s.Kill(t, leader)
		goesOn("with the leader dead")
		s.Mend(t)
		goesOn("with it back")
	}
	cancel()
	workers.Wait()
	require.NoError(t, turns.Err())
	t.Logf("%d turns, %d holds lost with their session", turns.Count(), lost.Load())

	c := s.Client(t)
	locktest.AwaitContenders(t, c, path, 0) // nothing is left in line
}
