package queue

import (
	"context"
	"errors"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/locker/internal/session"
)

// # How a candidate steps aside
//
// One transaction makes the new znode, at the end of the line, and deletes the old one. So when
// the next in line learns that the old one has gone, and steps aside too, the new one is before
// its own: candidates that step aside one after the other keep their order.
//
// If we may not delete the old znode, the candidate stays the first, and leads: it could not be
// overtaken. If the old znode is gone, the new one is made alone.

// StepAside gives up old, the ticket of an election's candidate for which Wait has returned
// ErrOutranked, and enters again at the end of the line with its arrival. It returns the ticket
// with which to call Wait next: a new one or, if old may not be deleted, old. Errors are those of
// Enter. After an error old is left.
func StepAside(ctx context.Context, old *Ticket) (*Ticket, error) {
	q := *old.entries[0].q
	q.Since = old.Arrival()
	t := newTicket(old.s, []Queue{q})
	t.old = old
	err := t.enter(ctx)
	if errors.Is(err, zk.ErrNoAuth) && !old.hasLeft() {
		old.stays = true
		return old, nil
	}
	if !old.hasLeft() {
		_ = old.Leave(ctx) // if ctx has ended, the deletion goes on
	}
	if err != nil {
		return nil, err
	}
	return t, nil
}

// createForOld is createOne for a candidate that steps aside.
func (t *Ticket) createForOld(ctx context.Context, e *entry) error {
	b := t.s.Grouped()
	made := b.Multi(e.request(), session.OpDelete{Path: t.old.entries[0].node, Version: -1})
	list := b.List(e.q.Dir)
	err := b.Do(ctx)
	if made.Err != nil {
		return err
	}
	t.czxid = made.Value.Zxid
	e.placed(made.Value.Responses[0].String, newListing(list.Value.Names, list.Value.Stat))
	t.replaceOld()
	return err
}

// replaceOld notes that the transaction that made our znode has deleted the old one. It does
// nothing for a ticket that replaces none.
func (t *Ticket) replaceOld() {
	if t.old == nil {
		return
	}
	old := t.old
	t.old = nil
	old.mu.Lock()
	old.endLocked(left)
	old.mu.Unlock()
	old.entries[0].closeOwnWatch()
}

// hasLeft reports whether the ticket was left.
func (t *Ticket) hasLeft() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.life == left
}
