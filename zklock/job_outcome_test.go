package zklock_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/tests/locktest"
	"github.com/zklock/locker/zklock"
	"github.com/zklock/locker/zktest/fault"
)

// The run is recorded in a transaction that proves that the lock was held. What happens to the lock afterwards cannot undo that.
func TestARunThatIsRecordedIsNoFailure(t *testing.T) {
	t.Run("an administrator deletes the znode behind the record", func(t *testing.T) {
		locktest.Simulate(t, func(s *locktest.Sim) {
			c := s.Client()
			release := s.Server.Inject(fault.Hold().Op(fault.OpDelete).Session(c.SessionID()).Once())
			deleted := make(chan struct{})
			go func() { // joined below
				defer close(deleted)
				<-release.Hit()
				for _, n := range s.Server.Children("/jobs/nightly") {
					if err := s.Server.Delete("/jobs/nightly/" + n); err != nil {
						s.Error(err)
					}
				}
				release.Release()
			}()
			var job job
			require.NoError(s, once(s.Context(), c.Job("/jobs/nightly"), "k", job.run))
			<-deleted
			require.EqualValues(s, 1, job.runs.Load())
			require.Len(s, runsOf(s, c.Job("/jobs/nightly")), 1)
		})
	})
	t.Run("the maximum of the hold ends while the answer to the record travels", func(t *testing.T) {
		locktest.Simulate(t, func(s *locktest.Sim) {
			c := s.Client()
			s.Server.Inject(onRecord(fault.DelayReply(time.Second)).Session(c.SessionID()).Once())
			var job job
			err := once(s.Context(), c.Job("/jobs/nightly", zklock.WithMaxHold(500*time.Millisecond)), "k", job.run)
			require.Len(s, runsOf(s, c.Job("/jobs/nightly")), 1)
			require.True(s, err == nil || errors.Is(err, zklock.ErrUnknownOutcome), "%v", err)
		})
	})
}

// KeyPath keeps dots, so the record of the job "a" has the same path as the directory of the lock for "a.done".
// If that directory were taken for an empty record, and is a container, the record would be deleted with it.
func TestADirectoryOfALockIsNotTakenForARecord(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		s.Dir("/m")
		c := s.Client()
		s.Unlock(s.Lock(c.Mutex(zklock.KeyPath("/m", "a.done"), zklock.WithContainer())))
		var job job
		err := once(s.Context(), c.Job(zklock.KeyPath("/m", "a")), "k", job.run)
		require.ErrorIs(s, err, zklock.ErrConflict)
		require.ErrorIs(s, err, zklock.ErrNotRun)
		require.ErrorContains(s, err, "/m/a.done, where a job's record would be, is the directory of a lock")
		require.Zero(s, job.runs.Load())
	})
}

// Two calls under one reentrant hold would both hold the lock, and so both run the job.
func TestAJobRefusesReentrancyAndLocalHandoff(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		c := s.Client()
		err := once(s.Context(), c.Job("/jobs/nightly", zklock.WithReentrancy()), "k", func(context.Context) error { return nil })
		require.ErrorIs(s, err, zklock.ErrInvalid)
		require.ErrorContains(s, err, "two calls under one hold would both run it")
		require.ErrorIs(s, once(s.Context(), c.Job("/jobs/nightly", zklock.WithLocalHandoff()), "k", neverRun), zklock.ErrInvalid)
		err = c.Mutex("/jobs/nightly").Do(s.Context(), func(ctx context.Context) error {
			return once(ctx, c.Job("/jobs/nightly"), "k", func(context.Context) error { return nil })
		})
		require.ErrorIs(s, err, zklock.ErrDeadlock)
	})
}

