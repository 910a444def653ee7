package zklock

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/zklock/locker/internal/queue"
)

// waiting is a call that waits for its lock. Status shows it, and as a queue.Caller it is told of
// its progress.
type waiting struct {
	c     *Client
	info  LockInfo
	since time.Time

	caller context.Context    // of the call
	cancel context.CancelFunc // ends the wait
	limit  time.Duration      // the longest that the call may take; 0: as long as caller lasts

	// Guarded by inUse.mu; only the call's goroutine writes them.
	line     queue.Line
	panicked any   // what a hook panicked with
	retries  int   // how often a step was made again
	why      error // the last time
}

// Queued notes the call's place in line, and reports it.
func (w *waiting) Queued(l queue.Line) {
	w.c.use.update(func() { w.line = l })
	defer w.endOnPanic()
	w.c.tell(slog.LevelDebug, "lock queued", w.c.opts.hooks.Queued, w.queued())
}

// queued returns the call with its place in line.
func (w *waiting) queued() LockInfo {
	i := w.info
	i.Ahead, i.HolderNode, i.HolderOwner = w.line.Ahead, w.line.Node, w.line.Owner
	return i
}

func (w *waiting) Retried(cause error) {
	w.c.use.update(func() { w.line, w.retries, w.why = queue.Line{}, w.retries+1, cause })
	defer w.endOnPanic()
	i := w.info
	i.Err = cause
	w.c.tell(slog.LevelDebug, "lock step retried", w.c.opts.hooks.Retried, i)
}

// tellFailed reports that the call has failed with err.
func (w *waiting) tellFailed(err error) {
	i := w.info
	i.Waited, i.Err = time.Since(w.since), err
	w.c.tell(slog.LevelDebug, "lock not acquired", w.c.opts.hooks.Failed, i)
}

// endOnPanic is deferred by what calls a hook while the call waits. A panic must not unwind the stack of a call that has a
// place in line: it ends the wait, and acquire goes on with it.
func (w *waiting) endOnPanic() {
	if p := recover(); p != nil {
		w.c.use.update(func() { w.panicked = p })
		w.cancel()
	}
}

// explain adds to the error of a call whose ctx has ended, and that is not in line, why it had to begin again: the ensemble may
// end session after session.
func (w *waiting) explain(ctx context.Context, err error) error {
	if ctx.Err() == nil || w.retries == 0 || errors.As(err, new(queue.LineError)) {
		return err
	}
	return fmt.Errorf("%w (%d attempts before that failed, the last one with: %v)", err, w.retries, w.why) //nolint:errorlint // as text
}
