package zklock_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/tests/locktest"
	"github.com/zklock/locker/zklock"
	"github.com/zklock/locker/zktest/fault"
)

// The reply to the write of the record is lost, and there is no connection until ctx ends. The run is recorded, so no client
// will ever make it. The error must not say only that it was not run.
func TestAnAtMostOnceRunThatMayBeRecordedSaysSo(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		c := s.Client()
		away := s.Server.Inject(fault.Refuse())
		s.Server.Inject(onRecord(fault.CloseAfter()).Session(c.SessionID()).Once())
		ctx, cancel := context.WithTimeout(s.Context(), 3*time.Second)
		defer cancel()
		var job job
		err := once(ctx, c.Job("/jobs/nightly").AtMostOnce(), "k", job.run)
		require.ErrorIs(s, err, zklock.ErrNotRun)
		require.Zero(s, job.runs.Load())
		away.Remove()
		runs := runsOf(s, s.Client().Job("/jobs/nightly"))
		require.Len(s, runs, 1, "it is recorded")
		require.ErrorIs(s, err, zklock.ErrUnknownOutcome, "and the error must not hide that")
	})
}