// The error distinguishes a run that is not known to be recorded, one that failed, and one that was not made.
func TestARunThatIsNotKnownToBeRecordedIsToldApart(t *testing.T) {
	for name, k := range map[string]struct {
		during  func(s *locktest.Sim, c *locktest.Client)
		unknown bool // it may be recorded
	}{
		"the lock is lost before": {during: func(s *locktest.Sim, c *locktest.Client) {
			for _, n := range s.Server.Children("/jobs/nightly") {
				require.NoError(s, s.Server.Delete("/jobs/nightly/"+n))
			}
		}},
		"the answers do not arrive": {during: func(s *locktest.Sim, c *locktest.Client) {
			s.Server.Inject(onRecord(fault.HoldReply()).Session(c.SessionID()))
			s.Server.Inject(fault.Refuse())
		}, unknown: true},
	} {
		t.Run(name, func(t *testing.T) {
			locktest.Simulate(t, func(s *locktest.Sim) {
				c := s.Client()
				o := c.Job("/jobs/nightly")
				err := once(s.Context(), o, "k", func(context.Context) error { k.during(s, c); return nil })
				require.ErrorIs(s, err, zklock.ErrNotRecorded)
				require.ErrorIs(s, err, zklock.ErrLost)
				require.NotErrorIs(s, err, zklock.ErrNotRun)
				require.Equal(s, k.unknown, errors.Is(err, zklock.ErrUnknownOutcome), "%v", err)
			})
		})
	}
	locktest.Simulate(t, func(s *locktest.Sim) {
		c, own := s.Client(), errors.New("own")
		o := c.Job("/jobs/nightly")
		err := once(s.Context(), o, "k", func(context.Context) error { return own })
		require.ErrorIs(s, err, own)
		require.NotErrorIs(s, err, zklock.ErrNotRecorded)
		err = once(s.Context(), o, "k", func(context.Context) error { return fmt.Errorf("a step: %w", zklock.ErrNotRecorded) })
		require.ErrorContains(s, err, "a step")
		require.NotErrorIs(s, err, zklock.ErrNotRecorded, "it is another job's")
	})
}

// Forget during a run of another key: the run is still recorded, and the forgotten key runs again.
func TestAKeyThatIsForgottenIsRunAgain(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		j := s.Client().Job("/jobs/nightly")
		var first, second job
		forget := func(ctx context.Context, key string) bool {
			found, err := s.Client().Job("/jobs/nightly").Forget(ctx, key)
			require.NoError(s, err)
			return found
		}
		require.False(s, forget(s.Context(), "first"), "there is no record")
		require.NoError(s, once(s.Context(), j, "first", first.run))
		require.NoError(s, once(s.Context(), j, "second", func(ctx context.Context) error {
			require.True(s, forget(ctx, "first"))
			require.False(s, forget(ctx, "second"), "it is not recorded yet")
			return second.run(ctx)
		}))
		require.Equal(s, errDone, once(s.Context(), j, "second", second.run))
		require.NoError(s, once(s.Context(), j, "first", first.run))
		require.EqualValues(s, 2, first.runs.Load())
		require.EqualValues(s, 1, second.runs.Load())
		require.False(s, forget(s.Context(), "third"))
	})
}

// The write of the run is lost with its connection, and another client makes the run's znode, or deletes the record, before the
// write is repeated. What is then found must not be taken for this run.
func TestARunIsRecordedAlsoWhenAnotherClientHasChangedTheRecordMeanwhile(t *testing.T) {
	for name, change := range map[string]func(s *locktest.Sim, node string) error{
		"made the run's znode": func(s *locktest.Sim, node string) error {
			return s.Server.Create(node, []byte(`{"key":"b","host":"another","pid":1,"token":1,"took_ms":0}`))
		},
		"deleted the record": func(s *locktest.Sim, _ string) error { return s.Server.DeleteAll(record) },
	} {
		t.Run(name, func(t *testing.T) {
			locktest.Simulate(t, func(s *locktest.Sim) {
				c := s.Client()
				j := c.Job("/jobs/nightly")
				require.NoError(s, once(s.Context(), j, "b", new(job).run))
				node := keyNode(s, record, "b")
				_, err := j.Forget(s.Context(), "b")
				require.NoError(s, err)
				run, err := j.Once(s.Context(), "b", func(context.Context) error {
					s.Server.Inject(onRecord(fault.CloseBefore()).Session(c.SessionID()).Once())
					return change(s, node)
				})
				require.NoError(s, err)
				require.True(s, run.Mine)
				run.Mine = false
				require.Equal(s, []zklock.JobRun{run}, runsOf(s, j))
			})
		})
	}
}
