package zklock_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/tests/locktest"
	"github.com/zklock/locker/zklock"
	"github.com/zklock/locker/zktest"
)

// A nil function panics before any lock is taken and before any request.
func TestANilFunctionPanicsBeforeAnythingIsTaken(t *testing.T) {
	srv := zktest.Run(t)
	c, ctx := locktest.Dial(t, srv), context.Background()
	for name, call := range map[string]func(){
		"Do":           func() { _ = c.Mutex("/l").Do(ctx, nil) },
		"semaphore Do": func() { _ = c.Semaphore("/l", 1).Do(ctx, 1, nil) },
		"Job.Once":     func() { _, _ = c.Job("/l").Once(ctx, "key", nil) },
		"Run":          func() { _ = c.Election("/l").Run(ctx, nil, nil) },
	} {
		t.Run(name, func(t *testing.T) {
			require.PanicsWithValue(t, "zklock: nil function", call)
			_, made := srv.Node("/l")
			require.False(t, made)
		})
	}
}

// With a context that has ended, no lock is taken and no function is run.
func TestAContextThatHasEndedTakesNothing(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		c := s.Client()
		over, end := context.WithCancel(s.Context())
		end()
		run, err := c.Job("/l").Once(over, "key", func(context.Context) error { s.Error("run"); return nil })
		require.ErrorIs(s, err, zklock.ErrNotRun)
		require.ErrorIs(s, err, context.Canceled)
		require.Equal(s, "no run", run.String())
		err = c.Mutex("/l").Do(over, func(context.Context) error { s.Error("run"); return nil })
		require.ErrorIs(s, err, zklock.ErrNotRun)
	})
}
