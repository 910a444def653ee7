package zklock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/zklock/locker/session"
)

// do calls fn while it has what lock returns.
func do(ctx context.Context, lock func(context.Context) (*Hold, error), fn func(context.Context) error) error {
	needFunction(fn == nil)
	h, err := lock(ctx)
	if err != nil {
		return notRunError{err}
	}
	return h.do(ctx, fn)
}

// do is Mutex.Do after the lock was taken.
func (h *Hold) do(ctx context.Context, fn func(context.Context) error) (err error) {
	work, end := h.with(ctx)
	defer func() {
		if _, timed := ctx.Deadline(); timed && errors.Is(work.Context.Err(), context.DeadlineExceeded) {
			ended(ctx)
		}
		lost := h.Err()
		end(ErrUnlocked)
		if found := h.releaseAfterWork(ctx); lost == nil {
			lost = found
		}
		err = hide(err, ErrNotRun)
		if lost != nil {
			lost = &lockError{"do", h.a.info.Path, fmt.Errorf("lost while in use: %w", lost)}
			if err == nil {
				err = lost
			} else {
				err = fmt.Errorf("%w; %w", err, lost)
			}
		}
	}()
	return fn(work)
}

// releasePart is the part of the session timeout for which Do waits for the answer to its release.
const releasePart = 10

// releaseAfterWork releases the hold when Do's function has returned. It waits for the answer only while there is a
// connection, and a tenth of the session timeout at most, also when ctx is over. Without an answer the release goes on in
// the background; the Released hook has the reason. The error is ErrNodeDeleted when the release finds that another client
// has deleted the znode, which may have been before the function returned.
func (h *Hold) releaseAfterWork(ctx context.Context) error {
	s := h.ctx.s
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

// hide returns fn's error. If it comes from a nested call, so that it matches one of hidden, that is not to be taken for
// the outer call's: what is returned then matches none of them.
func hide(err error, hidden ...error) error {
	if isAny(err, hidden...) {
		return hidingError{err, hidden}
	}
	return err
}

type hidingError struct {
	err    error
	hidden []error
}

func (e hidingError) Error() string { return e.err.Error() }
func (e hidingError) Is(target error) bool {
	return !slices.Contains(e.hidden, target) && errors.Is(e.err, target)
}
func (e hidingError) As(target any) bool {
	_, done := target.(**DoneError)
	return !(done && slices.Contains(e.hidden, ErrDone)) && errors.As(e.err, target)
}

// ended waits for the end of a context whose deadline has come. A context with the same deadline and another parent has a
// timer of its own, which may run first: a caller who sees that context end and then checks their own must find it ended too.
func ended(ctx context.Context) {
	const late = time.Second // for one that says a deadline and does not keep it
	t := time.NewTimer(late)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}
