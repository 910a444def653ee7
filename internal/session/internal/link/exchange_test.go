package link_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/internal/session/failure"
	"github.com/zklock/locker/internal/session/internal/pipeline"
	"github.com/zklock/locker/internal/session/internal/wire"
)

// A write and many reads were sent. Their connection fails, and completes them one after the other.
// The call's context ends when the write and as many reads as are waited for together have been
// completed, and those behind have not.
func TestAWriteThatFailedWithItsConnectionHasAnUnknownOutcomeAlsoIfCtxEndsBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := newConn(t, new(owner))
		ctx, cancel := context.WithCancel(t.Context())
		requests := []*pipeline.Request{pipeline.NewRequest(wire.OpCreate, "create", "/x")}
		for len(requests) < 2*pipeline.Burst {
			requests = append(requests, pipeline.NewRequest(wire.OpExists, "exists", "/"))
		}
		got := make(chan error)
		go func() {
			_, err := c.Exchange(ctx, requests)
			got <- err
		}()
		synctest.Wait()
		c.Write()
		c.FailInPart(pipeline.Burst, errors.New("broken"))
		synctest.Wait()

		cancel()
		err := <-got
		require.ErrorIs(t, err, failure.ErrUnknownOutcome, "the write was sent")
		require.NotErrorIs(t, err, failure.ErrNotSent)
		require.ErrorContains(t, err, "create /x")
	})
}

// A call is given up while its write waits to be written: the write never leaves.
func TestAWriteThatIsGivenUpBeforeItWasWrittenWasNotSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := newConn(t, new(owner))
		ctx, cancel := context.WithCancel(t.Context())
		got := make(chan error)
		go func() {
			_, err := c.Exchange(ctx,
				[]*pipeline.Request{pipeline.NewRequest(wire.OpCreate, "create", "/x")})
			got <- err
		}()
		synctest.Wait()
		cancel()
		err := <-got
		require.ErrorIs(t, err, failure.ErrNotSent)
		require.ErrorIs(t, err, context.Canceled)
		queued, pending := c.Waiting()
		require.Zero(t, queued+pending)
	})
}
