package zklock

import (
	"context"
	"sync"
	"time"
)

// unlockBounds bounds how long calls of Unlock wait for the ensemble's answer. In a client that
// unlocks often, calls that begin at about the same time share a context: a timer for each would be
// a tenth of the allocations of an uncontended lock. In other clients each call has its own, and
// ends it: a shared one would be left to its timer, which wakes the process.
type unlockBounds struct {
	mu       sync.Mutex   // guards what follows, and the bounds' calls
	shared   *answerBound // by the next calls; nil if there is none
	lastCall time.Time    // when the latest call began
}

// answerBound is a context with which calls of Unlock wait for an answer.
type answerBound struct {
	ctx   context.Context
	end   context.CancelFunc
	limit time.Duration
	made  time.Time
	calls int // that wait with ctx
}

// begin returns a bound whose context ends after limit, or up to a hundredth of that earlier. The
// call passes it to finish when it has waited.
func (b *unlockBounds) begin(limit time.Duration) *answerBound {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	isOften := now.Sub(b.lastCall) < limit/100
	b.lastCall = now
	bound := b.shared
	if bound == nil || bound.limit != limit || now.Sub(bound.made) >= limit/100 {
		bound = &answerBound{limit: limit, made: now}
		bound.ctx, bound.end = context.WithTimeout(context.Background(), limit)
		b.stopSharingLocked()
		if isOften {
			b.shared = bound
		}
	}
	bound.calls++
	return bound
}

// finish says that a call does not wait any more. The last one ends the context, unless the next
// calls share it.
func (b *unlockBounds) finish(bound *answerBound) {
	b.mu.Lock()
	defer b.mu.Unlock()
	bound.calls--
	if bound.calls == 0 && bound != b.shared {
		bound.end()
	}
}

// stopSharingLocked sees to it that no further call gets the shared bound.
func (b *unlockBounds) stopSharingLocked() {
	if b.shared != nil && b.shared.calls == 0 {
		b.shared.end()
	}
	b.shared = nil
}
