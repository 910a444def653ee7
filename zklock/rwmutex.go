package zklock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/zklock/locker/internal/trusted"
	"github.com/zklock/locker/recipe"
	"github.com/zklock/locker/session"
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

// Lock waits until no other client reads or writes and returns the hold of the write lock. Contract and errors are those of
// Mutex.Lock. With the context of a read hold it is ErrDeadlock, with reentrancy too: the call would wait for that hold.
func (m *RWMutex) Lock(ctx context.Context) (*Hold, error) {
	return use(ctx, m).acquire(ctx, "lock", LockInfo{Kind: KindWrite})
}

// TryLock returns the hold of the write lock if no other contender is in line: see Mutex.TryLock.
func (m *RWMutex) TryLock(ctx context.Context) (*Hold, error) {
	return use(ctx, m).acquire(ctx, "try lock", LockInfo{Kind: KindWrite, Try: true})
}

// RLock waits until no writer that came before holds or waits, and returns a hold of the read lock. Contract and errors are
// those of Mutex.Lock. With the context of a read hold it needs WithReentrancy, since a writer may have queued in between.
func (m *RWMutex) RLock(ctx context.Context) (*Hold, error) {
	return use(ctx, m).acquire(ctx, "read lock", LockInfo{Kind: KindRead})
}

// TryRLock returns a hold of the read lock if no writer holds or waits: see Mutex.TryLock.
func (m *RWMutex) TryRLock(ctx context.Context) (*Hold, error) {
	return use(ctx, m).acquire(ctx, "try read lock", LockInfo{Kind: KindRead, Try: true})
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
// It blocks for one round trip. If h is unlocked meanwhile, that Unlock waits for the answer as long as its own context
// lasts; Downgrade then returns ErrNotHeld, and the lock, write or read by then, is released. Errors: ErrNotHeld (h is no
// hold of this write lock, or was released before), ErrLost. When ctx ends before the reply, it is not known which of the
// two the lock is, so it is given up (ErrUnknownOutcome). After any other error h is unchanged.
func (m *RWMutex) Downgrade(ctx context.Context, h *Hold) (*Hold, error) {
	l := use(ctx, m)
	fail := func(err error) (*Hold, error) { return nil, l.fail("downgrade", err) }
	switch {
	case l.err != nil:
		return fail(l.err)
	case h == nil || h.a == nil:
		return fail(fmt.Errorf("%w: the hold is nil, or the zero value", ErrNotHeld))
	case h.read || h.a.infoNow().Kind != KindWrite || !h.a.covers(lockKey{l.c, l.path}):
		return fail(fmt.Errorf("%w: not a hold of this write lock", ErrNotHeld))
	}
	a := h.a
	h.ctx.look()
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

// beginDowngrade notes that h is to become a hold of the read lock: no other call joins for writing from here on.
func (a *acquisition) beginDowngrade(h *Hold) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch writers := a.writersLocked(); {
	case h.released.Load():
		return ErrNotHeld
	case a.endedLocked() != nil:
		return a.endedLocked()
	case a.downgrading != nil:
		return errors.New("another Downgrade of the lock is under way")
	case writers != 1:
		return fmt.Errorf("the write lock is held %d times: only the last hold can be downgraded", writers)
	}
	a.downgrading = h
	return nil
}

// downgrade makes the ticket a reader's, in place, and h, unless it is nil, a hold of the read lock, which it returns. When it
// fails all is as it was, unless the acquisition was lost, or the outcome is unknown: then it is released. If h is unlocked
// meanwhile, the ticket is left when the ticket's Downgrade, of which there is one at a time, is done.
func (a *acquisition) downgrade(ctx context.Context, h *Hold) (*Hold, error) {
	err := a.ticket.Downgrade(ctx)
	a.mu.Lock()
	if h != nil {
		a.downgrading = nil
	}
	if err != nil {
		a.mu.Unlock()
		return nil, a.notDowngraded(ctx, err)
	}
	first := a.info.Kind == KindWrite && a.state == held
	if a.state != lost { // h of one that was lost goes on being a hold of the write lock, which says why it has ended
		a.info.Kind = KindRead
	}
	var reader *Hold
	if h != nil {
		reader, err = a.replaceLocked(h)
	}
	a.mu.Unlock()
	if first {
		a.c.tellDowngraded(DowngradedInfo{a.infoNow(), Token(a.ticket.Czxid()), a.ticket.Nodes()[0], time.Since(a.since)})
	}
	return reader, err
}

// notDowngraded returns why a downgrade failed with err, and ends an acquisition that is lost or in doubt.
func (a *acquisition) notDowngraded(ctx context.Context, err error) error {
	if errors.Is(err, recipe.ErrGone) {
		a.endLost(err)
		return ErrNodeDeleted
	}
	if cause := a.ended(); cause != nil {
		return fmt.Errorf("%w; %w", err, cause)
	}
	if !errors.Is(err, ErrUnknownOutcome) {
		return err
	}
	left := a.release(ctx)
	if errors.Is(left, ErrNodeDeleted) || errors.Is(left, ErrUnlocked) { // neither znode exists, or another call released
		left = nil
	}
	return fmt.Errorf("%w; the lock is given up", errors.Join(err, left))
}

func (a *acquisition) replaceLocked(h *Hold) (*Hold, error) {
	if a.state == lost {
		return nil, a.cause
	}
	if !h.released.CompareAndSwap(false, true) {
		return nil, ErrNotHeld // it was unlocked meanwhile
	}
	reader := &Hold{}
	reader.bind(a, &h.ctx, true)
	a.holds[slices.Index(a.holds, h)] = reader
	return reader, nil
}

// downgradeForReaders makes the ticket a reader's for an Unlock that released the write lock above read locks, in the
// background if ctx ends.
func (a *acquisition) downgradeForReaders(ctx context.Context) error {
	s := a.ticket.Session()
	done := make(chan error, 1)
	work := func(ctx context.Context) {
		_, err := a.downgrade(ctx, nil)
		if err != nil && errors.Is(a.ended(), ErrUnlocked) {
			// The last reader has been unlocked, or a Downgrade that does not know its outcome has released the lock.
			if err = a.ticket.Leave(ctx); errors.Is(err, recipe.ErrGone) {
				err = nil
			}
		}
		done <- err
	}
	if !s.Go(work) {
		work(s.Context()) // fails at once: the session is over
	}
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return session.Waited(ctx, trusted.Caller{}, errors.New("waiting for the write lock to become a read lock"))
	}
}
