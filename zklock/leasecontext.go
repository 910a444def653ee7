package zklock

import (
	"context"

	"github.com/zklock/locker/session"
)

// leaseContext is a context that ends with a session, and whose methods look at the lease clock first: whoever asks is
// not told that the lock is held when the lease is over and only the timer that says so has not run, as after a stop of
// the whole process. A look that finds the lease over ends the session, and with it every context that was derived from
// this one, before the answer is given.
//
// Package context knows it for the cancelCtx inside, by Value and the identity of Done's channel: children are cancelled
// directly, without a goroutine each. A child that context.WithCancel made answers Err and Done by itself; it does not
// ask its parent, and so does not look. Its Value does, since that walks up.
type leaseContext struct {
	context.Context
	s *session.Session
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

// look costs a reading of the clock and takes no mutex, unless it is the one that finds the lease over.
func (c *leaseContext) look() { _ = c.s.Alive() } // its error is the cause of the context's end
