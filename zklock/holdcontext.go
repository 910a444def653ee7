package zklock

import (
	"context"
	"slices"
	"time"

	"github.com/zklock/locker/internal/session"
)

// leaseContext is a context that ends with a session. Its methods look at the lease clock before
// they answer: after a stop of the process the lease may have expired before the timer that ends
// the session has run. A look that finds the lease expired ends the session, and all contexts
// derived from it, before the answer is given.
//
// Package context finds the cancelCtx inside by Value and the identity of Done's channel, and so
// needs no goroutine for a child. A child made by context.WithCancel asks its parent, and so looks,
// by its Value only.
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

// look costs a reading of the clock, and no mutex, unless it finds the lease expired.
func (c *leaseContext) look() {
	_ = c.s.Alive() // its error is the cause of the context's end
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

// Value returns what a Lock under this hold looks for, or else a value of the call's context.
func (c holdContext) Value(key any) any {
	switch k := key.(type) {
	case holdKey:
		return c.h
	case holdOf:
		if slices.Contains(c.h.a.paths, string(k)) {
			return c.h
		}
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
	// The session's context has no values but the one that lets package context cancel its children
	// without a goroutine.
	if v := c.Context.Value(key); v != nil {
		return v
	}
	return c.values.Value(key)
}

// HoldFrom returns the hold of the lock at path under which ctx was made, for functions that run
// inside Do and want the token or Multi. A MultiLock's hold is found by each of its paths. If there
// is none, the second result is false.
func HoldFrom(ctx context.Context, path string) (*Hold, bool) {
	h, ok := ctx.Value(holdOf(path)).(*Hold)
	return h, ok
}

// holdKey finds the innermost hold in a context, and holdOf the innermost one of a path.
type (
	holdKey struct{}
	holdOf  string
)

// lockKey is the key under which a hold's context has its acquisition.
type lockKey struct {
	c    *Client
	path string
}

// lockKeys returns the lockKey of each path, converted to any for context.Context.Value. A lock
// makes them once, since the conversion allocates.
func lockKeys(c *Client, paths []string) []any {
	keys := make([]any, len(paths))
	for i, path := range paths {
		keys[i] = lockKey{c, path}
	}
	return keys
}

// permitsKey is the key under which a context has the number of a semaphore's permits that its
// holds have.
type permitsKey lockKey
