package zklock_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/tests/locktest"
	"github.com/zklock/locker/zklock"
)

// So a call of a database, say, that gets the context knows how long it may take.
func TestTheContextOfAHoldWithAMaximumHasItAsItsDeadline(t *testing.T) {
	for name, opts := range map[string][]zklock.LockOption{
		"alone": {zklock.WithMaxHold(time.Minute)}, "handed on": {zklock.WithMaxHold(time.Minute), zklock.WithLocalHandoff()},
		"joined": {zklock.WithMaxHold(time.Minute), zklock.WithReentrancy()},
	} {
		t.Run(name, func(t *testing.T) {
			locktest.Simulate(t, func(s *locktest.Sim) {
				slow := zklock.Hooks{Acquired: func(zklock.LockInfo) { time.Sleep(time.Second) }}
				c := s.Client(zklock.WithHooks(slow))
				m := c.Mutex("/l", opts...)
				h := s.Lock(m)
				want := time.Now().Add(time.Minute - time.Second) // the hook's time is the hold's, too
				if name == "joined" {
					time.Sleep(time.Second)
					var err error
					_, h, err = m.Lock(h.Context())
					require.NoError(s, err)
				}
				short, cancel := context.WithTimeout(h.Context(), time.Hour)
				defer cancel()
				for _, ctx := range []context.Context{h.Context(), short} {
					deadline, ok := ctx.Deadline()
					require.True(s, ok)
					require.Equal(s, want, deadline)
				}
				<-short.Done()
				require.Equal(s, want, time.Now())
				require.ErrorIs(s, context.Cause(short), zklock.ErrMaxHold)
				_, ok := s.Lock(c.Mutex("/none")).Context().Deadline()
				require.False(s, ok)
			})
		})
	}
}
