package lockfor

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/zklock/locker/zklock"
)

// GocronLocker is a Locker of github.com/go-co-op/gocron/v2: see Gocron.
type GocronLocker[L any] struct {
	c      *zklock.Client
	dir    string
	period time.Duration
	opts   []zklock.LockOption

	mu   sync.Mutex               // guards runs
	runs map[string][]*gocronLock // under way, by key, the oldest first
}

// Gocron returns the locker with which a job that several schedulers have runs once in a period,
// on one of them. L is gocron.Lock. The job's name is the key, and has its zklock.Job below dir:
// give each job a name, since by default it is its function's.
//
//	locker := lockfor.Gocron[gocron.Lock](client, "/jobs", 45*time.Minute)
//	scheduler.NewJob(gocron.CronJob("0 * * * *", false), gocron.NewTask(work),
//		gocron.WithName("report"),
//		gocron.WithDistributedJobLocker(locker),
//		gocron.WithEventListeners(
//			gocron.AfterJobRunsWithError(func(_ uuid.UUID, name string, _ error) { locker.Failed(name) }),
//			gocron.AfterJobRunsWithPanic(func(_ uuid.UUID, name string, _ any) { locker.Failed(name) })))
//
// period is less than the time between two runs, and more than the hosts' starts lie apart: three
// quarters of that time is a good choice. See zklock.Job.Every. The starts of a gocron.DurationJob
// lie anywhere, since each process counts from its own start: use a CronJob.
//
// A run is recorded, and thus not repeated, unless Failed is called for it. So the listeners are
// needed: gocron does not tell a locker that a job has failed. If the job has a
// BeforeJobRunsSkipIfBeforeFuncErrors, call Failed in it before it returns an error, or the run
// that it skips is recorded too. A run that ends after the scheduler's shutdown has begun is not
// recorded, whether it was cut short or not: the next scheduler runs the job again.
//
// The work is not told if the lock is lost while it runs, and another scheduler may then begin. The
// work is told if the task itself calls Job.Every, which needs no locker.
//
// Gocron panics if L is another type than gocron.Lock.
func Gocron[L any](
	c *zklock.Client, dir string, period time.Duration, opts ...zklock.LockOption,
) *GocronLocker[L] {
	if _, ok := any((*gocronLock)(nil)).(L); !ok {
		panic("lockfor: Gocron's type parameter is not gocron.Lock")
	}
	return &GocronLocker[L]{c: c, dir: dir, period: period, opts: opts,
		runs: map[string][]*gocronLock{}}
}

// ErrDone is the error of Lock for a job that was run in this period, by this scheduler or another
// one. gocron then skips the run, and tells AfterLockError: it is no failure.
var ErrDone = errors.New("lockfor: the job was run in this period")

// Lock waits for the lock of the job key. Errors are ErrDone and those of zklock.Job.Every.
func (l *GocronLocker[L]) Lock(ctx context.Context, key string) (lock L, err error) {
	job := l.c.Job(zklock.KeyPath(l.dir, key), l.opts...)
	run := &gocronLock{
		outcome: make(chan error, 1),
		ended:   make(chan struct{}),
		err:     errNoResult,
	}
	begins := make(chan struct{})
	var recorded zklock.JobRun
	go func() { // Unlock joins it, or this call if the job is not to run
		defer close(run.ended)
		recorded, run.err = job.Every(ctx, l.period, func(context.Context) error {
			close(begins)
			return <-run.outcome
		})
	}()
	select {
	case <-begins:
	case <-run.ended:
		if run.err == nil {
			return lock, fmt.Errorf("%w: %v", ErrDone, recorded)
		}
		return lock, run.err
	}
	run.forget = func() { l.forget(key, run) }
	l.mu.Lock()
	l.runs[key] = append(l.runs[key], run)
	l.mu.Unlock()
	return any(run).(L), nil //nolint:forcetypeassert // Gocron has checked it
}

// Failed says that the job key, which runs under this locker, has failed. Call it before the job's
// Unlock, as gocron's event listeners do. If the job runs twice in this process, since the first
// run has lost its lock, both count as failed.
func (l *GocronLocker[L]) Failed(key string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, run := range l.runs[key] {
		run.hasFailed = true
	}
}

func (l *GocronLocker[L]) forget(key string, run *gocronLock) {
	l.mu.Lock()
	defer l.mu.Unlock()
	rest := l.runs[key][:0]
	for _, other := range l.runs[key] {
		if other != run {
			rest = append(rest, other)
		}
	}
	l.runs[key] = rest
	if len(rest) == 0 {
		delete(l.runs, key)
	}
}

// gocronLock is a gocron.Lock.
type gocronLock struct {
	outcome   chan error    // of the job; capacity 1
	ended     chan struct{} // closed when the run is recorded, or has ended without that
	err       error         // why it is not recorded; set before ended is closed
	hasFailed bool          // guarded by GocronLocker.mu until forget has returned
	forget    func()
	unlocked  sync.Once
}

var (
	errJobFailed = errors.New("the job has failed")
	errCutShort  = errors.New("the scheduler was shut down while the job ran")
)

// Unlock records the run and releases the lock. If the job has failed, or ctx has ended, it records
// nothing. Further calls change nothing. Errors are those of zklock.Job.Every.
func (r *gocronLock) Unlock(ctx context.Context) error {
	r.unlocked.Do(func() {
		r.forget()
		switch {
		case r.hasFailed:
			r.outcome <- errJobFailed
		case ctx.Err() != nil:
			r.outcome <- errCutShort
		default:
			r.outcome <- nil
		}
	})
	<-r.ended
	return r.err
}
