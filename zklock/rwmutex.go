package zklock

import (
	"context"
	"errors"
	"fmt"

	"github.com/zklock/locker/recipe"
)

// RWMutex is a lock that one writer or any number of readers in the whole ensemble can have, in order of arrival: a
// reader that comes after a waiting writer waits behind it. Like a Mutex it is a description and stores no ownership.
//
// Its znodes are named as Apache Curator's InterProcessReadWriteLock names them, so that Java programs can share the
// path. A Mutex can't: ErrConflict.
type RWMutex struct{ b base }

// RWMutex returns the read/write lock whose contenders queue below path. It does no I/O; a path or option that can't
// work is reported by every call on it (ErrPath, ErrOption). WithReentrancy lets the holder of the write lock take it
// again, or take the read lock: that one stays when the write lock is released first.
func (c *Client) RWMutex(path string, opts ...LockOption) *RWMutex {
	return &RWMutex{c.newBase(path, opts)}
}

const (
	kindRead  = "read"
	kindWrite = "write"
)

// Lock waits until nobody else reads or writes and returns the hold of the write lock. Contract and errors are those
// of Mutex.Lock. Asking for it under one's own read lock is ErrDeadlock, with reentrancy too: it would wait for itself.
func (m *RWMutex) Lock(ctx context.Context) (*Hold, error) {
	return m.b.lock(ctx, m.write("lock", false))
}

// TryLock is Lock for when nobody else stands in line at all: see Mutex.TryLock.
func (m *RWMutex) TryLock(ctx context.Context) (*Hold, error) {
	return m.b.acquire(ctx, m.write("try lock", true))
}

// RLock waits until no writer that came before holds or waits, and returns a hold of the read lock. Contract and
// errors are those of Mutex.Lock. Asking for it under one's own read lock needs WithReentrancy, since a writer may have
// queued in between.
func (m *RWMutex) RLock(ctx context.Context) (*Hold, error) {
	return m.b.lock(ctx, m.read("read lock", false))
}

// TryRLock is RLock for when no writer holds or waits: see Mutex.TryLock.
func (m *RWMutex) TryRLock(ctx context.Context) (*Hold, error) {
	return m.b.acquire(ctx, m.read("try read lock", true))
}

// Do calls fn while it holds the write lock: see Mutex.Do.
func (m *RWMutex) Do(ctx context.Context, fn func(ctx context.Context) error) error {
	return do(ctx, m.Lock, fn)
}

// RDo calls fn while it holds the read lock: see Mutex.Do.
func (m *RWMutex) RDo(ctx context.Context, fn func(ctx context.Context) error) error {
	return do(ctx, m.RLock, fn)
}

// Downgrade turns h, a hold of the write lock, into a hold of the read lock, which it returns. The place in line is
// kept: no writer gets between, and readers that wait behind come in. h is released (its context ends with
// ErrUnlocked); the new hold has the same token, the context values that h has, and what is left of WithMaxHold.
//
// It blocks for one round trip. An Unlock of h that comes meanwhile does not wait for it longer than its own context
// lasts; Downgrade then returns ErrNotHeld, and whichever of the two there is goes.
// Errors: ErrNotHeld (h is no hold of this write lock, or released before), ErrLost.
// When ctx ends before the reply, nobody can tell which of the two there is: the lock is given up
// (ErrUnknownOutcome). After any other error h is what it was.
func (m *RWMutex) Downgrade(ctx context.Context, h *Hold) (*Hold, error) {
	m.b.need(ctx)
	fail := func(err error) (*Hold, error) { return nil, &lockError{"downgrade", m.b.path, err} }
	if m.b.err != nil {
		return fail(m.b.err)
	}
	if h == nil || h.g == nil {
		return fail(fmt.Errorf("%w: no hold", ErrNotHeld))
	}
	g := h.g
	if h.read || g.info.Kind != kindWrite || !g.covers(lockKey{m.b.c, m.b.path}) {
		return fail(fmt.Errorf("%w: not a hold of this write lock", ErrNotHeld))
	}
	if err := h.Err(); err != nil && !h.released.Load() {
		return fail(err)
	}
	move, err := g.begin(h)
	if err != nil {
		return fail(err)
	}
	if err := g.demote(ctx, move); err != nil {
		if errors.Is(g.why(), ErrUnlocked) { // given up
			h.released.Store(true)
		}
		return fail(err)
	}
	h.cancel(ErrUnlocked)
	return g.newHold(&h.ctx, true), nil
}

func (m *RWMutex) write(op string, try bool) request {
	return request{op: op, try: try, kind: kindWrite, queue: m.b.queue(recipe.Write), again: m.rewrite}
}

func (m *RWMutex) read(op string, try bool) request {
	return request{op: op, try: try, kind: kindRead, queue: m.b.queue(recipe.Read), again: m.reread}
}

// rewrite is reenter for the write lock.
func (m *RWMutex) rewrite(ctx context.Context) (*Hold, error) {
	g, err := m.b.c.held(ctx, m.b.path, familyRW)
	if g == nil {
		return nil, err
	}
	return m.b.enter(ctx, g, false)
}

// reread is reenter for the read lock.
func (m *RWMutex) reread(ctx context.Context) (*Hold, error) {
	g, err := m.b.c.held(ctx, m.b.path, familyRW)
	if g == nil {
		return nil, err
	}
	return m.b.enter(ctx, g, true)
}
