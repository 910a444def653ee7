package zklock

import (
	"context"
	"errors"
	"time"

	"github.com/zklock/locker/session"
)

// leaseContext is a context that ends with a session. Its methods look at the lease clock before they answer: after a stop
// of the whole process the lease may be over, and the timer that ends the session may not have run yet. A look that finds
// the lease over ends the session, and so every context that was derived from it, before the answer is given.
//
// Package context finds the cancelCtx inside, by Value and the identity of Done's channel, so that it cancels children
// directly, without a goroutine each. A child that context.WithCancel made answers Err and Done by itself: it does not ask
// its parent, and so does not look. Its Value asks, since that walks up.
type leaseContext struct {
	context.Context
	s *session.Session
	a *acquisition // looks at its own grace
}

func (c *leaseContext) Err() error {
	c.look()
	return c.Context.Err()
}

func (c *leaseContext) Done() <-chan struct{} {
	c.look()
	return c.Context.Done()
}

func (c *leaseContext) Value(key any) any {
	c.look()
	return c.Context.Value(key)
}

// look costs a reading of the clock, or two with a grace, and takes no mutex, unless it is the one that finds the lease
// over.
func (c *leaseContext) look() {
	_ = c.s.Alive() // its error is the cause of the context's end
	if c.a.grace > 0 {
		c.a.lookAtGrace()
	}
}

// holdContext ends with the session, and has the values of the context that Lock was called with.
type holdContext struct {
	context.Context // the session's
	values          context.Context
	h               *Hold
}

// Deadline is that of WithMaxHold.
func (c holdContext) Deadline() (time.Time, bool) {
	if c.h.a.limit == 0 {
		return time.Time{}, false
	}
	return c.h.a.since.Add(c.h.a.limit), true
}

// holdKey finds the innermost hold in a context.
type holdKey struct{}

// HoldFrom returns the hold that ctx belongs to: the innermost one whose Context it is, or is derived from. It is for
// functions that run inside Do or Guard and want the token, SafeUntil or Multi.
func HoldFrom(ctx context.Context) (*Hold, bool) {
	h, ok := ctx.Value(holdKey{}).(*Hold)
	return h, ok
}

// Value finds the acquisition, for a Lock under this hold, before it looks further.
func (c holdContext) Value(key any) any {
	switch k := key.(type) {
	case holdKey:
		return c.h
	case lockKey:
		if c.h.a.covers(k) {
			return c.h.a
		}
	case permitsKey: // of all holds that the context belongs to
		n, _ := c.values.Value(key).(int)
		if c.h.a.covers(lockKey(k)) && c.h.ctx.Context.Err() == nil {
			n += c.h.a.info.Permits
		}
		return n
	}
	// The session's context has no values but the one that lets package context cancel its children without a goroutine.
	return joinedContext{c.Context, c.values}.Value(key)
}

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
