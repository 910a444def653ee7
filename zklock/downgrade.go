package zklock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/zklock/locker/recipe"
	"github.com/zklock/locker/session"
)

// A hold of the write lock becomes one of the read lock, in place: by Downgrade, or because the write lock is released
// before a read lock that was taken under it. Both begin a move, which replaces the writer's znode by a reader's. No
// mutex is held for that: an Unlock that comes meanwhile waits for the move's end, no longer than its own context lasts,
// and gives up what there is then.

// downgrader is a place that can become a reader's.
type downgrader interface {
	Downgrade(ctx context.Context) (*recipe.Ticket, error)
}

// begin begins the Downgrade of h.
func (g *grip) begin(h *Hold) (*move, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case h.released.Load():
		return nil, ErrNotHeld
	case g.over:
		return nil, g.cause
	case g.move != nil:
		return nil, errors.New("another downgrade of it is under way")
	case g.holds != 1:
		return nil, fmt.Errorf("the write lock is held %d times: only the last hold can be downgraded", g.holds)
	}
	return g.beginLocked(h), nil
}

// beginLocked begins a move, of which the caller sees to demote.
func (g *grip) beginLocked(h *Hold) *move {
	g.move, g.missed = &move{h: h, done: make(chan struct{})}, false
	return g.move
}

// demote carries out a move that was begun. When it fails the grip is what it was, unless it was lost, or the outcome is
// unknown: then it is given up. It returns the move's error.
func (g *grip) demote(ctx context.Context, m *move) error {
	p := g.place()
	r, err := p.(downgrader).Downgrade(ctx) // only a write lock's grip has moves
	g.mu.Lock()
	g.move = nil
	over, missed := g.over, g.missed
	if err == nil {
		g.p, g.demoted = r, true
		if !over {
			g.followLocked(r)
			g.keep.Move(r.Node())
		}
		switch {
		case m.h == nil:
		case over && !errors.Is(g.cause, ErrUnlocked):
			err = g.cause
		case m.h.released.CompareAndSwap(false, true):
			g.holds, g.reads = g.holds-1, g.reads+1
		default:
			err = ErrNotHeld // it was released meanwhile
		}
	}
	g.mu.Unlock()
	switch {
	case r != nil: // it was carried out
	case errors.Is(err, recipe.ErrGone):
		g.end(ErrNodeDeleted)
		err = ErrNodeDeleted
	case over:
		err = fmt.Errorf("%w; %w", err, g.why())
	case errors.Is(err, ErrUnknownOutcome):
		err = fmt.Errorf("%w; the lock is given up", errors.Join(err, g.release(ctx)))
	case missed:
		g.end(ErrNodeDeleted)
		err = fmt.Errorf("%w; %w", err, ErrNodeDeleted)
	}
	m.err = err
	close(m.done)
	if r != nil && !over {
		g.c.tellDowngraded(DowngradedInfo{g.told(), Token(r.Czxid()), r.Node(), time.Since(g.from)})
	}
	return err
}

// demoteFor is demote for an Unlock, which has released the write lock whatever becomes of ctx: it goes on in the
// background when ctx ends. Without mine, the move is a Downgrade's that came first; should that fail, another is made.
func (g *grip) demoteFor(ctx context.Context, m *move, mine bool) error {
	for {
		if mine && !g.place().Session().Go(func(ctx context.Context) { _ = g.demote(ctx, m) }) { // waited for below
			_ = g.demote(g.place().Session().Context(), m) // fails at once: the session is over
		}
		select {
		case <-m.done:
		case <-ctx.Done():
			return session.Waited(ctx, errors.New("waiting for the write lock to become a read lock"))
		}
		if mine || m.err == nil {
			return m.err
		}
		g.mu.Lock()
		p, released := g.p, errors.Is(g.cause, ErrUnlocked)
		again := !g.demoted && !g.over && g.move == nil
		if again {
			m, mine = g.beginLocked(nil), true
		}
		g.mu.Unlock()
		switch {
		case again:
		case released: // by that Downgrade, which does not know its outcome: what there is goes, and this call waits for it
			if err := p.Leave(ctx); !errors.Is(err, recipe.ErrGone) {
				return err
			}
			return nil
		default:
			return g.why()
		}
	}
}

// still returns what the grip stands on once no move is under way, or false when ctx ends first.
func (g *grip) still(ctx context.Context) (place, bool) {
	g.mu.Lock()
	p, m := g.p, g.move
	g.mu.Unlock()
	if m == nil {
		return p, true
	}
	select {
	case <-m.done:
		return g.place(), true
	case <-ctx.Done():
		return p, false
	}
}
