package zklock_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/tests/locktest"
	"github.com/zklock/locker/zklock"
	"github.com/zklock/locker/zktest"
	"github.com/zklock/locker/zktest/fault"
)

// cutBehind loses the reply to the n-th (from 1) request that f selects, after it was carried out, and from then on cuts the
// client off from all servers, until the returned function is called.
func cutBehind(s *locktest.Sim, c *locktest.Client, f fault.Fault, n int) (heal func()) {
	in := s.Server.Inject(f.Session(c.SessionID()).Nth(n))
	refuse := make(chan *zktest.Injection, 1)
	go func() {
		<-in.Hit()
		refuse <- s.Server.Inject(fault.Refuse())
	}()
	return func() { (<-refuse).Remove() }
}

// The reply to the write of the record is lost, and there is no connection until ctx ends. The run is recorded, so no client
// will ever make it. The error must not say only that it was not run.
func TestAnAtMostOnceRunThatMayBeRecordedSaysSo(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		c := s.Client()
		heal := cutBehind(s, c, onRecord(fault.CloseAfter()), 1)
		ctx, cancel := context.WithTimeout(s.Context(), 3*time.Second)
		defer cancel()
		var job job
		err := once(ctx, c.Job("/jobs/nightly").AtMostOnce(), "k", job.run)
		require.ErrorIs(s, err, zklock.ErrNotRun)
		require.Zero(s, job.runs.Load())
		heal()
		runs := runsOf(s, s.Client().Job("/jobs/nightly"))
		require.Len(s, runs, 1, "it is recorded")
		require.ErrorIs(s, err, zklock.ErrUnknownOutcome, "and the error must not hide that")
	})
}

// The same for Proclaim. "ErrUnknownOutcome: the value may have been changed."
func TestAProclamationThatMayHaveBeenMadeSaysSo(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		c := s.Client()
		e := c.Election("/e")
		_, l, err := e.Campaign(s.Context(), []byte("old"))
		require.NoError(s, err)
		heal := cutBehind(s, c, fault.CloseAfter().Op(fault.OpSetData).Path(l.Node()), 1)
		ctx, cancel := context.WithTimeout(s.Context(), time.Second)
		defer cancel()
		err = e.Proclaim(ctx, l, []byte("new"))
		require.ErrorIs(s, err, context.DeadlineExceeded)
		heal()
		leader, readErr := s.Client().Election("/e").Leader(s.Context())
		require.NoError(s, readErr)
		require.Equal(s, "new", string(leader.Value), "it was changed")
		require.ErrorIs(s, err, zklock.ErrUnknownOutcome)
	})
}

// The same for Resize. "after an error that matches ErrUnknownOutcome the size may have been changed": the error here has to
// match it, since the size has been changed.
func TestAResizeThatMayHaveBeenMadeSaysSo(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		c := s.Client()
		m := c.Semaphore("/s", 3)
		_, h, err := m.Acquire(s.Context(), 1)
		require.NoError(s, err)
		s.Unlock(h)
		heal := cutBehind(s, c, fault.CloseAfter().Op(fault.OpSetData).Path("/s"), 1)
		ctx, cancel := context.WithTimeout(s.Context(), time.Second)
		defer cancel()
		err = m.Resize(ctx, 5)
		require.ErrorIs(s, err, context.DeadlineExceeded)
		heal()
		size, _, readErr := s.Client().Semaphore("/s", 3).Size(s.Context())
		require.NoError(s, readErr)
		require.Equal(s, 5, size, "it was changed")
		require.ErrorIs(s, err, zklock.ErrUnknownOutcome)
	})
}
