package recipe

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/locker/internal/text"
	"github.com/zklock/locker/session"
)

// A ticket holds only while its own znode is known to stand. A waiter watches two znodes, which one request registers:
// its own, and the one of the contender before it, its predecessor. When the predecessor goes, there are two ways to hold.
//
//   - By a list: a list of the directory is a state that the tree was in at one moment. If our znode is in it, and nobody
//     before us is, we held at that moment.
//   - By the event alone, which spares the list: if the predecessor was the only one before us, nobody can have come
//     before us since, and our own znode stood when the predecessor's was deleted. That is so when the deletion of ours
//     has not been told: the server watched both on one connection, and tells what it watches in the order in which it
//     happens. What it finds gone when the watches are set it tells in the order of the request, which names our own
//     znode first. After a reconnection, and where our own znode may be unreadable to us, so that nobody would tell, the
//     list decides. See session.Watch.StoodWhen.
//
// From then on the watch on the own znode is the hold's (OnGone): a znode that is removed later was a holder's.

// Settle is how long a ticket stands, waiting or holding, before it is worth more reads: while it waits, the holder's
// name, so that a wait that ends in vain can say behind whom, and whether the ensemble would tell us of the predecessor's
// end; while it holds, and has not waited, a watch on its own znode. What is over sooner costs nothing.
const Settle = 300 * time.Millisecond

// lookPart bounds the pause between two lists of a waiter that is not told of its predecessor's end: the session timeout
// divided by it, but not less than Settle.
const lookPart = 8

// Wait returns nil when the ticket has become the first in line, and its znode stood then. It keeps its place across
// reconnections. It returns an error when ctx ends (that error, with the place in line), when the session ends (its end),
// or when the znode is not there any more (ErrGone); in the first case the ticket still has its place, until Leave. To be
// called once.
func (t *Ticket) Wait(ctx context.Context) error {
	if err := t.standAside(ctx); err != nil {
		return t.waited(ctx, err)
	}
	return t.wait(ctx)
}

// wait is Wait for one who stays in line.
func (t *Ticket) wait(ctx context.Context) error {
	t.timer = time.NewTimer(Settle)
	defer t.timer.Stop()
	v, err := t.decide(ctx)
	for {
		if err != nil {
			return t.waited(ctx, err)
		}
		if !v.Present {
			return ErrGone
		}
		t.place(v)
		v.Head = "" // known by now; it may be long
		if v.Holds() {
			return t.waited(ctx, t.stands(ctx))
		}
		var next bool
		if next, err = t.await(ctx, v); next {
			t.place(Verdict{Present: true, Head: path.Base(t.node)})
			return nil
		}
		if err == nil {
			err = t.list(ctx)
		}
		if err == nil {
			v, err = t.decide(ctx)
		}
	}
}

// decide reads t.names, and the czxids that the order depends on. The list is not kept: a thousand waiters would keep
// a thousand each.
func (t *Ticket) decide(ctx context.Context) (Verdict, error) {
	own := path.Base(t.node)
	for {
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
		gone := slices.ContainsFunc(v.Unknown, func(name string) bool { return czxids[name] == 0 })
		if !gone || t.q.Kind.final() {
			return Decide(l, own, czxids), nil
		}
		// A writer that was downgraded since the list has a reader in its place, which that does not show.
		if err := t.list(ctx); err != nil {
			return v, err
		}
	}
}

// await waits until the contender before us is gone, or another look at the directory is due. next: it is our turn, and
// no look is needed.
func (t *Ticket) await(ctx context.Context, v Verdict) (next bool, err error) {
	for {
		w, err := t.watchBefore(ctx, t.q.Dir+"/"+v.Watch)
		if err != nil {
			return false, err
		}
		err = t.sleep(ctx, fired(w), nil)
		if w != nil {
			w.Close()
		}
		switch {
		case err != nil || !hasFired(w):
			return false, err
		case w.Event() == zk.EventNodeDeleted:
			return v.Ahead == 1 && t.q.Kind.final() && t.stoodWhen(w), nil
		} // its data were set: it still stands before us
	}
}

// watchBefore watches the contender before us, and the own znode if it is not watched yet. Nil: we would not be told of
// the contender's end, and have to look from time to time.
func (t *Ticket) watchBefore(ctx context.Context, node string) (*session.Watch, error) {
	if node != t.before {
		t.before, t.untold, t.pause = node, false, Settle
		t.timer.Reset(Settle)
	}
	if t.untold {
		err := t.stands(ctx)
		if errors.Is(err, zk.ErrNoAuth) {
			err = nil
		}
		return nil, err
	}
	ws, err := t.watch(ctx, node)
	switch {
	case errors.Is(err, zk.ErrNoAuth): // of a server that sets watches by exists
		t.untold = true
		return nil, nil
	case err != nil:
		return nil, err
	}
	return ws[0], nil
}

