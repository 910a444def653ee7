package zklock_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/internal/locktest"
	"github.com/zklock/locker/zklock"
	"github.com/zklock/locker/zktest"
)

// The write of the record is lost with its connection, and another client writes the record before it is repeated. The
// record that is then found must not be taken for the one of this run.
func TestARunIsAddedToTheRecordThatAnotherClientHasWrittenMeanwhile(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		c := s.Client()
		o := c.Once("/jobs/nightly")
		require.NoError(s, o.Do(s.Context(), "a", new(job).run))
		require.NoError(s, o.Do(s.Context(), "b", func(context.Context) error {
			s.Server.Inject(onRecord(zktest.CloseBefore()).Session(c.SessionID()).Once())
			node, _ := s.Server.Node(record)
			return s.Server.SetData(record, node.Data)
		}))
		require.ErrorIs(s, s.Client().Once("/jobs/nightly").Do(s.Context(), "b", new(job).run), zklock.ErrDone)
		runs, err := o.Runs(s.Context())
		require.NoError(s, err)
		require.Len(s, runs, 2)
	})
}
