package zklock

import (
	"context"

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