// watch watches nodes and, in the same request and before them, those znodes of the call that are not watched yet, or
// whose watch has fired because somebody has set their data. ErrGone: one of the call's is gone.
func (t *Ticket) watch(ctx context.Context, nodes ...string) ([]*session.Watch, error) {
	if t.mates == nil {
		t.mates = []*Ticket{t}
	}
	if t.alarm == nil {
		t.alarm = make(chan struct{}, 1)
	}
	var own []*Ticket
	var paths []string
	again := false
	for _, m := range t.mates {
		if m.Gone() {
			return nil, ErrGone
		}
		if m.own == nil || hasFired(m.own) {
			again = again || m.own != nil
			own, paths = append(own, m), append(paths, m.node)
		}
	}
	if len(paths)+len(nodes) == 0 {
		return nil, nil
	}
	ws, err := t.s.WatchAll(ctx, append(paths, nodes...)...)
	if err != nil {
		return nil, err
	}
	for i, m := range own {
		m.own = ws[i]
		m.own.Wake(t.alarm)
	}
	ws = ws[len(own):]
	for _, m := range own {
		gone := m.Gone()
		if !gone && again { // somebody has set its data, or made another one of its name while we were cut off
			gone = errors.Is(m.same(ctx), ErrGone)
		}
		if gone {
			for _, w := range ws {
				w.Close()
			}
			return nil, ErrGone
		}
	}
	return ws, nil
}

// stands returns nil when no znode of the call is known to be gone, which is ErrGone. Those whose data were set are
// watched again.
func (t *Ticket) stands(ctx context.Context) error {
	for _, m := range t.mates {
		if m.own != nil && hasFired(m.own) {
			_, err := t.watch(ctx)
			return err
		}
	}
	return nil
}

// stoodWhen reports whether all znodes of the call stood when the one that w watches was deleted, and we would know if not.
func (t *Ticket) stoodWhen(w *session.Watch) bool {
	for _, m := range t.mates {
		if m.own == nil || !m.own.StoodWhen(w) {
			return false
		}
	}
	return t.s.Grants(t.q.ACL, zk.PermRead)
}

// fired is closed when w has fired; a nil one never does.
func fired(w *session.Watch) <-chan struct{} {
	if w == nil {
		return nil
	}
	return w.Fired()
}

func hasFired(w *session.Watch) bool {
	select {
	case <-fired(w):
		return true
	default:
		return false
	}
}

// sleep returns nil when a or b is closed or another look is due, and an error when ctx or the session ends, or an own
// znode is gone. When the wait has lasted for Settle, it makes the reads that this is worth.
func (t *Ticket) sleep(ctx context.Context, a, b <-chan struct{}) error {
	for {
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
		case <-t.alarm:
			if err := t.stands(ctx); err != nil {
				return err
			}
		case <-t.timer.C:
			if due, err := t.settle(ctx); due || err != nil {
				return err
			}
		case <-t.s.Done():
			return t.s.Err()
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// settle makes the reads that a longer wait is worth, once for each predecessor. due: the directory has to be looked at,
// since we were not, or would not be, told of the predecessor's end.
//
// A server tells only those of a znode's deletion who may read it, and to those who may not it says so only when they do
// read. Whoever may not looks from time to time.
func (t *Ticket) settle(ctx context.Context) (due bool, err error) {
	if t.untold {
		t.pause = min(2*t.pause, max(Settle, t.s.Timeout()/lookPart))
		t.timer.Reset(t.pause)
		return true, nil
	}
	if err := t.describe(ctx); err != nil || t.before == "" {
		return false, err
	}
	// Its children, of which it has none: they ask for the same permission as its data.
	switch _, _, err := t.s.List(ctx, t.before); {
	case err == nil:
		return false, nil
	case errors.Is(err, zk.ErrNoNode):
	case ctx.Err() != nil || t.s.Err() != nil:
		return false, err
	default:
		t.untold = true
	}
	t.timer.Reset(t.pause)
	return true, nil
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
func (t *Ticket) place(v Verdict) {
	v.Head = kept(v.Head)
	if v.Head == t.head && v.Ahead == t.line.Ahead {
		return
	}
	line := Line{Ahead: v.Ahead, Holder: t.q.Dir + "/" + v.Head}
	if v.Head == t.head {
		line.Who = t.line.Who
	} else if t.timer != nil {
		t.timer.Reset(Settle) // to read who that is
	}
	t.head, t.line = v.Head, line
	if t.q.Queued != nil && v.Ahead > 0 {
		t.q.Queued(t.line)
	}
}

// longName is longer than any name that a lock's client gives.
const longName = 16 << 10

// kept is a name as it is kept and told: a long one, of a neighbour's, of which a thousand waiters would keep a thousand
// copies, is cut. Two of them are taken for one if their lengths are the same, and such a contender's data are not read.
func kept(name string) string {
	if len(name) <= longName {
		return strings.Clone(name)
	}
	return fmt.Sprintf("%s (%d bytes)", text.Foreign(name), len(name))
}

// waited adds the place in line to the end of ctx.
func (t *Ticket) waited(ctx context.Context, err error) error {
	if err == nil || ctx.Err() == nil || errors.Is(err, ErrGone) || t.s.Err() != nil {
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
