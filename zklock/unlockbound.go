package zklock

import (
	"context"
	"sync"
	"time"
)

// unlockBound bounds how long calls of Unlock wait for the ensemble's answer. Calls that begin
// shortly after one another share a context: few of them wait for as long as a millisecond, and a
// timer for each would be a tenth of what a lock costs that nobody else wants.
type unlockBound struct {
	mu     sync.Mutex // guards what follows
	limit  time.Duration
	made   time.Time // when ctx was made
	ctx    context.Context
	cancel context.CancelFunc
}

// within returns a context that ends in limit, or up to a tenth of that earlier.
func (b *unlockBound) within(limit time.Duration) context.Context {
	b.mu.Lock()
	defer b.mu.Unlock()
	isFresh := b.ctx != nil && b.limit == limit && time.Since(b.made) < limit/10
	if !isFresh {
		b.limit = limit
		b.made = time.Now()
		b.ctx, b.cancel = context.WithTimeout(context.Background(), limit)
	}
	return b.ctx
}

// stop ends the latest context, for which no call waits any more.
func (b *unlockBound) stop() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.cancel != nil {
		b.cancel()
	}
	b.ctx = nil
}
