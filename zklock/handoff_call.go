package zklock

import (
	"context"
	"fmt"

	"github.com/zklock/locker/recipe"
)

// shared is wait for a lock with local handoff.
func (b *base) shared(ctx context.Context, r *request, w *waiting) (*Hold, error) {
	var t *tenure
	var err error
	if r.try {
		t, err = b.tryShared(ctx, r, w)
	} else {
		t, err = b.waitShared(ctx, w)
	}
	if err != nil {
		return nil, err
	}
	return b.take(ctx, t, nil, w)
}

// waitShared waits in the local line.
func (b *base) waitShared(ctx context.Context, w *waiting) (*tenure, error) {
	var me *localWaiter
	for {
		l := b.c.lines.of(b)
		if t := l.free(); t != nil {
			l.mu.Unlock()
			return t, nil
		}
		if l.dead { // the kept place was found lost, and nobody else was there: there is another line now
			l.mu.Unlock()
			continue
		}
		if me == nil {
			me = b.c.lines.waiter()
			defer b.c.lines.recycle(me)
			l.push(me, false)
		} else {
			l.push(me, true) // it was its turn
		}
		if l.t != nil {
			l.t.look()
		}
		at, known := l.place(me)
		l.advance()
		l.mu.Unlock()
		if known || at.Ahead > 0 {
			b.queued(w, at)
		}
		t, counted, err := b.attend(ctx, l, me, w)
		if err != nil {
			return nil, err
		}
		if t.good(counted) {
			return t, nil
		}
		b.retried(w, fmt.Errorf("it was our turn, but the place in line is lost: %w", t.lostBy()))
	}
}

// attend waits for the turn of me, and passes on what is heard meanwhile.
func (b *base) attend(ctx context.Context, l *line, me *localWaiter, w *waiting) (*tenure, bool, error) {
	for {
		select {
		case g := <-me.ready:
			return g.t, g.counted, g.err
		case <-me.wake:
			l.mu.Lock()
			at, known := l.place(me)
			tell := me.in && me.moved
			retried := me.retried
			me.moved, me.retried = false, nil
			l.mu.Unlock()
			if retried != nil {
				b.retried(w, retried)
			}
			if tell && known {
				b.queued(w, at)
			}
			continue
		case <-ctx.Done():
		case <-b.c.ctx.Done():
		}
		return nil, false, l.leaveLine(ctx, me)
	}
}

// free takes the place for a call when nobody in this process stands before it and it may be handed on. The caller holds
// mu.
func (l *line) free() *tenure {
	t := l.t
	if t == nil || t.held || t.over || l.first != nil || !t.may() {
		return nil
	}
	if err := t.s.Alive(); err != nil {
		t.seal(err)
		t.drop()
		return nil
	}
	t.count()
	t.take()
	return t
}

// tryShared takes the place that the process has, if nobody uses it or waits, or tries to get one.
func (b *base) tryShared(ctx context.Context, r *request, w *waiting) (*tenure, error) {
	var l *line
	for {
		l = b.c.lines.of(b)
		if t := l.free(); t != nil {
			l.mu.Unlock()
			return t, nil
		}
		if l.dead {
			l.mu.Unlock()
			continue
		}
		if l.first != nil || l.t != nil || l.trying {
			err := l.busy()
			l.mu.Unlock()
			return nil, err
		}
		if l.stop == nil {
			break
		}
		wound := l.wound // those who waited have left: what they had the process queue for is about to go
		l.mu.Unlock()
		select {
		case <-wound:
		case <-ctx.Done():
			return nil, l.ended(ctx, recipe.Line{}, false)
		}
	}
	l.trying = true
	l.mu.Unlock()
	b.report(r, w)
	p, keep, err := b.obtain(ctx, r)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.trying = false
	if err != nil {
		l.advance()
		return nil, err
	}
	t := l.begin(p, keep)
	t.take()
	if l.first != nil {
		t.look()
	}
	if !l.c.spawn(t.tend) {
		t.seal(ErrClosed)
		t.drop()
		return nil, closedError{} // the znode goes with the session
	}
	return t, nil
}

// busy is the answer to a TryLock. The caller holds mu.
func (l *line) busy() error {
	switch {
	case l.t != nil && l.n > 0:
		return &busyError{0, fmt.Errorf("held by this process (%s), %d of it waiting", l.self, l.n)}
	case l.t != nil:
		return &busyError{0, fmt.Errorf("held by this process (%s)", l.self)}
	}
	return &busyError{0, fmt.Errorf("this process (%s) is in line for it already", l.self)}
}
