package recipe

import (
	"context"
	"errors"
	"fmt"
	"path"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/locker/session"
)

// Settle is how long a ticket stands, waiting or holding, before it is worth more reads: a watch on its own znode, so
// that its deletion by somebody else is heard of, and, while it waits, the holder's name, so that a wait that ends in
// vain can say behind whom. What is over sooner costs nothing.
const Settle = 300 * time.Millisecond

// Wait returns nil when the ticket has become the first in line. It keeps its place across reconnections. It returns
// an error when ctx ends (that error, with the place in line), when the session ends (its end), or when the znode is
// not there any more (ErrGone); in the first case the ticket still has its place, until Leave. To be called once.
func (t *Ticket) Wait(ctx context.Context) error {
	if err := t.standAside(ctx); err != nil {
		return t.waited(ctx, err)
	}
	return t.wait(ctx)
}

// wait is Wait for one who stays in line.
func (t *Ticket) wait(ctx context.Context) error {
	timer := time.NewTimer(Settle)
	defer timer.Stop()
	v, err := t.decide(ctx)
	for {
		if err != nil {
			return t.waited(ctx, err)
		}
		if !v.Present {
			return ErrGone
		}
		changed := t.place(v)
		if v.Holds() {
			return nil
		}
		if changed && t.own != nil { // it has settled: keep the holder's name up to date
			if err := t.describe(ctx); err != nil {
				return t.waited(ctx, err)
			}
		}
		var gone bool
		if gone, err = t.await(ctx, t.q.Dir+"/"+v.Watch, timer.C); err != nil {
			return t.waited(ctx, err)
		}
		if gone && v.Ahead == 1 && t.q.Kind.final() {
			// It was the only one in our way, and nobody can have entered before us since: no need to look.
			t.place(Verdict{Present: true, Head: path.Base(t.node)})
			return nil
		}
		if !gone {
			continue // its data were set: it still stands before us
		}
		if err = t.list(ctx); err == nil {
			v, err = t.decide(ctx)
		}
	}
}

// decide reads t.names, and the czxids that the order depends on. The list is not kept: a thousand waiters would keep
// a thousand each.
func (t *Ticket) decide(ctx context.Context) (Verdict, error) {
	own := path.Base(t.node)
	l := t.listing()
	t.names = nil
	v := Decide(l, own, nil)
	if len(v.Unknown) == 0 {
		return v, nil
	}
	czxids, err := t.czxidsFor(ctx, own, v.Unknown)
	if err != nil {
		return v, err
	}
	return Decide(l, own, czxids), nil
}

// await waits until the contender before us is gone (true), or something else happened that asks for another look.
func (t *Ticket) await(ctx context.Context, node string, settled <-chan time.Time) (gone bool, err error) {
	w, err := t.s.Watch(ctx, node)
	if err != nil {
		return false, err
	}
	defer w.Close()
	if !w.Exists {
		return true, nil
	}
	if err := t.sleep(ctx, settled, w.Fired(), nil); err != nil {
		return false, err
	}
	return w.Event() == zk.EventNodeDeleted, nil
}

