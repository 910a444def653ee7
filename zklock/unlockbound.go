package zklock

import (
	"context"
	"sync"
	"time"
)

// unlockBound bounds how long calls of Unlock wait for the ensemble's answer. Calls that begin at
// about the same time share a context: few of them wait for as long as a millisecond, and a timer
// for each would be a tenth of what a lock allocates that nobody else wants.
type unlockBound struct {
	mu    sync.Mutex // guards what follows
	limit time.Duration
	made  time.Time // when ctx was made
	ctx   context.Context
	end   context.CancelFunc // of ctx; its time ends it, since calls may still wait for it
}

// within returns a context that ends in limit, or up to a hundredth of that earlier.
func (b *unlockBound) within(limit time.Duration) context.Context {
	b.mu.Lock()
	defer b.mu.Unlock()
	isFresh := b.ctx != nil && b.limit == limit && time.Since(b.made) < limit/100
	if !isFresh {
		b.limit = limit
		b.made = time.Now()
		b.ctx, b.end = context.WithTimeout(context.Background(), limit)
	}
	return b.ctx
}
