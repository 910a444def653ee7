package recipe

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/locker/internal/trusted"
	"github.com/zklock/locker/session"
)

// Leave gives up the place: it deletes the znodes, by their full names, and nothing else; several in one transaction, if
// all are still there. Nil: they are deleted. ErrGone: another client had deleted one before. Any other error: ctx or the
// session ended first; then the deletion goes on in the background, until it has succeeded, was refused for good (final),
// or the session is over and the server deletes the znodes.
//
// It blocks for one round trip, or until ctx ends, and waits for a Downgrade or another Leave that is under way. A ctx
// that has ended already does not keep the znodes from being deleted. After a Leave that was done, others return its
// result.
func (t *Ticket) Leave(ctx context.Context) error {
	move, done, err := t.beginLeave(ctx)
	if done {
		return err
	}
	if move == nil {
		return t.endLeave(t.leave(ctx))
	}
	select {
	case <-move:
		return t.endLeave(t.leave(ctx))
	case <-ctx.Done():
	}
	finish := func(ctx context.Context) {
		select {
		case <-move:
			_ = t.endLeave(t.leave(ctx)) // what it can't delete is deleted by the sweeper
		case <-ctx.Done():
			_ = t.endLeave(ctx.Err())
		}
	}
	if !t.s.Go(finish) {
		finish(t.s.Context()) // which is over
	}
	return session.Waited(ctx, trusted.Caller{}, errors.New("waiting for the write lock to become a read lock"))
}

// beginLeave waits for another Leave that is under way. done: it, or an earlier one, has left, with err as its result; or
// ctx has ended. move is closed when a Downgrade that is under way has ended; nil: none is.
func (t *Ticket) beginLeave(ctx context.Context) (move <-chan struct{}, done bool, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for t.leaving != nil {
		other := t.leaving
		t.mu.Unlock()
		select {
		case <-other:
		case <-ctx.Done():
			err = session.Waited(ctx, trusted.Caller{}, errors.New("waiting for another release of the lock"))
		}
		t.mu.Lock()
		if err != nil {
			return nil, true, err
		}
	}
	if t.leaveDone {
		return nil, true, t.leaveErr
	}
	if t.life != left {
		t.endLocked(left)
	}
	t.leaving = make(chan struct{})
	return t.move, false, nil
}

// endLeave notes the result of a Leave, and returns it.
func (t *Ticket) endLeave(err error) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if errors.Is(err, ErrGone) && t.leaveTried {
		err = nil // it was our own attempt that deleted them
	}
	if t.leaveTried = true; err == nil || errors.Is(err, ErrGone) {
		t.leaveDone, t.leaveErr = true, err
	}
	if t.keep != nil {
		t.keep.Release()
	}
	close(t.leaving)
	t.leaving = nil
	return err
}

// KeepDelay makes the coming Leave count as a loss: the note of this holder's lock delay stays in the directory, and the
// next holder waits the delay out.
func (t *Ticket) KeepDelay() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.delayStays = true
}

// leave is Leave when no Downgrade is under way. A ticket that has given up its place to wait outside, and has not got another
// one, has none.
func (t *Ticket) leave(ctx context.Context) error {
	if t.entries[0].node == "" {
		return ErrGone
	}
	t.mu.Lock()
	twin := t.twin
	if t.delayStays {
		for _, e := range t.entries {
			e.delayNoted = false
		}
		if twin != nil {
			twin.delayNoted = false
		}
	}
	noted := slices.ContainsFunc(t.entries, func(e *entry) bool { return e.delayNoted })
	held := t.held
	t.mu.Unlock()
	switch {
	case twin != nil: // one of the two exists, or did
		err := twin.leave(ctx, false)
		if ownErr := t.entries[0].leave(ctx, false); err == nil || errors.Is(err, ErrGone) && !errors.Is(ownErr, ErrGone) {
			if errors.Is(ownErr, ErrGone) {
				return nil
			}
			return ownErr
		}
		return err
	case len(t.entries) == 1 || noted:
		return t.leaveEach(ctx, held)
	}
	err := t.deleteAll(ctx, held)
	switch {
	case err == nil:
		for _, e := range t.entries {
			e.renewed()
			e.unwatch()
		}
		return nil
	case errors.Is(err, zk.ErrNoNode):
		// One was deleted by somebody else, and so none has been deleted here.
		if leaveErr := t.leaveEach(ctx, held); leaveErr != nil {
			return leaveErr
		}
		return ErrGone
	case t.s.Err() != nil:
		return err
	case ctx.Err() == nil && transient(err):
		if err := t.leaveEach(ctx, held); !errors.Is(err, ErrGone) {
			return err
		}
		return nil // the transaction whose reply was lost was ours
	}
	discard(t.entries...)
	return ended(ctx, err)
}

