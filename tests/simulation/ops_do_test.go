package simulation_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/zklock/locker/internal/session"
	"github.com/zklock/locker/zklock"
)

// work is the function that Do and a job are given: it holds the lock for the time that was drawn.
// t and g are what it got.
func (o *op) work(ctx context.Context) (t *acquisition, g *hold) {
	h, found := zklock.HoldFrom(ctx, o.path)
	if !found {
		o.p.w.violated("%s#%d: the function of %s has no hold of %s", o.p.name, o.n, o.kind, o.path)
		return nil, nil
	}
	g = &hold{Hold: h}
	t = o.enter(g)
	o.p.note("#%d runs under %s, token %d", o.n, short(h.Node()), h.Token())
	return t, g
}

// rest ends the work: the hold is released when the function has returned.
func (o *op) rest(t *acquisition, g *hold) {
	o.rests(g)
	o.release(t, g)
}

// do takes a lock for the time of a function.
func (o *op) do(ctx context.Context) {
	o.p.note("#%d does: %s %s x%d wait %v max %v, deadline %v", o.n, o.kind, o.paths, o.permits,
		o.wait, o.maxHold, o.limit)
	limit := o.limit
	if o.wait > 0 {
		limit = min(limit, o.wait)
	}
	o.inside = true
	var t *acquisition
	var g *hold
	fn := func(ctx context.Context) error {
		o.p.within(o.began, limit, "do")
		if t, g = o.work(ctx); t != nil {
			o.rest(t, g)
		}
		return nil
	}
	var err error
	switch o.kind {
	case "mutex":
		err = o.c.Mutex(o.path, o.opts...).Do(ctx, fn)
	case "multi":
		err = o.c.MultiLock(o.paths, o.opts...).Do(ctx, fn)
	case "read":
		err = o.c.RWMutex(o.path, o.opts...).RDo(ctx, fn)
	case "write":
		err = o.c.RWMutex(o.path, o.opts...).Do(ctx, fn)
	case "semaphore":
		err = o.semaphore().Do(ctx, o.permits, fn)
	}
	o.p.note("#%d did: %v", o.n, errText{err})
	if t != nil {
		o.p.w.oracle.ended(t, g)
		o.did(ctx, err)
		return
	}
	if !errors.Is(err, zklock.ErrNotRun) {
		o.p.w.violated("%s#%d: %s: the function was not called, and the error is %v", o.p.name, o.n,
			o.kind, err)
	}
	o.p.within(o.began, limit, "do")
	o.refused(ctx, err)
}

// did checks the error of a call whose function was called, and has returned nil.
func (o *op) did(ctx context.Context, err error) {
	switch {
	case errors.Is(err, zklock.ErrNotRun):
	case err == nil, errors.Is(err, zklock.ErrLost), errors.Is(err, zklock.ErrNotRecorded):
		return
	case ctx.Err() != nil && errors.Is(err, ctx.Err()), errors.Is(err, zklock.ErrClosed) &&
		o.p.closedSince(o.began):
		return
	}
	o.p.w.violated("%s#%d: %s: the function was called, and the error is %v", o.p.name, o.n, o.kind,
		err)
}

// job runs a job once for one of a few keys. The oracle knows what was recorded: see oracle.begins.
func (o *op) job(ctx context.Context) {
	most := o.key%2 == 0
	j, key := o.c.Job(o.path), fmt.Sprintf("key-%d", o.key)
	if most {
		j = j.AtMostOnce()
	}
	// Whatever lock was drawn, a job takes a mutex without options.
	o.kind, o.paths, o.opts = "mutex", []string{o.path}, nil
	o.try, o.wait, o.maxHold = false, 0, 0
	o.inside = true
	o.p.note("#%d has the job %s done for %s, at most once %v, deadline %v", o.n, o.path, key, most,
		o.limit)
	var t *acquisition
	var g *hold
	run, err := j.Once(ctx, key, func(ctx context.Context) error {
		if t, g = o.work(ctx); t != nil {
			o.p.w.oracle.begins(t, key, most)
			o.rest(t, g)
		}
		return nil
	})
	o.p.note("#%d job: %v", o.n, errText{err})
	if t != nil {
		o.p.w.oracle.ended(t, g)
		o.did(ctx, err)
	} else if err != nil {
		// it may have held the lock while it read the record
		o.p.within(o.began, o.limit+o.p.unlocks(), "job")
		if !errors.Is(err, zklock.ErrNotRun) {
			o.p.w.violated("%s#%d: the job was not called, and the error is %v", o.p.name, o.n, err)
		}
		if !errors.Is(err, session.ErrLost) && !(most && errors.Is(err, zklock.ErrUnknownOutcome)) {
			o.refused(ctx, err)
		}
	}
	if err == nil {
		if run.Key != key || run.Mine != (t != nil) {
			o.p.w.violated("%s#%d: the run of %s is %v, mine %v", o.p.name, o.n, key, run, run.Mine)
		}
		o.p.w.oracle.recorded(o.path, key)
	}
}

// jobKey is a key of one job.
type jobKey struct{ path, key string }

// begins checks that a job's function may be called: its run is not recorded, and with at most once
// it was never called. Where the znode was removed by force, another client may have done the job
// meanwhile.
func (o *oracle) begins(t *acquisition, key string, most bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	k := jobKey{t.paths[0], key}
	o.called[k]++
	_, stands := o.w.srv.Node(t.nodes[0])
	switch {
	case o.done[k] && stands:
		o.w.violated("%s does the job %v, which is recorded", t.who, k)
	case most && o.called[k] > 1:
		o.w.violated("%s does the job %v, which is done at most once, and was started before",
			t.who, k)
	}
}

// recorded notes that a job's run is known to be recorded.
func (o *oracle) recorded(path, key string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.done[jobKey{path, key}] = true
}
