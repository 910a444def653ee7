package locktest

import (
	"context"
	"sync/atomic"
)

// EndingContext is a context at whose call of Err something ends: so a test makes it happen at each
// moment at which a call looks whether to go on, one after the other.
type EndingContext struct {
	context.Context
	left atomic.Int32
	end  func()
}

// EndAt returns a context that calls end at the n-th call of its Err, before it answers.
func EndAt(ctx context.Context, n int32, end func()) *EndingContext {
	c := &EndingContext{Context: ctx, end: end}
	c.left.Store(n)
	return c
}

// Err is the context's.
func (c *EndingContext) Err() error {
	if c.left.Add(-1) == 0 {
		c.end()
	}
	return c.Context.Err()
}

// Reached reports whether end was called.
func (c *EndingContext) Reached() bool { return c.left.Load() <= 0 }
