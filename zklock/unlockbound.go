package zklock

import (
	"context"
	"sync"
	"time"
)

// unlockBound bounds how long calls of Unlock wait for the ensemble's answer. Calls that begin at
// about the same time share a context. Nearly every answer comes long before the limit, and a timer
// for each call would be a tenth of the allocations of an uncontended lock.
type unlockBound struct {
	mu    sync.Mutex // guards what follows
	limit time.Duration
	made  time.Time // when ctx was made
	ctx   context.Context
	end   context.CancelFunc // never called: calls may wait with ctx, which ends by its deadline
}

// within returns a context that ends after limit, or up to a hundredth of that earlier.
func (b *unlockBound) within(limit time.Duration) context.Context {
	b.mu.Lock()
	defer b.mu.Unlock()
	isFresh := b.limit == limit && time.Since(b.made) < limit/100
	if !isFresh {
		b.limit = limit
		b.made = time.Now()
		b.ctx, b.end = context.WithTimeout(context.Background(), limit)
	}
	return b.ctx
}
