package adapters_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/tests/locktest"
	"github.com/zklock/locker/zklock"
	"github.com/zklock/locker/zklock/lockfor"
	"github.com/zklock/locker/zktest"
	"github.com/zklock/locker/zktest/fault"
)

var (
	_ gocron.Locker  = (*lockfor.GocronLocker[gocron.Lock])(nil)
	_ gocron.Elector = (*lockfor.GocronElector)(nil)
)

const patience = time.Minute

// newScheduler returns a scheduler that has begun, and ends with the test.
func newScheduler(t *testing.T, opts ...gocron.SchedulerOption) gocron.Scheduler {
	t.Helper()
	s, err := gocron.NewScheduler(append(opts, gocron.WithStopTimeout(patience))...)
	require.NoError(t, err)
	s.Start()
	t.Cleanup(func() { _ = s.Shutdown() }) // a test may have shut it down
	return s
}

// addJob adds the job "report", which runs work at once and each period, under the locker.
func addJob(
	t *testing.T, s gocron.Scheduler, l *lockfor.GocronLocker[gocron.Lock], period time.Duration,
	work func(context.Context) error,
) {
	t.Helper()
	_, err := s.NewJob(gocron.DurationJob(period), gocron.NewTask(work),
		gocron.WithName("report"),
		gocron.WithStartAt(gocron.WithStartImmediately()),
		gocron.WithDistributedJobLocker(l),
		gocron.WithEventListeners(
			gocron.AfterJobRunsWithError(func(_ uuid.UUID, name string, _ error) {
				l.Failed(name)
			}),
			gocron.AfterJobRunsWithPanic(func(_ uuid.UUID, name string, _ any) { l.Failed(name) })))
	require.NoError(t, err)
}

func newLocker(
	t *testing.T, srv *zktest.Server, period time.Duration,
) *lockfor.GocronLocker[gocron.Lock] {
	t.Helper()
	return lockfor.Gocron[gocron.Lock](locktest.Dial(t, srv), "/jobs", period)
}

func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	require.Eventually(t, is, patience, 5*time.Millisecond, what)
}

// Scenario 97: two schedulers whose tickers are shifted run a short job once in each period.
func TestScenario97_ShiftedSchedulersRunAJobOnceInAPeriod(t *testing.T) {
	const period, periods = 500 * time.Millisecond, 6
	srv := zktest.Run(t)
	var runs atomic.Int32
	work := func(context.Context) error {
		runs.Add(1)
		return nil
	}
	began := time.Now()
	for range 2 {
		addJob(t, newScheduler(t), newLocker(t, srv, period*9/10), period, work)
		time.Sleep(period / 3) // the shift
	}
	eventually(t, "several periods", func() bool { return time.Since(began) > periods*period })
	most := int32(time.Since(began)/(period*9/10)) + 1
	require.LessOrEqual(t, runs.Load(), most)
	require.GreaterOrEqual(t, runs.Load(), int32(periods/2))
}

// Scenario 97: a run that has failed is not recorded, so the other scheduler runs the job.
func TestScenario97_AFailedRunIsRepeatedByTheOtherScheduler(t *testing.T) {
	for name, fail := range map[string]func() error{
		"error": func() error { return errors.New("failed") },
		"panic": func() error { panic("failed") },
	} {
		t.Run(name, func(t *testing.T) {
			srv := zktest.Run(t)
			var other atomic.Int32
			addJob(t, newScheduler(t), newLocker(t, srv, time.Hour), 2*time.Hour,
				func(context.Context) error { return fail() })
			c := locktest.Dial(t, srv)
			addJob(t, newScheduler(t), newLocker(t, srv, time.Hour), 2*time.Hour,
				func(context.Context) error {
					other.Add(1)
					return nil
				})
			eventually(t, "the other's run", func() bool { return other.Load() == 1 })
			eventually(t, "the record", func() bool { return len(recordedRuns(t, c)) == 1 })
		})
	}
}

// recordedRuns returns the runs in the job's record.
func recordedRuns(t *testing.T, c *zklock.Client) (all []zklock.JobRun) {
	t.Helper()
	for run, err := range c.Job(zklock.KeyPath("/jobs", "report")).Runs(t.Context()) {
		require.NoError(t, err)
		all = append(all, run)
	}
	return all
}

