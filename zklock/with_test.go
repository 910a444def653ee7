package zklock_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/zklock"
)

type withKey string

func TestWorkWithAHoldEndsWithTheHoldAndWithItsCaller(t *testing.T) {
	errCaller := errors.New("the caller's own")
	for name, k := range map[string]struct {
		end   func(s *sim, h *zklock.Hold, cancel context.CancelCauseFunc)
		cause error
		err   error
	}{
		"the caller ends it":    {func(_ *sim, _ *zklock.Hold, cancel context.CancelCauseFunc) { cancel(errCaller) }, errCaller, context.Canceled},
		"the caller's deadline": {func(*sim, *zklock.Hold, context.CancelCauseFunc) { time.Sleep(time.Hour) }, context.DeadlineExceeded, context.DeadlineExceeded},
		"the hold is released":  {func(s *sim, h *zklock.Hold, _ context.CancelCauseFunc) { s.unlock(h) }, zklock.ErrUnlocked, context.Canceled},
		"the znode is deleted":  {func(s *sim, h *zklock.Hold, _ context.CancelCauseFunc) { require.NoError(s, s.srv.Delete(h.Node())) }, zklock.ErrNodeDeleted, context.Canceled},
		"the servers are away": {func(s *sim, _ *zklock.Hold, _ context.CancelCauseFunc) {
			s.srv.Leader().Down()
			time.Sleep(time.Minute)
		}, zklock.ErrLeaseOver, context.Canceled},
		"the context is released": {nil, context.Canceled, context.Canceled},
	} {
		t.Run(name, func(t *testing.T) {
			simTest(t, func(s *sim) {
				c := s.client()
				outer := context.WithValue(context.WithValue(s.Context(), withKey("lock"), 1), withKey("both"), 1)
				h, err := c.Mutex("/l").Lock(outer)
				require.NoError(s, err)
				time.Sleep(time.Second) // the znode is watched
				ctx, cancel := context.WithCancelCause(context.WithValue(context.WithValue(s.Context(), withKey("with"), 2), withKey("both"), 2))
				defer cancel(nil)
				timed, done := context.WithTimeout(ctx, time.Hour)
				defer done()
				work, release := h.With(timed)
				defer release()
				child, over := context.WithTimeout(work, 2*time.Hour)
				defer over()
				deadline, ok := work.Deadline()
				require.True(s, ok)
				require.Equal(s, time.Now().Add(time.Hour), deadline)
				require.NoError(s, work.Err())
				found, ok := zklock.HoldFrom(child)
				require.True(s, ok)
				require.Same(s, h, found)
				require.Equal(s, []any{1, 2, 1}, []any{child.Value(withKey("lock")), child.Value(withKey("with")), child.Value(withKey("both"))})
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
