package zklock

import (
	"context"
	"errors"
)

// With returns a context for work under the hold: it ends with the hold, as Context does and with its cause, or with ctx,
// whichever is first, and has the earlier of their deadlines. Its values are those of Context, and ctx's for keys that
// Context does not have; so HoldFrom finds the hold. Call release when the work is done, as with package context: it
// frees the context's resources, and does not release the hold.
//
//	hold, err := m.Lock(ctx)
//	…
//	defer hold.Unlock(context.WithoutCancel(ctx))
//	work, release := hold.With(ctx)
//	defer release()
//	row, err := db.ExecContext(work, …)
func (h *Hold) With(ctx context.Context) (work context.Context, release context.CancelFunc) {
	h.need()
	needContext(ctx)
	w, end := h.with(ctx)
	return w, func() { end(context.Canceled) }
}

// with is With whose end has a cause.
func (h *Hold) with(ctx context.Context) (*leaseContext, context.CancelCauseFunc) {
	var base context.Context = joinedContext{h.Context(), ctx}
	release := context.CancelFunc(func() {})
	d, timed := ctx.Deadline()
	if timed {
		base, release = context.WithDeadline(base, d)
	}
	work, cancel := context.WithCancelCause(base)
	stop := context.AfterFunc(ctx, func() {
		if !timed || !errors.Is(ctx.Err(), context.DeadlineExceeded) { // else work ends by the same deadline, and says so
			cancel(context.Cause(ctx))
		}
	})
	return &leaseContext{work, h.ctx.s, h.a}, func(cause error) {
		stop()
		cancel(cause)
		release()
	}
}

// joinedContext has the values of a second context for keys that the first has none for.
type joinedContext struct {
	context.Context
	second context.Context
}

func (c joinedContext) Value(key any) any {
	if v := c.Context.Value(key); v != nil {
		return v
	}
	return c.second.Value(key)
}
