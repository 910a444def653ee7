package zklock_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/internal/locktest"
	"github.com/zklock/locker/zklock"
	"github.com/zklock/locker/zktest"
)

// The run is recorded in a transaction that proves that the lock was held. What happens to the lock afterwards cannot undo that.
func TestARunThatIsRecordedIsNoFailure(t *testing.T) {
	t.Run("an administrator deletes the znode behind the record", func(t *testing.T) {
		locktest.Simulate(t, func(s *locktest.Sim) {
			c := s.Client()
			release := s.Server.Inject(zktest.Hold().Op(zktest.OpDelete).Session(c.SessionID()).Once())
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
			require.NoError(s, c.Once("/jobs/nightly").Do(s.Context(), "k", job.run))
			<-deleted
			require.EqualValues(s, 1, job.runs.Load())
			runs, err := c.Once("/jobs/nightly").Runs(s.Context())
			require.NoError(s, err)
			require.Len(s, runs, 1)
		})
	})
	t.Run("the maximum of the hold ends while the answer to the record travels", func(t *testing.T) {
		locktest.Simulate(t, func(s *locktest.Sim) {
			c := s.Client()
			s.Server.Inject(zktest.DelayReply(time.Second).Op(zktest.OpMulti).Path(record).Session(c.SessionID()).Nth(3))
			var job job
			err := c.Once("/jobs/nightly", zklock.WithMaxHold(500*time.Millisecond)).Do(s.Context(), "k", job.run)
			runs, readErr := c.Once("/jobs/nightly").Runs(s.Context())
			require.NoError(s, readErr)
			require.Len(s, runs, 1)
			require.True(s, err == nil || errors.Is(err, zklock.ErrUnknownOutcome), "%v", err)
		})
	})
}

// If the ensemble's jute.maxbuffer is small (WithPacketLimit), the record reaches that limit before it has 100 runs. The
// call has to notice that before it runs the function: otherwise a job that must run once would run at every call.
func TestARecordThatWouldBeTooLongIsRefusedBeforeTheRun(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		c := s.Client(zklock.WithPacketLimit(16 << 10))
		o := c.Once("/jobs/nightly", zklock.WithOwner(strings.Repeat("o", 64)))
		for i := range 150 {
			key := fmt.Sprintf("%03d-%s", i, strings.Repeat("k", 100))
			var job job
			var last error
			for range 3 {
				if last = o.Do(s.Context(), key, job.run); last == nil || errors.Is(last, zklock.ErrDone) {
					break
				}
			}
			require.LessOrEqual(s, job.runs.Load(), int32(1), "run %d: %v", i, last)
		}
	}, zktest.WithPacketLimit(16<<10))
}

// The function fails with the ErrDone of another Once, of a job that it needs. That must not be reported as its own ErrDone
// ("the record has the key, and fn was not called"): a caller that goes on after ErrDone, as docs/recipes.md does for
// migrations, would go on without the job.
func TestErrDoneOfAnotherJobInsideIsNotTheJobsOwn(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		c := s.Client()
		inner, outer := c.Once("/jobs/inner"), c.Once("/jobs/outer")
		require.NoError(s, inner.Do(s.Context(), "k", func(context.Context) error { return nil }))
		called := false
		err := outer.Do(s.Context(), "k", func(ctx context.Context) error {
			called = true
			return inner.Do(ctx, "k", func(context.Context) error { return nil })
		})
		require.True(s, called)
		runs, readErr := outer.Runs(s.Context())
		require.NoError(s, readErr)
		require.Empty(s, runs, "the outer job failed, and is not recorded")
		require.Error(s, err)
		require.NotErrorIs(s, err, zklock.ErrNotRun)
		var done *zklock.DoneError
		require.False(s, errors.As(err, &done), "%v", err)
		require.NotErrorIs(s, err, zklock.ErrDone)
	})
}

// KeyPath keeps dots, so the record of the Once for the key "a" has the same path as the directory of the lock for "a.done".
// If that directory were taken for an empty record, and is a container, the record would be deleted with it.
func TestADirectoryOfALockIsNotTakenForARecord(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		s.Dir("/m")
		c := s.Client()
		s.Unlock(s.Lock(c.Mutex(zklock.KeyPath("/m", "a.done"), zklock.WithContainer())))
		var job job
		err := c.Once(zklock.KeyPath("/m", "a")).Do(s.Context(), "k", job.run)
		require.ErrorIs(s, err, zklock.ErrConflict)
		require.ErrorIs(s, err, zklock.ErrNotRun)
		require.ErrorContains(s, err, "/m/a.done, where the record of /m/a would be, is the directory of a lock")
		require.Zero(s, job.runs.Load())
	})
}

