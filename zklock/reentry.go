package zklock

import (
	"context"
	"fmt"
	"slices"
	"time"
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
	return a.addLocked(values, read), nil
}

func (a *acquisition) addLocked(values context.Context, read bool) *Hold {
	h := &Hold{}
	h.bind(a, values, read)
	a.holds = append(a.holds, h)
	return h
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
	h.cancel(ErrUnlocked) // in one step with the removal: else a loss in between would not reach it
	a.removeLocked(h)
	last = len(a.holds) == 0
	return last, !last && !h.read && a.kind == KindWrite && a.state == held && !a.writingLocked()
}

// removeLocked finds a hold from the end: the innermost is released first.
func (a *acquisition) removeLocked(h *Hold) {
	for i, other := range slices.Backward(a.holds) {
		if other == h {
			a.holds = slices.Delete(a.holds, i, i+1)
			return
		}
	}
}

// lockKey finds an acquisition in a context.
type lockKey struct {
	c    *Client
	path string
}

// heldIn returns the acquisition of path that ctx carries and that is held, or nil. A hold of another family cannot be
// joined, and a separate lock on the same path could never be acquired: ErrConflict.
func (c *Client) heldIn(ctx context.Context, path string, family Kind) (*acquisition, error) {
	a, ok := ctx.Value(lockKey{c, path}).(*acquisition)
	switch {
	case !ok || !a.live():
		return nil, nil
	case a.info.Kind.family() != family:
		return nil, fmt.Errorf("%w: the caller holds %s as a %s", ErrConflict, path, a.info.Kind)
	}
	return a, nil
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
	if v := c.Context.Value(key); v != nil {
		return v
	}
	return c.values.Value(key)
}
