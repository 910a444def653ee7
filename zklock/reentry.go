package zklock

import (
	"context"
	"fmt"
	"slices"
)

// Reentrancy is carried by contexts: the context of a hold leads to its acquisition (holdContext), for a Lock of the same
// path to join it.

// errNoWrite says that a hold for writing can't join: the acquisition is for reading, or is being downgraded.
var errNoWrite = fmt.Errorf("%w, for reading", ErrDeadlock)

// join adds a hold. Nil, nil: the lock is not held any more, or about to be released.
func (a *acquisition) join(values context.Context, read bool) (*Hold, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case !a.liveLocked():
		return nil, nil
	case !read && !a.writingLocked():
		return nil, errNoWrite
	}
	h := &Hold{}
	h.bind(a, values, read)
	a.holds = append(a.holds, h)
	return h, nil
}

// writingLocked reports whether there is a hold that is not of the read lock, nor about to be.
func (a *acquisition) writingLocked() bool {
	return slices.ContainsFunc(a.holds, func(h *Hold) bool { return !h.read && h != a.downgrading })
}

// drop ends the context of a hold that was released, and removes it. last: no hold is left. downgrade: it was the last
// hold of the write lock, and holds of the read lock remain, so the ticket has to become a reader's.
func (a *acquisition) drop(h *Hold) (last, downgrade bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	h.cancel(ErrUnlocked)                            // in one step with the removal: else a loss in between would not reach it
	for i, other := range slices.Backward(a.holds) { // the innermost is released first
		if other == h {
			a.holds = slices.Delete(a.holds, i, i+1)
			break
		}
	}
	last = len(a.holds) == 0
	return last, !last && !h.read && a.kind == KindWrite && a.state == held && !a.writingLocked()
}

// lockKey finds an acquisition in a context.
type lockKey struct {
	c    *Client
	path string
}

// covers reports whether the acquisition is of the path of k.
func (a *acquisition) covers(k lockKey) bool {
	if k.c != a.c {
		return false
	}
	if a.info.Paths == nil {
		return k.path == a.info.Path
	}
	return slices.Contains(a.info.Paths, k.path)
}
