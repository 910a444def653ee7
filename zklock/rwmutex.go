package zklock

import (
	"context"
	"errors"
	"fmt"
)

// RWMutex is a lock that one writer or any number of readers in the whole ensemble can have, in order of arrival: a
// reader that comes after a waiting writer waits behind it. Like a Mutex it is a description and stores no ownership.
//
// Its znodes are named as Apache Curator's InterProcessReadWriteLock names them, so that Java programs can share the
// path. A Mutex can't: ErrConflict.
type RWMutex struct{ lock }

// RWMutex returns the read/write lock whose contenders queue below path. It does no I/O; a path or option that can't work
// is reported by every call on it (ErrPath, ErrOption). WithReentrancy lets the holder of the write lock take it again,
// or take the read lock, which stays when the write lock is released first.
func (c *Client) RWMutex(path string, opts ...LockOption) *RWMutex {
	return &RWMutex{c.newLock("read/write lock", opts, path)}
}

// Lock waits until nobody else reads or writes and returns the hold of the write lock. Contract and errors are those of
// Mutex.Lock. Asking for it under one's own read lock is ErrDeadlock, with reentrancy too: the call would wait for that
// read lock.
func (m *RWMutex) Lock(ctx context.Context) (*Hold, error) {
	return use(ctx, m).acquire(ctx, request{op: "lock", kind: KindWrite})
}

// TryLock returns the hold of the write lock if no other contender is in line: see Mutex.TryLock.
func (m *RWMutex) TryLock(ctx context.Context) (*Hold, error) {
	return use(ctx, m).acquire(ctx, request{op: "try lock", try: true, kind: KindWrite})
}

// RLock waits until no writer that came before holds or waits, and returns a hold of the read lock. Contract and errors
// are those of Mutex.Lock. Asking for it under one's own read lock needs WithReentrancy, since a writer may have queued
// in between.
func (m *RWMutex) RLock(ctx context.Context) (*Hold, error) {
	return use(ctx, m).acquire(ctx, request{op: "read lock", kind: KindRead})
}

// TryRLock returns a hold of the read lock if no writer holds or waits: see Mutex.TryLock.
func (m *RWMutex) TryRLock(ctx context.Context) (*Hold, error) {
	return use(ctx, m).acquire(ctx, request{op: "try read lock", try: true, kind: KindRead})
}

// Do calls fn while it holds the write lock: see Mutex.Do.
func (m *RWMutex) Do(ctx context.Context, fn func(ctx context.Context) error) error {
	return do(ctx, m.Lock, fn)
}

// RDo calls fn while it holds the read lock: see Mutex.Do.
func (m *RWMutex) RDo(ctx context.Context, fn func(ctx context.Context) error) error {
	return do(ctx, m.RLock, fn)
}

// Downgrade turns h, a hold of the write lock, into a hold of the read lock, which it returns. The place in line is kept:
// no writer gets the lock in between, and readers that wait behind get it too. h is released (its context ends with
// ErrUnlocked); the new hold has the same token, the context values that h has, and what is left of WithMaxHold.
//
// End all work that needs the write lock before the call: other readers may hold the lock as soon as the ensemble has
// carried it out, and h's context ends only with the answer. A Multi of h is refused from then on.
//
// It blocks for one round trip. If h is unlocked meanwhile, that Unlock waits for it no longer than its own context
// lasts; Downgrade then returns ErrNotHeld, and the write lock or the read lock, whichever it is by then, is released.
// Errors: ErrNotHeld (h is no hold of this write lock, or released before), ErrLost. When ctx ends before the reply, it
// is not known which of the two the lock is, so it is given up (ErrUnknownOutcome). After any other error h is unchanged.
func (m *RWMutex) Downgrade(ctx context.Context, h *Hold) (*Hold, error) {
	l := use(ctx, m)
	fail := func(err error) (*Hold, error) { return nil, l.fail("downgrade", err) }
	if l.err != nil {
		return fail(l.err)
	}
	if h == nil || h.a == nil {
		return fail(fmt.Errorf("%w: the hold is nil, or the zero value", ErrNotHeld))
	}
	a := h.a
	if h.read || a.info.Kind != KindWrite || !a.covers(lockKey{l.c, l.path}) {
		return fail(fmt.Errorf("%w: not a hold of this write lock", ErrNotHeld))
	}
	if err := h.Err(); err != nil && !h.released.Load() {
		return fail(err)
	}
	if err := a.beginDowngrade(h); err != nil {
		return fail(err)
	}
	reader, err := a.downgrade(ctx, h)
	if err != nil {
		if errors.Is(a.ended(), ErrUnlocked) { // given up
			h.released.Store(true)
		}
		return fail(err)
	}
	h.cancel(ErrUnlocked)
	return reader, nil
}