// deleteAll deletes the znodes in one transaction; of a ticket that has held, with their release marks, if it may.
func (t *Ticket) deleteAll(ctx context.Context, held bool) error {
	marked := false
	var ops []any
	for _, e := range t.entries {
		mark := held && e.leavesMark()
		marked = marked || mark
		ops = append(ops, e.releaseOps(mark)...)
	}
	err := grouped(ctx, t.s, ops...)
	if marked && markRefused(ctx, t.s, err) {
		if plain := t.deleteAll(ctx, false); !carriedOut(err, plain) {
			return plain
		}
	}
	return err
}

// grouped carries out ops, all or none, perhaps together with what other calls write.
func grouped(ctx context.Context, s *session.Session, ops ...any) error {
	b := s.Grouped(trusted.Caller{})
	b.Multi(ops...)
	return b.Do(ctx)
}

// leaveEach leaves one queue after the other, and returns the first failure.
func (t *Ticket) leaveEach(ctx context.Context, held bool) (first error) {
	for _, e := range t.entries {
		if err := e.leave(ctx, held); err != nil && first == nil {
			first = err
		}
	}
	return first
}

// leave is Ticket.Leave for one znode, of a ticket that has held or has not.
func (e *entry) leave(ctx context.Context, held bool) error {
	err := e.delete(ctx, held)
	for first := true; ; first = false {
		switch {
		case err == nil:
			e.unwatch()
			return nil
		case errors.Is(err, zk.ErrNoNode):
			e.unwatch()
			if first {
				return ErrGone
			}
			return nil // the deletion whose reply was lost was ours
		case e.t.s.Err() != nil:
			return err
		case ctx.Err() == nil && transient(err):
			err = e.delete(ctx, held)
			continue
		}
		discard(e)
		return ended(ctx, err)
	}
}

// delete deletes the znode once. A watch on it needs no taking away: the deletion makes it fire. Of a ticket that has
// held, its release mark goes before it, if the server lets us make one; a note of its lock delay in the directory's data
// goes with it.
func (e *entry) delete(ctx context.Context, held bool) (err error) {
	switch {
	case e.delayNoted:
		err = e.deleteNoted(ctx)
	case held && e.leavesMark():
		err = grouped(ctx, e.t.s, e.releaseOps(true)...)
		if markRefused(ctx, e.t.s, err) {
			if plain := e.deletePlain(ctx); carriedOut(err, plain) {
				err = nil
			} else {
				err = plain
			}
		}
	default:
		err = e.deletePlain(ctx)
	}
	if err == nil {
		e.renewed()
	}
	return err
}

// deletePlain deletes the znode and nothing else.
func (e *entry) deletePlain(ctx context.Context) error {
	b := e.t.s.Grouped(trusted.Caller{})
	b.Delete(e.node, -1)
	return b.Do(ctx)
}

// ended makes sure that the error of a call whose ctx has ended says so, whatever else went wrong.
func ended(ctx context.Context, err error) error {
	if ctx.Err() == nil || errors.Is(err, ctx.Err()) {
		return err
	}
	return session.Waited(ctx, trusted.Caller{}, err)
}

// persist calls fn until it succeeds, there is nothing to do, or we are not allowed to: then the session's end has to do.
// ctx is the session's.
func persist(ctx context.Context, fn func() error) {
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		err := fn()
		if err == nil || final(err) {
			return
		}
		if transient(err) {
			continue // the next attempt waits for a connection by itself
		}
		timer := time.NewTimer(pause) // a server in trouble must not be hammered
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return
		}
	}
}

// Pauses between attempts that a server answered with an error that may pass.
const (
	firstPause = 50 * time.Millisecond
	lastPause  = time.Second
)