// sleep returns nil when a or b is closed, and an error when ctx or the session ends, or the own znode is deleted. When
// settled fires it makes the reads that a longer wait is worth.
func (t *Ticket) sleep(ctx context.Context, settled <-chan time.Time, a, b <-chan struct{}) (err error) {
	for {
		var ownFired <-chan struct{}
		if t.own != nil {
			ownFired = t.own.Fired()
		}
		select {
		case <-ownFired: // before anything else: who is not in line holds nothing
			if t.own.Event() == zk.EventNodeDeleted {
				return ErrGone
			}
			if t.own, err = t.watchOwn(ctx); err != nil {
				return err
			}
			continue
		default:
		}
		select {
		case <-a: // before what only a longer wait is worth
			return nil
		case <-b:
			return nil
		default:
		}
		select {
		case <-a:
			return nil
		case <-b:
			return nil
		case <-ownFired:
		case <-settled:
			settled = nil
			if err := t.settle(ctx); err != nil {
				return err
			}
		case <-t.s.Done():
			return t.s.Err()
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// settle makes the two reads that a longer wait is worth.
func (t *Ticket) settle(ctx context.Context) error {
	w, err := t.watchOwn(ctx)
	if err != nil {
		return err
	}
	t.own = w
	return t.describe(ctx)
}

// describe finds out who the holder is.
func (t *Ticket) describe(ctx context.Context) error {
	if t.line.Ahead == 0 {
		return nil
	}
	who, err := t.q.Heads.Who(ctx, t.s, t.q.Dir, t.head)
	if err != nil { // else its name has to do
		if ctx.Err() != nil || t.s.Err() != nil {
			return err
		}
		return nil
	}
	if who != "" && who != t.line.Who {
		t.line.Who = who
		if t.q.Queued != nil {
			t.q.Queued(t.line)
		}
	}
	return nil
}

// watchOwn watches the own znode, and returns ErrGone when it is not there.
func (t *Ticket) watchOwn(ctx context.Context) (*session.Watch, error) {
	w, err := t.s.Watch(ctx, t.node)
	if err != nil {
		return nil, err
	}
	if !w.Exists {
		w.Close()
		return nil, ErrGone
	}
	return w, nil
}

// list reads the directory anew.
func (t *Ticket) list(ctx context.Context) error {
	names, stat, err := t.s.List(ctx, t.q.Dir)
	if errors.Is(err, zk.ErrNoNode) {
		return ErrGone
	}
	if err != nil {
		return err
	}
	t.names, t.counter = names, NewListing(nil, stat).Counter
	t.strays()
	return nil
}

// place notes where in line we stand and tells of it when it has changed.
func (t *Ticket) place(v Verdict) (changed bool) {
	if v.Head == t.head && v.Ahead == t.line.Ahead {
		return false
	}
	t.head, t.line = v.Head, Line{Ahead: v.Ahead, Holder: t.q.Dir + "/" + v.Head}
	if t.q.Queued != nil && v.Ahead > 0 {
		t.q.Queued(t.line)
	}
	return true
}

// waited adds the place in line to the end of ctx.
func (t *Ticket) waited(ctx context.Context, err error) error {
	if ctx.Err() == nil || errors.Is(err, ErrGone) || t.s.Err() != nil {
		return err
	}
	if t.line.Ahead == 0 {
		return err // it says for itself what it waited for
	}
	if err == ctx.Err() { //nolint:errorlint // bare: there is nothing more in it
		return session.Waited(ctx, Waiting{t.line})
	}
	return fmt.Errorf("%w, %w", err, Waiting{t.line})
}

// OnGone has fn called once, in a goroutine of the session's, when the znode is deleted by whomever, Leave included.
// It watches the znode, if Wait does not yet, and blocks for that one round trip at most. ErrGone: it is not there.
// To be called once, after Wait.
func (t *Ticket) OnGone(ctx context.Context, fn func()) error {
	w := t.own
	if w == nil {
		var err error
		if w, err = t.watchOwn(ctx); err != nil {
			return err
		}
	}
	t.follow(w, fn)
	return nil
}

// follow watches on when somebody only set the znode's data.
func (t *Ticket) follow(w *session.Watch, fn func()) {
	w.Then(func(e zk.EventType) {
		if e == zk.EventNodeDeleted {
			fn()
			return
		}
		next, err := t.watchOwn(t.s.Context())
		switch {
		case err == nil:
			t.follow(next, fn)
		case errors.Is(err, ErrGone):
			fn()
		} // else the session is over, which its holder hears of anyway
	})
}

// Settled reports whether the own znode is watched already, so that OnGone costs nothing.
func (t *Ticket) Settled() bool { return t.own != nil }