// Two calls under one reentrant hold would both hold the lock, and so both run the job.
func TestOnceRefusesReentrancy(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		c := s.Client()
		err := c.Once("/jobs/nightly", zklock.WithReentrancy()).Do(s.Context(), "k", func(context.Context) error { return nil })
		require.ErrorIs(s, err, zklock.ErrOption)
		require.ErrorContains(s, err, "two calls under one hold would both run the job")
		err = c.Mutex("/jobs/nightly").Do(s.Context(), func(ctx context.Context) error {
			return c.Once("/jobs/nightly").Do(ctx, "k", func(context.Context) error { return nil })
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
			s.Server.Inject(onRecord(zktest.HoldReply()).Session(c.SessionID()))
			s.Server.Inject(zktest.Refuse())
		}, unknown: true},
	} {
		t.Run(name, func(t *testing.T) {
			locktest.Simulate(t, func(s *locktest.Sim) {
				c := s.Client()
				o := c.Once("/jobs/nightly")
				err := o.Do(s.Context(), "k", func(context.Context) error { k.during(s, c); return nil })
				require.ErrorIs(s, err, zklock.ErrNotRecorded)
				require.ErrorIs(s, err, zklock.ErrLost)
				require.NotErrorIs(s, err, zklock.ErrNotRun)
				require.Equal(s, k.unknown, errors.Is(err, zklock.ErrUnknownOutcome), "%v", err)
			})
		})
	}
	locktest.Simulate(t, func(s *locktest.Sim) {
		c, own := s.Client(), errors.New("own")
		o := c.Once("/jobs/nightly")
		err := o.Do(s.Context(), "k", func(context.Context) error { return own })
		require.ErrorIs(s, err, own)
		require.NotErrorIs(s, err, zklock.ErrNotRecorded)
		err = o.Do(s.Context(), "k", func(context.Context) error { return fmt.Errorf("a step: %w", zklock.ErrNotRecorded) })
		require.ErrorContains(s, err, "a step")
		require.NotErrorIs(s, err, zklock.ErrNotRecorded, "it is another Once's")
	})
}

// Forget during a run of another key: the run is still recorded, and the forgotten key runs again.
func TestAKeyThatIsForgottenIsRunAgain(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		o := s.Client().Once("/jobs/nightly")
		var first, second job
		found, err := o.Forget(s.Context(), "first")
		require.NoError(s, err)
		require.False(s, found, "there is no record")
		require.NoError(s, o.Do(s.Context(), "first", first.run))
		require.NoError(s, o.Do(s.Context(), "second", func(ctx context.Context) error {
			found, err := s.Client().Once("/jobs/nightly").Forget(ctx, "first")
			require.NoError(s, err)
			require.True(s, found)
			return second.run(ctx)
		}))
		require.ErrorIs(s, o.Do(s.Context(), "second", second.run), zklock.ErrDone)
		require.NoError(s, o.Do(s.Context(), "first", first.run))
		require.EqualValues(s, 2, first.runs.Load())
		require.EqualValues(s, 1, second.runs.Load())
		found, err = o.Forget(s.Context(), "third")
		require.NoError(s, err)
		require.False(s, found)
		runs, err := o.Runs(s.Context())
		require.NoError(s, err)
		found, err = o.Forget(s.Context(), "first", runs[0].Token)
		require.NoError(s, err)
		require.False(s, found, "it is the token of another key's run")
		found, err = o.Forget(s.Context(), "first", runs[1].Token, 7)
		require.NoError(s, err)
		require.True(s, found)
	})
}

// A run that is recorded between the read and the write of Forget stays recorded.
func TestForgetLosesNoRunThatIsRecordedMeanwhile(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		o, operator := s.Client().Once("/jobs/nightly"), s.Client()
		var first, second job
		require.NoError(s, o.Do(s.Context(), "first", first.run))
		gate := s.Server.Inject(zktest.HoldReply().Op(zktest.OpGetData).Path(record).Session(operator.SessionID()).Once())
		found := make(chan bool, 1)
		go func() {
			ok, err := operator.Once("/jobs/nightly").Forget(s.Context(), "first")
			require.NoError(s, err)
			found <- ok
		}()
		s.Until(time.Minute, "Forget has read", func() bool { return gate.Hits() == 1 })
		require.NoError(s, o.Do(s.Context(), "second", second.run))
		gate.Remove()
		require.True(s, <-found)
		require.ErrorIs(s, o.Do(s.Context(), "second", second.run), zklock.ErrDone)
		require.NoError(s, o.Do(s.Context(), "first", first.run))
		require.EqualValues(s, 2, first.runs.Load())
		require.EqualValues(s, 1, second.runs.Load())
	})
}