// Scenario 97: the scheduler is shut down while a job runs, which ends early. Nothing is recorded,
// and the lock is released although the job's context has ended.
func TestScenario97_AJobThatAShutdownCutsShortIsNotRecorded(t *testing.T) {
	srv := zktest.Run(t)
	s := newScheduler(t)
	running := make(chan struct{})
	addJob(t, s, newLocker(t, srv, time.Hour), 2*time.Hour, func(ctx context.Context) error {
		close(running)
		<-ctx.Done()
		return nil
	})
	<-running
	require.NoError(t, s.Shutdown())
	c := locktest.Dial(t, srv)
	eventually(t, "released", func() bool {
		return len(locktest.Children(t, c, zklock.KeyPath("/jobs", "report"))) == 0
	})
	require.Empty(t, recordedRuns(t, c))
}

// Scenario 97: the session ends while a job runs. The locker's job is not told. One that calls
// Every itself is.
func TestScenario97_AJobAndItsLostLock(t *testing.T) {
	srv := zktest.Run(t)
	c := locktest.Dial(t, srv)
	job := c.Job("/jobs/inside")
	told := make(chan error, 1)
	_, err := newScheduler(t).NewJob(gocron.DurationJob(time.Hour),
		gocron.NewTask(func(ctx context.Context) error {
			_, err := job.Every(ctx, 50*time.Minute, func(ctx context.Context) error {
				if err := srv.Expire(srv.Sessions()[0].ID); err != nil {
					return err
				}
				<-ctx.Done()
				told <- context.Cause(ctx)
				return nil
			})
			return err
		}),
		gocron.WithStartAt(gocron.WithStartImmediately()))
	require.NoError(t, err)
	select {
	case cause := <-told:
		require.ErrorIs(t, cause, zklock.ErrLost)
	case <-time.After(patience):
		require.Fail(t, "the job was not told")
	}
}

// Scenario 97: the jobs of one scheduler run, and of another one after the leader's session has
// ended or the leader has resigned.
func TestScenario97_TheElectorFollowsTheElection(t *testing.T) {
	srv := zktest.Run(t)
	first := lockfor.Elector(locktest.Dial(t, srv).Election("/leader"))
	leads := func(e *lockfor.GocronElector) func() bool {
		return func() bool { return e.IsLeader(t.Context()) == nil }
	}
	eventually(t, "leads", leads(first))
	second := lockfor.Elector(locktest.Dial(t, srv).Election("/leader"))
	defer second.Close()
	eventually(t, "two candidates", func() bool { return len(srv.Children("/leader")) == 2 })
	require.ErrorIs(t, second.IsLeader(t.Context()), lockfor.ErrNotLeader)

	require.NoError(t, srv.Expire(srv.Sessions()[0].ID))
	eventually(t, "the second leads", leads(second))
	eventually(t, "the first does not", func() bool { return !leads(first)() })
	eventually(t, "the first campaigns again", func() bool {
		return len(srv.Children("/leader")) == 2
	})
	second.Close()
	eventually(t, "the first leads again", leads(first))
	require.Error(t, second.IsLeader(t.Context()))
	first.Close()
	require.Empty(t, srv.Children("/leader"))
}

// Scenario 97: an elector that can't come to lead says so, and one that only waits longer than
// WithMaxWait goes on.
func TestScenario97_AnElectorSaysWhyItCampaignsNoMore(t *testing.T) {
	srv := zktest.Run(t)
	leader := lockfor.Elector(locktest.Dial(t, srv).Election("/leader"))
	eventually(t, "leads", func() bool { return leader.IsLeader(t.Context()) == nil })

	c := locktest.Dial(t, srv)
	impatient := lockfor.Elector(c.Election("/leader", zklock.WithMaxWait(20*time.Millisecond)))
	before := srv.Requests()[fault.OpDelete]
	eventually(t, "waits again and again", func() bool {
		return srv.Requests()[fault.OpDelete] > before+2
	})
	leader.Close()
	eventually(t, "leads", func() bool { return impatient.IsLeader(t.Context()) == nil })

	require.NoError(t, c.Close())
	select {
	case <-impatient.Done():
	case <-time.After(patience):
		require.Fail(t, "the campaign goes on")
	}
	require.ErrorIs(t, impatient.IsLeader(t.Context()), zklock.ErrClosed)
	impatient.Close()
}
