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

// A hold of the write lock becomes one of the read lock by Downgrade, or because the write lock is released before a read
// lock that was taken under it. The ticket becomes a reader's, in place; it carries out one Downgrade at a time. No mutex
// is held for that: if the hold is unlocked meanwhile, the ticket is left when the Downgrade is done.

// beginDowngrade notes that h is to become a hold of the read lock: no other call joins for writing from here on.
func (a *acquisition) beginDowngrade(h *Hold) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	writing := 0
	for _, other := range a.holds {
		if !other.read {
			writing++
		}
	}
	switch {
	case h.released.Load():
		return ErrNotHeld
	case a.state != held:
		return a.cause
	case a.downgrading != nil:
		return errors.New("another Downgrade of the lock is under way")
	case writing != 1:
		return fmt.Errorf("the write lock is held %d times: only the last hold can be downgraded", writing)
	}
	a.downgrading = h
	return nil
}

// downgrade makes the ticket a reader's, and h, unless it is nil, a hold of the read lock, which it returns. When it fails
// all is as it was, unless the acquisition was lost, or the outcome is unknown: then it is released.
func (a *acquisition) downgrade(ctx context.Context, h *Hold) (*Hold, error) {
	err := a.ticket.Downgrade(ctx)
	a.mu.Lock()
	if h != nil {
		a.downgrading = nil
	}
	first, wasHeld := err == nil && a.kind == KindWrite, a.state == held
	var reader *Hold
	if err == nil {
		a.kind = KindRead
		if h != nil {
			reader, err = a.replaceLocked(h)
		}
	}
	a.mu.Unlock()
	if first && wasHeld {
		a.c.tellDowngraded(DowngradedInfo{a.infoNow(), Token(a.ticket.Czxid()), a.ticket.Nodes()[0], time.Since(a.since)})
	}
	if err == nil || first {
		return reader, err
	}
	if errors.Is(err, recipe.ErrGone) {
		a.lose(err)
		return nil, ErrNodeDeleted
	}
	if cause := a.ended(); cause != nil {
		return nil, fmt.Errorf("%w; %w", err, cause)
	}
	if errors.Is(err, ErrUnknownOutcome) {
		left := a.release(ctx)
		if errors.Is(left, ErrNodeDeleted) || errors.Is(left, ErrUnlocked) { // neither znode exists, or another call released
			left = nil
		}
		return nil, fmt.Errorf("%w; the lock is given up", errors.Join(err, left))
	}
	return nil, err
}

// replaceLocked puts a hold of the read lock in the place of h.
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

// downgradeForReaders makes the ticket a reader's for an Unlock that has released the write lock while read locks under
// it are held. It is carried out even if ctx ends, and then goes on in the background.
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
