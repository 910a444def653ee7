package handoff

import (
	"context"
	"fmt"

	"github.com/zklock/locker/recipe"
)

// Lock returns a turn that is the caller's: granted, and still to be guarded (Turn.Guard). It waits behind the calls that
// came before, here, and behind the contenders that came before, at the ensemble. It blocks until then, or until ctx ends or
// the client is closed, and leaves nothing behind then. A turn that is there and free costs no request: the session's lease
// is looked at.
//
// Errors are those of Lock.Acquire, ctx's with the place in line, and Config.Closed.
func (qs *Queues) Lock(ctx context.Context, lock *Lock, c Caller) (*Turn, error) {
	var me *waiter
	for {
		q, t := qs.openLocked(lock)
		if t != nil {
			q.mu.Unlock()
			return t, nil
		}
		wasItsTurn := me != nil
		if !wasItsTurn {
			me = qs.waiter()
			defer qs.recycle(me)
		}
		q.pushLocked(me, wasItsTurn)
		if q.turn != nil {
			q.turn.lookLocked()
		}
		at, known := q.placeLocked(me)
		q.advanceLocked()
		q.mu.Unlock()
		if known || at.Ahead > 0 {
			c.Queued(at)
		}
		t, err := q.await(ctx, me, c)
		if err != nil {
			return nil, err
		}
		q.mu.Lock()
		cause := t.checkLocked() // time may have passed since
		q.mu.Unlock()
		if cause == nil {
			return t, nil
		}
		c.Retried(fmt.Errorf("it was our turn, but it is lost: %w", cause))
	}
}

// await waits until me is granted a turn, and reports to c where it is in line meanwhile.
func (q *queue) await(ctx context.Context, me *waiter, c Caller) (*Turn, error) {
	for {
		select {
		case g := <-me.granted:
			return g.turn, g.err
		case <-me.news:
			q.mu.Lock()
			at, known := q.placeLocked(me)
			moved, retried := me.queued && me.moved, me.retried
			me.moved, me.retried = false, nil
			q.mu.Unlock()
			if retried != nil {
				c.Retried(retried)
			}
			if moved && known {
				c.Queued(at)
			}
			continue
		case <-ctx.Done():
		case <-q.qs.conf.Context.Done():
		}
		return nil, q.leave(ctx, me)
	}
}

// leave takes w out of the queue because its call has ended, and returns what it was waiting for; ctx has ended, or the
// client was closed. If it was granted a turn already, the turn is handed to the next call.
func (q *queue) leave(ctx context.Context, w *waiter) error {
	q.mu.Lock()
	if !w.queued {
		g := <-w.granted
		q.mu.Unlock()
		if g.err != nil {
			return g.err
		}
		g.turn.decline(ctx, g.counted)
		return q.waitEnded(ctx, recipe.Line{}, false)
	}
	at, known := q.placeLocked(w)
	q.removeLocked(w)
	if q.first == nil && q.state == entering {
		q.cancel()
	}
	q.advanceLocked()
	q.mu.Unlock()
	return q.waitEnded(ctx, at, known)
}

// freeLocked grants the turn to a call when no other call waits here and the turn may be handed on. Nil: there is none.
func (q *queue) freeLocked() *Turn {
	t := q.turn
	if t == nil || t.state != idle || q.first != nil || !t.mayHandOnLocked() {
		return nil
	}
	if t.checkLocked() != nil {
		return nil
	}
	t.countLocked()
	t.moveLocked(granted)
	return t
}

// TryLock is Lock for when no call in this process has the lock, waits for it, or asks for it: recipe.ErrBusy, without a
// request, otherwise. It asks the ensemble once. ctx's error: it ended first.
func (qs *Queues) TryLock(ctx context.Context, lock *Lock, c Caller) (*Turn, error) {
	q, t, err := qs.beginTry(ctx, lock)
	if t != nil || err != nil {
		return t, err
	}
	ticket, err := lock.Acquire(ctx, true, c)
	q.mu.Lock()
	defer q.mu.Unlock()
	if err != nil {
		q.moveLocked(empty)
		q.advanceLocked()
		return nil, err
	}
	t = q.beginLocked(ticket)
	t.moveLocked(granted)
	if q.first != nil {
		t.lookLocked()
	}
	return t, nil
}

// beginTry returns a turn that is free, or the queue, in which the caller is trying now.
func (qs *Queues) beginTry(ctx context.Context, lock *Lock) (*queue, *Turn, error) {
	for {
		q, t := qs.openLocked(lock)
		// All local waiters have left, and the process's attempt at the ensemble is being cancelled:
		leaving, entered := t == nil && q.state == entering && q.first == nil, q.entered
		var err error
		switch {
		case t != nil || leaving:
		case q.state == empty:
			q.moveLocked(trying)
		default:
			err = q.busyLocked()
		}
		q.mu.Unlock()
		if !leaving {
			return q, t, err
		}
		select {
		case <-entered:
		case <-ctx.Done():
			return nil, nil, q.waitEnded(ctx, recipe.Line{}, false)
		}
	}
}
