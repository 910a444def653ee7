package zklock_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/internal/locktest"
	"github.com/zklock/locker/zklock"
)

type key string

func TestWorkWithAHoldEndsWithTheHoldAndWithItsCaller(t *testing.T) {
	errCaller := errors.New("the caller's own")
	for name, k := range map[string]struct {
		end   func(s *locktest.Sim, h *zklock.Hold, cancel context.CancelCauseFunc)
		cause error
		err   error
	}{
		"the caller ends it":    {func(_ *locktest.Sim, _ *zklock.Hold, cancel context.CancelCauseFunc) { cancel(errCaller) }, errCaller, context.Canceled},
		"the caller's deadline": {func(*locktest.Sim, *zklock.Hold, context.CancelCauseFunc) { time.Sleep(locktest.LongTime) }, context.DeadlineExceeded, context.DeadlineExceeded},
		"the hold is released":  {func(s *locktest.Sim, h *zklock.Hold, _ context.CancelCauseFunc) { s.Unlock(h) }, zklock.ErrUnlocked, context.Canceled},
		"the znode is deleted": {func(s *locktest.Sim, h *zklock.Hold, _ context.CancelCauseFunc) {
			require.NoError(s, s.Server.Delete(h.Node()))
		}, zklock.ErrNodeDeleted, context.Canceled},
		"the servers are away": {func(s *locktest.Sim, _ *zklock.Hold, _ context.CancelCauseFunc) {
			s.Server.Leader().Down()
			time.Sleep(time.Minute)
		}, zklock.ErrLeaseOver, context.Canceled},
		"the context is released": {nil, context.Canceled, context.Canceled},
	} {
		t.Run(name, func(t *testing.T) {
			locktest.Simulate(t, func(s *locktest.Sim) {
				c := s.Client()
				outer := context.WithValue(context.WithValue(s.Context(), key("lock"), 1), key("both"), 1)
				h, err := c.Mutex("/l").Lock(outer)
				require.NoError(s, err)
				time.Sleep(time.Second) // the znode is watched
				ctx, cancel := context.WithCancelCause(context.WithValue(context.WithValue(s.Context(), key("with"), 2), key("both"), 2))
				defer cancel(nil)
				timed, done := context.WithTimeout(ctx, locktest.LongTime)
				defer done()
				work, release := h.With(timed)
				defer release()
				child, over := context.WithTimeout(work, 2*locktest.LongTime)
				defer over()
				deadline, ok := work.Deadline()
				require.True(s, ok)
				require.Equal(s, time.Now().Add(locktest.LongTime), deadline)
				require.NoError(s, work.Err())
				found, ok := zklock.HoldFrom(child)
				require.True(s, ok)
				require.Same(s, h, found)
				require.Equal(s, []any{1, 2, 1}, []any{child.Value(key("lock")), child.Value(key("with")), child.Value(key("both"))})
				_, err = c.Mutex("/l").Lock(child)
				require.ErrorIs(s, err, zklock.ErrDeadlock)

				if k.end == nil {
					release()
				} else {
					k.end(s, h, cancel)
				}
				synctest.Wait()
				for _, w := range []context.Context{work, child} {
					<-w.Done()
					require.Equal(s, k.err, w.Err())
					require.ErrorIs(s, context.Cause(w), k.cause)
				}
				if k.end == nil {
					require.NoError(s, h.Err(), "the hold is left alone")
				}
			})
		})
	}
}
