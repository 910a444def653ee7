package zklock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/zklock/locker/session"
)

// do calls fn while it has what lock returns.
func do(ctx context.Context, lock func(context.Context) (*Hold, error), fn func(context.Context) error) error {
	h, err := lock(ctx)
	if err != nil {
		return notRunError{err}
	}
	return h.do(ctx, fn)
}

// do is Mutex.Do after the lock was taken.
func (h *Hold) do(ctx context.Context, fn func(context.Context) error) (err error) {
	base := h.Context()
	d, timed := ctx.Deadline()
	if timed {
		var end context.CancelFunc
		base, end = context.WithDeadline(base, d)
		defer end()
	}
	work, cancel := context.WithCancelCause(base)
	stop := context.AfterFunc(ctx, func() {
		if !timed || !errors.Is(ctx.Err(), context.DeadlineExceeded) { // else work ends by the same deadline, and says so
			cancel(context.Cause(ctx))
		}
	})
	defer func() {
		stop()
		if timed && errors.Is(work.Err(), context.DeadlineExceeded) {
			ended(ctx)
		}
		lost := h.Err()
		cancel(ErrUnlocked)
		if found := h.releaseAfterWork(ctx); lost == nil {
			lost = found
		}
		if errors.Is(err, ErrNotRun) {
			err = ownError{err}
		}
		if lost != nil {
			lost = &lockError{"do", h.g.info.Path, fmt.Errorf("lost while in use: %w", lost)}
			if err == nil {
				err = lost
			} else {
				err = fmt.Errorf("%w; %w", err, lost)
			}
		}
	}()
	return fn(&leaseContext{work, h.ctx.s})
}

// releasePart is the part of the session timeout for which Do waits for the answer to its release.
const releasePart = 10

// releaseAfterWork releases the hold when Do's function has returned, whose work is done: it waits for the answer only
// while there is a connection, and a tenth of the session timeout at most, also when ctx is over. Without an answer the
// release goes on in the background; the Released hook has the reason. The error is ErrNodeDeleted when the release
// finds that somebody else has deleted the znode, which may have been before the function returned.
func (h *Hold) releaseAfterWork(ctx context.Context) error {
	s := h.g.s
	bounded, done := context.WithTimeout(context.WithoutCancel(ctx), s.Timeout()/releasePart)
	defer done()
	if s.State() != session.Connected {
		done()
	}
	if err := h.Unlock(bounded); errors.Is(err, ErrNodeDeleted) {
		return ErrNodeDeleted
	}
	return nil
}

// notRunError is why Do's function was not called.
type notRunError struct{ error }

func (e notRunError) Unwrap() error        { return e.error }
func (e notRunError) Is(target error) bool { return target == ErrNotRun }

// ownError is the error of a function that was called, when it is of a Do inside of it whose function was not.
type ownError struct{ err error }

func (e ownError) Error() string        { return e.err.Error() }
func (e ownError) Is(target error) bool { return target != ErrNotRun && errors.Is(e.err, target) }
func (e ownError) As(target any) bool   { return errors.As(e.err, target) }

// ended waits for the end of a context whose deadline has come. A context that was derived with the same deadline from
// another parent has a timer of its own, which may run first; whoever is told of that end looks at his own context next.
func ended(ctx context.Context) {
	const late = time.Second // for one that says a deadline and does not keep it
	t := time.NewTimer(late)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}
