package zklock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/locker/internal/contender"
	"github.com/zklock/locker/internal/session"
	"github.com/zklock/locker/internal/session/failure"
)

// Job is a job that the fleet does once: once for each key (Once), or not again within some time
// (Every). A lock alone is not enough: a host that comes after the first has finished finds the
// lock free and does the job again. So a Job keeps a record of its runs, and reads it under the
// lock.
//
// A run is recorded when the function has returned nil. One that fails, crashes, or loses the lock
// is repeated by the next caller, so a function that is not idempotent should write with the token,
// or with Hold.Multi. With AtMostOnce a run is recorded before the function is called.
//
// The record is the znode at path + ".done". Only Forget, ForgetLast and ForgetBefore remove runs:
// a key takes some 300 bytes of every server's memory.
type Job struct {
	lock
	record     string // the znode
	atMostOnce bool
}

// Job returns the job whose lock is at path, the same lock as Mutex's. WithReentrancy and
// WithLocalHandoff are refused. WithACL is the record's access list, too: who runs the job needs
// READ, WRITE and CREATE there, and CREATE on path's parent while there is no record.
func (c *Client) Job(path string, opts ...LockOption) *Job {
	j := &Job{c.newLock(&jobKind, opts, path), path + contender.RecordSuffix, false}
	if longest := j.record + "/00/" + strings.Repeat("x", maxComponent); j.err == nil &&
		session.CheckPath(longest) != nil {
		j.err = fmt.Errorf("%w %q: leaves no room for a job's record in 4096 bytes", ErrPath,
			path[:200]+"…")
	}
	return j
}

// AtMostOnce returns the same job with runs that are recorded before the function is called.
// Without it, Once takes such a run for done, even if its host crashed.
func (j *Job) AtMostOnce() *Job {
	most := *j
	most.atMostOnce = true
	return &most
}

// Once calls fn for key (a date, a migration's number, a message's id) unless that has been done
// before, by any host. It reads the record, waits for the lock as Mutex.Lock does, reads again, and
// calls fn as Mutex.Do does. The key is 1 to 128 bytes of printable UTF-8. After fn has returned
// nil, it blocks, even if ctx has ended, until the run is recorded or the hold has ended. A key
// that is done costs one round trip.
//
// The error is nil if the key is done and recorded, by this call (JobRun.Mine) or by an earlier
// one; with AtMostOnce, if it was tried.
//
// Errors:
//   - ErrNotRecorded: fn has returned nil, but the run is not known to be recorded, so that the
//     next caller may make it again. It matches ErrUnknownOutcome when it may have been recorded.
//   - ErrNotRun: fn was not called, and the key is not done as far as is known. The rest of the
//     error is Mutex.Lock's, or ErrLost, or ErrConflict when something else is where the record
//     would be. With AtMostOnce it may match ErrUnknownOutcome: the run may be recorded although fn
//     was not called.
//   - Any other: fn was called, and the error is Mutex.Do's.
func (j *Job) Once(
	ctx context.Context, key string, fn func(ctx context.Context) error,
) (JobRun, error) {
	needFunction(fn == nil)
	if err := cmp.Or(j.err, checkKey(key)); err != nil {
		return JobRun{}, notRunError{j.fail("once", err)}
	}
	if run, done := j.alreadyDone(ctx, key); done {
		return run, nil
	}
	return j.do(ctx, "once", key, 0, fn)
}

// Every calls fn unless the job's last run began less than d before this call, or after it. It is
// like Once otherwise; the two do not count each other's runs.
//
// So hosts that start the job at one tick of their clocks run it once, however long the run or the
// wait takes. All times are the ensemble's: a call's is when it queued, or queued again after its
// session ended. So make d less than the period that you mean, by more than the starts vary, and
// more than the hosts' starts lie apart: three quarters, 18 h for a nightly job, leave room on both
// sides. A run recorded while that clock was ahead counts until d after its time: see ForgetLast.
func (j *Job) Every(
	ctx context.Context, d time.Duration, fn func(ctx context.Context) error,
) (JobRun, error) {
	needFunction(fn == nil)
	if d <= 0 && j.err == nil {
		return JobRun{},
			notRunError{j.fail("every", fmt.Errorf("%w: every %v: is not positive", ErrInvalid, d))}
	}
	return j.do(ctx, "every", "", d, fn)
}

// alreadyDone returns the run of key if the record has it, so that the call need not queue. It
// takes one round trip. If the server does not answer in time, done is false, and the call queues.
func (j *Job) alreadyDone(ctx context.Context, key string) (run JobRun, done bool) {
	s := j.c.present.Load().session
	if s.State() != session.Connected {
		return JobRun{}, false
	}
	ctx, cancel := context.WithTimeout(ctx, min(s.Timeout()/10, time.Second))
	defer cancel()
	_, node := j.znode(key)
	b := s.Batch()
	b.Sync(node)
	got := b.Get(node)
	if b.Do(ctx) != nil || got.Err != nil {
		return JobRun{}, false
	}
	r, err := parseRun(node, got.Value.Bytes, got.Value.Stat)
	return r.JobRun, err == nil && r.Key == key && !r.underWay
}

