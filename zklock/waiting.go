package zklock

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
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
	cancel context.CancelFunc // ends the wait; does nothing if only caller bounds it (lock.bound)
	limit  time.Duration      // the longest that the call may take; 0: as long as caller lasts
	// the wait's steps are told to a hook or the log; warnings are logged in any case
	tells bool

	// Guarded by inUse.mu; only the call's goroutine writes them.
	line    queue.Line
	retries int   // how often a step was made again
	why     error // the last time

	aborted *abort // how a user's function has ended the wait; nil if none has
}

// abort says that a function of the user's has panicked or called runtime.Goexit.
type abort struct {
	panicked any // the panic's value; nil after runtime.Goexit
}

// resume panics with the same value, or calls runtime.Goexit.
func (a *abort) resume() {
	if a.panicked == nil {
		runtime.Goexit()
	}
	panic(a.panicked)
}

// callUser calls fn, which calls functions of the user's: a hook, or a log's handler. The call has
// a place in line meanwhile. If fn panics, or ends its goroutine as testing.T.FailNow does, that
// must not unwind the stack of the call, which would keep its place for as long as the session
// lasts. So fn has a goroutine of its own, which callUser joins. If fn panics or calls
// runtime.Goexit there, callUser notes that and ends the wait: by cancel or, in a wait without one
// (lock.bound), by Warn's result. Once the place was given up, acquire panics or calls Goexit in
// fn's stead.
func (w *waiting) callUser(fn func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		returned := false
		defer func() {
			if !returned {
				w.aborted = &abort{recover()}
				w.cancel()
			}
		}()
		fn()
		returned = true
	}()
	<-done
}

// Queued notes the call's place in line, and reports it.
func (w *waiting) Queued(l queue.Line) {
	w.c.use.update(func() { w.line = l })
	w.tell("lock queued", w.c.opts.hooks.Queued, w.queued())
}

// tell reports an event of the wait.
func (w *waiting) tell(event string, hook func(LockInfo), i LockInfo) {
	if w.tells {
		w.callUser(func() { w.c.tell(slog.LevelDebug, event, hook, i) })
	}
}

// queued returns the call with its place in line.
func (w *waiting) queued() LockInfo {
	i := w.info
	i.Ahead, i.HolderNode, i.HolderOwner = w.line.Ahead, w.line.Node, w.line.Owner
	return i
}

// Warn logs a warning about the line. It returns false if the log's handler has panicked or called
// runtime.Goexit.
func (w *waiting) Warn(message string, args ...any) bool {
	w.callUser(func() {
		w.c.log.Warn("zklock: "+message,
			append([]any{"path", w.info.Path}, args...)...)
	})
	return w.aborted == nil
}

// Retried notes that a step has failed and is made again, and reports it.
func (w *waiting) Retried(cause error) {
	w.c.use.update(func() { w.line, w.retries, w.why = queue.Line{}, w.retries+1, cause })
	i := w.info
	i.Err = cause
	w.tell("lock step retried", w.c.opts.hooks.Retried, i)
}

// tellFailed reports that the call has failed with err.
func (w *waiting) tellFailed(err error) {
	i := w.info
	i.Waited, i.Err = time.Since(w.since), err
	w.c.tell(slog.LevelDebug, "lock not acquired", w.c.opts.hooks.Failed, i)
}

// withRetries adds to err how often the call had to begin again, and why: the ensemble may end
// session after session. It does so if ctx, the wait's, has ended and the call is not in line.
func (w *waiting) withRetries(ctx context.Context, err error) error {
	if ctx.Err() == nil || w.retries == 0 || errors.As(err, new(queue.LineError)) {
		return err
	}
	return fmt.Errorf("%w (%d attempts before that failed, the last one with: %v)", err, w.retries, w.why) //nolint:errorlint // as text
}