// do calls fn under the lock, unless the record has a run that serves this call: one of key, for
// Once, or, for Every, one that began less than d before the call queued.
func (j *Job) do(
	ctx context.Context, op, key string, d time.Duration, fn func(ctx context.Context) error,
) (JobRun, error) {
	_, h, err := j.acquire(ctx, "lock", LockInfo{Kind: KindMutex})
	if err != nil {
		return JobRun{}, notRunError{err}
	}
	c := &jobCall{recording: j.recording(h, key), ctx: ctx, op: op, period: d}
	err = h.do(ctx, func(work context.Context) error {
		if !c.mustRun(work) {
			return nil
		}
		return c.call(work, fn)
	})
	switch {
	case c.refused != nil:
		return JobRun{}, notRunError{j.fail(op, c.refused)}
	case c.isDone:
		return c.run, nil
	}
	return c.run, err
}

// jobCall is a call of Once or Every that has the lock.
type jobCall struct {
	*recording
	ctx    context.Context // of the call
	op     string          // for errors
	period time.Duration   // of Every; 0 for Once

	run     JobRun
	refused error // why the function was not called
	isDone  bool  // run is recorded: if the lock is lost from then on, the call has not failed
}

// mustRun reports whether the function is to be called. If it is not, the record has the run
// already (isDone), or the run can't be recorded (refused). With AtMostOnce, mustRun records the
// run.
func (c *jobCall) mustRun(work context.Context) bool {
	run, isDone, err := c.prepare(work, c.period)
	if err == nil && !isDone && c.j.atMostOnce {
		run, err = c.write(work, time.Now(), true)
	}
	c.run, c.isDone = run, isDone
	c.refused = c.h.withCause(c.ctx, err)
	return !isDone && err == nil
}

// call calls the function and records the run. A run that was made is recorded as long as the lock
// is held, even if the call's context has ended.
func (c *jobCall) call(work context.Context, fn func(context.Context) error) error {
	began := time.Now()
	err := hide(fn(work), ErrNotRecorded, ErrNotRun) // another Job's, which fn may have called
	if c.j.atMostOnce {
		if ended, ok := c.end(c.h.Context(), began); ok {
			c.run, c.isDone = ended, err == nil
		}
		return err
	}
	if err != nil {
		return err
	}
	c.run, err = c.write(c.h.Context(), began, false)
	if err != nil {
		return c.j.fail(c.op, fmt.Errorf("%w: %w", ErrNotRecorded, c.h.withCause(c.ctx, err)))
	}
	c.isDone = true
	return nil
}

// Runs yields the recorded runs, in no particular order; the last one of Every has no key. It reads
// them in pages, and may miss those that are recorded meanwhile. An error is the last.
func (j *Job) Runs(ctx context.Context) iter.Seq2[JobRun, error] {
	return func(yield func(JobRun, error) bool) {
		stopped := false
		err := j.withSession(ctx, "runs", func(s *session.Session) error {
			return j.pages(ctx, s, func(p page) error {
				for _, r := range p.runs {
					if stopped = !yield(r.JobRun, nil); stopped {
						return errStopped
					}
				}
				return nil
			})
		})
		if err != nil && !stopped {
			yield(JobRun{}, err)
		}
	}
}

var errStopped = errors.New("stopped by the caller")

// Forget removes the run of key, so that the next Once runs the job again. It returns false if
// there was none. It does not wait for the lock: a run that is under way is still recorded, except
// with AtMostOnce. ErrConflict: what is there is not a run. ErrUnknownOutcome: it may be gone.
func (j *Job) Forget(ctx context.Context, key string) (found bool, err error) {
	if err := checkKey(key); j.err == nil && err != nil {
		return false, j.fail("forget", err)
	}
	return j.forget(ctx, key)
}

// ForgetLast is Forget for the run that Every has recorded.
func (j *Job) ForgetLast(ctx context.Context) (found bool, err error) {
	return j.forget(ctx, "")
}

func (j *Job) forget(ctx context.Context, key string) (found bool, err error) {
	err = j.withSession(ctx, "forget", func(s *session.Session) error {
		_, node := j.znode(key)
		if err := s.Settle(ctx, node); err != nil {
			return err
		}
		found, err = j.forgetOnce(ctx, s, key)
		for failure.IsOne(err, zk.ErrBadVersion, zk.ErrNoNode) {
			found, err = j.forgetOnce(ctx, s, key)
		}
		return err
	})
	return found, err
}

// forgetOnce tries once to forget the run. If others change the record meanwhile, it returns
// zk.ErrBadVersion or zk.ErrNoNode.
func (j *Job) forgetOnce(
	ctx context.Context, s *session.Session, key string,
) (found bool, err error) {
	dir, node := j.znode(key)
	at, err := s.Exists(ctx, dir)
	if errors.Is(err, zk.ErrNoNode) {
		return false, needChroot(ctx, s)
	}
	if err != nil {
		return false, err
	}
	r, there, err := j.read(ctx, s, key)
	if err != nil || !there {
		return false, err
	}
	err = remove(ctx, s, dir, at.Version, node, r.version)
	return err == nil, err
}

// ForgetBefore removes the runs of Once that began before t, by the ensemble's clock, and returns
// how many it has removed, also with an error.
func (j *Job) ForgetBefore(ctx context.Context, t time.Time) (n int, err error) {
	err = j.withSession(ctx, "forget", func(s *session.Session) error {
		return j.pages(ctx, s, func(p page) error {
			for _, r := range p.runs {
				if r.Key == "" || !r.Began.Before(t) {
					continue
				}
				if err := remove(ctx, s, p.dir, p.version, KeyPath(p.dir, r.Key),
					r.version); err != nil {
					return err
				}
				p.version++ // by remove
				n++
			}
			return nil
		})
	})
	return n, err
}
