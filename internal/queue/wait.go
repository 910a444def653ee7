package queue

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/locker/internal/session"
	"github.com/zklock/locker/internal/text"
	"github.com/zklock/locker/recipe"
)

// WatchAfter is how long a wait or a hold lasts before it is worth further reads: a waiter reads who holds, for messages; a
// holder that did not wait watches its own znode.
const WatchAfter = 300 * time.Millisecond

// lookMost bounds the pause between two looks: see NextLook.
const lookMost = time.Minute

// NextLook returns how long whoever waits for an event pauses before he looks without one, after a pause of last: first a
// session timeout, then twice the last pause, up to a minute. So an event that is lost, whatever the cause, delays a waiter,
// and does not leave it waiting for ever. A look lists the directory, unless its Stat shows that it has not changed since the
// last list, and so finds out whatever was missed.
func NextLook(last, timeout time.Duration) time.Duration {
	return min(max(2*last, timeout), lookMost)
}

// Wait returns nil when the ticket holds: in every queue, no contender is in its way; its znodes exist; and the session's
// lease is confirmed, and kept until Leave. It keeps its place across reconnections.
//
// It returns an error when ctx ends (ctx's, with the place in line), when the session ends (why it ended), or when a znode
// is gone (ErrGone); of a ranked queue ErrOutranked, and of Try's ticket ErrBusy, both with the place in line; of a semaphore
// also session.ErrConfig, ErrDeadlock or ErrConflict, as Enter, when what the directory says has changed. After any error the
// ticket still has what is left of its place: call Leave.
func (t *Ticket) Wait(ctx context.Context) error {
	woken := make(chan struct{}, 1)
	for again := true; again; {
		again = false
		for _, e := range t.entries { // in any order, since all have entered already
			if e.names == nil { // otherwise they are Enter's: the decision uses them up
				if err := e.list(ctx); err != nil {
					return err
				}
			}
			w := &waiter{t: t, e: e, woken: woken}
			err := w.wait(ctx)
			waited := w.pred != ""
			w.stop()
			if err != nil {
				return err
			}
			// Our znode in another queue may have been deleted meanwhile, unnoticed if unreadable: list all queues again.
			again = again || len(t.entries) > 1 && waited && !e.notified()
		}
	}
	return t.hold(ctx)
}

// waiter waits until it is one entry's turn. Its state is what it watches:
//
//	state    it watches                             until
//	behind   its predecessor, and where that        that has gone, or, of a sized kind, says that it holds
//	         helps the predecessor's release mark
//	head     the directory's children and data      a contender has left, or the size was changed
//
// Only a sized kind has a head: see semaphore.go. In both states it also watches its own znodes, and looks by itself from time to
// time: see NextLook. A look, or of an unsized kind an event alone, then says that it holds, or is behind, or is the head.
type waiter struct {
	t *Ticket
	e *entry

	woken     chan struct{} // receives when one of watches, or a watch on an own znode of the ticket, has fired; capacity 1
	timer     *time.Timer   // for tick; nil until tickAfter is called
	pause     time.Duration // before the latest look that no event had caused; see NextLook
	described bool          // the holder was read, for messages

	head    bool             // of a sized kind: all before it hold, and each of them may leave
	pred    string           // the predecessor's name; "" before the first sleep, and of a head
	watches []*session.Watch // on the predecessor; of a head, on the directory's children and its data
	mark    *session.Watch   // on the predecessor's release mark; nil: none

	largest  int   // the semaphore's largest size ever
	dataZxid int64 // the Mzxid of the directory's data, as read with the size
}

// wait returns nil when it is the entry's turn.
func (w *waiter) wait(ctx context.Context) error {
	return w.e.explain(ctx, w.untilTurn(ctx))
}

func (w *waiter) untilTurn(ctx context.Context) error {
	sized := w.e.q.Kind.Sized()
	if sized { // the place in line is told before the size is read again
		names := w.e.names
		if _, err := w.decide(ctx); err != nil {
			return err
		}
		w.e.names = names
	}
	v, err := w.look(ctx, false) // by Enter's list
	for known := w.knownToHold(v); err == nil; known = false {
		switch {
		case v.Holds && w.e.q.Ranked && v.Outranked != "" && !w.t.try: // who tries does not wait, and nobody was before it
			return fmt.Errorf("%w: %w", ErrOutranked, LineError{Line{Ahead: 1, Holder: w.e.q.Dir + "/" + kept(v.Outranked)}})
		case v.Holds:
			if err = w.checkOwn(ctx); err == nil && sized && !known {
				w.announce()
			}
			return err
		case w.t.try:
			return &busyError{w.e.line}
		}
		var next bool
		if v, next, err = w.step(ctx, v); next {
			w.place(recipe.Verdict{First: w.e.name()}) // first in line
			return nil
		}
	}
	return err
}

// step waits, as v and the looks before say, for an event or for the time to look, and looks. next: it is our turn, by the
// event alone.
func (w *waiter) step(ctx context.Context, v recipe.Verdict) (after recipe.Verdict, next bool, err error) {
	sized := w.e.q.Kind.Sized()
	w.e.queued = true
	v.First = ""  // place has noted it; a neighbour's name may be long, and is not kept while we wait
	var anew bool // not all watches of our state were there
	if w.head {
		anew, err = w.watchDir(ctx)
	} else {
		anew, err = w.watchPred(ctx, v.Watch, w.predMark(v))
	}
	if err != nil {
		return v, false, err
	}
	if anew && sized { // what the watches are for may have happened before they were set
		v, err = w.look(ctx, false)
		return v, false, err
	}
	byTime, err := w.sleep(ctx)
	if err != nil {
		return v, false, err
	}
	if !byTime && !sized {
		if w.watches[0].Event() != zk.EventNodeDeleted {
			return v, false, nil // its data were set, and it is still before us
		}
		if !w.e.q.Ranked && w.isNext(v) {
			return v, true, nil
		}
	}
	head := w.head
	after, err = w.look(ctx, byTime)
	if err == nil && byTime && (after.Watch != v.Watch || head && after.Holds) {
		w.missed()
	}
	return after, false, err
}

// watchPred watches, as watch does, the predecessor name, our own znodes, and the creation of mark, unless it watches them
// already. If we may not read the predecessor, no watch fires: only looks find out that it is gone.
func (w *waiter) watchPred(ctx context.Context, name, mark string) (anew bool, err error) {
	w.follow(name)
	if len(w.watches) > 0 && !w.hasFired() {
		return false, nil
	}
	if w.mark != nil {
		mark = ""
	}
	ws, err := w.watch(ctx, mark, w.e.q.Dir+"/"+name)
	if err == nil {
		w.watches = ws
	}
	return true, err
}

// watch watches nodes and, before them in the same request, those own znodes of the ticket that have no watch yet, or whose
// watch has fired because their data were set; and the creation of mark, unless that is "". ErrGone: an own znode is gone.
func (w *waiter) watch(ctx context.Context, mark string, nodes ...string) ([]*session.Watch, error) {
	var unwatched []*entry
	var paths []string
	for _, e := range w.t.entries {
		switch {
		case e.gone():
			return nil, ErrGone
		case e.unwatched():
			unwatched, paths = append(unwatched, e), append(paths, e.node)
		}
	}
	ws, created, err := w.t.s.WatchAllAndCreation(ctx, mark, append(paths, nodes...)...)
	if err != nil {
		return nil, err
	}
	if created != nil {
		w.mark = created
	}
	for i, e := range unwatched {
		e.ownWatch = ws[i]
		e.ownWatch.Wake(w.woken)
	}
	ws = ws[len(unwatched):]
	if slices.ContainsFunc(unwatched, (*entry).gone) {
		for _, other := range ws {
			other.Close()
		}
		return nil, ErrGone
	}
	return ws, nil
}

// predMark returns the path of the release mark to watch; "" if the predecessor leaves none, or if its deletion is enough:
// we list at our turn (an election), or it is the only contender in our way, we are no writer (recipe.Kind.Overtaken), and we are notified of our own znode's
// deletion. Where we may not read our own znode, and so most likely not the predecessor's, we watch the mark.
func (w *waiter) predMark(v recipe.Verdict) string {
	q := w.e.q
	switch pred, _ := recipe.Parse(v.Watch); {
	case q.Ranked, !pred.Kind.Alone(),
		v.Ahead == 1 && !q.Kind.Overtaken() && w.e.notified():
		return ""
	}
	return q.Dir + "/" + v.Watch + markSuffix
}

// look lists the directory, unless a list is at hand, reads the size of a sized kind, and decides. In this order: contenders
// before us only disappear, so an old list is safe; an old size is not.
func (w *waiter) look(ctx context.Context, byTime bool) (v recipe.Verdict, err error) {
	if w.e.names == nil {
		err = w.list(ctx, byTime)
	}
	if err == nil && w.e.q.Kind.Sized() {
		err = w.readSize(ctx)
	}
	if err == nil {
		v, err = w.decide(ctx)
	}
	if err == nil && w.e.q.Kind.Sized() && !v.Holds && !w.head { // a head stays one: those before it hold until they go
		w.head, err = w.isHead(ctx, v)
	}
	return v, err
}

// stop gives up what wait has needed.
func (w *waiter) stop() {
	w.unwatch()
	if w.timer != nil {
		w.timer.Stop()
	}
}

// follow makes name the predecessor, and gives up the watches on another.
func (w *waiter) follow(name string) {
	if name == w.pred {
		return
	}
	w.unwatch()
	w.pred = name
	w.pause, w.described = 0, false // for a predecessor that is new to us the pauses begin anew
	w.tickAfter(WatchAfter)
}

// unwatch gives up the watches that wake it.
func (w *waiter) unwatch() {
	for _, watch := range w.watches {
		watch.Close()
	}
	w.mark.Close()
	w.watches, w.mark = nil, nil
}

// list lists the directory. A look without an event waits until no other of the session's does: many that came together look
// together, and their long lists would keep every other request waiting. A waiter that is woken meanwhile waits no longer.
func (w *waiter) list(ctx context.Context, byTime bool) error {
	if !byTime {
		return w.e.list(ctx)
	}
	looking := sharedIn(w.t.s).looking
	select {
	case looking <- struct{}{}:
		defer func() { <-looking }()
	case <-w.woken:
	case <-w.t.s.Done():
		return w.t.s.Err()
	case <-ctx.Done():
		return ctx.Err()
	}
	return w.e.list(ctx)
}

// decide decides by the latest list, and by the czxids that the order depends on, which it reads; and notes the place in line.
// ErrGone: our own znode is not in the list. It drops the list: a thousand waiters would otherwise keep a thousand names each.
func (w *waiter) decide(ctx context.Context) (recipe.Verdict, error) {
	e, own, l := w.e, w.e.name(), w.e.listing()
	e.names = nil
	v := recipe.Decide(l, own, e.size, nil)
	if len(v.Unknown) > 0 {
		czxids, err := e.czxidsFor(ctx, own, v.Unknown)
		if err != nil {
			return v, err
		}
		v = recipe.Decide(l, own, e.size, czxids)
	}
	if !v.Present {
		return v, ErrGone
	}
	w.place(v)
	return v, nil
}

func hasFired(w *session.Watch) bool { return w != nil && w.Event() != 0 }

func (w *waiter) hasFired() bool { return slices.ContainsFunc(w.watches, hasFired) }

// missed reports that a look which no event had caused has found a change that the watches should have reported: a server
// reports an event before it answers a read that shows the change.
func (w *waiter) missed() {
	if !w.hasFired() {
		w.e.q.Log.Warn("a waiter was not notified of a change that it had a watch for, and has found it by looking again: may all who use the lock read its znodes?",
			"path", w.e.q.Dir, "node", w.e.node, "behind", text.Foreign(w.pred))
	}
}

// tickAfter has sleep call tick after d.
func (w *waiter) tickAfter(d time.Duration) {
	if w.timer == nil {
		w.timer = time.NewTimer(d)
	} else {
		w.timer.Reset(d)
	}
}

// sleep returns nil when one of the watches has fired, or, byTime, when it is time to look without an event; an error when
// ctx or the session ends, or an own znode is gone.
func (w *waiter) sleep(ctx context.Context) (byTime bool, err error) {
	for _, watch := range w.watches {
		watch.Wake(w.woken)
	}
	if w.timer == nil {
		w.tickAfter(WatchAfter)
	}
	for !w.hasFired() { // before the timer, which may have run as well
		if err := w.checkOwn(ctx); err != nil {
			return false, err
		}
		select {
		case <-w.woken:
		case <-w.timer.C:
			if w.tick(ctx) && !w.hasFired() {
				return true, nil
			}
		case <-w.t.s.Done():
			return false, w.t.s.Err()
		case <-ctx.Done():
			return false, ctx.Err()
		}
	}
	return false, nil
}

// tick describes the holder, if that is new to us, or finds out whether to list the directory, though no event has said so.
// It ends when a watch has fired: a contender whose turn comes does not wait for the reads.
func (w *waiter) tick(ctx context.Context) (list bool) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	for _, watch := range w.watches {
		watch.Then(func(zk.EventType) { stop() })
	}
	e, s := w.e, w.t.s
	switch {
	case !w.described:
		who := sharedIn(s).descriptions.who(ctx, e.q.Describe, e.line.Holder)
		if who != "" && who != e.line.Who {
			e.line.Who = who
			e.q.Caller.Queued(e.line)
		}
		w.described = ctx.Err() == nil // else the event may not have been the predecessor's deletion: then read again later
	case e.q.Kind.Sized(): // what a contender announces is not to be seen in the directory's Stat
		w.pause, list = NextLook(w.pause, s.Timeout()), true
	default: // a directory that has not changed since it was listed would show nothing new
		w.pause = NextLook(w.pause, s.Timeout())
		stat, err := s.Exists(ctx, e.q.Dir)
		list = err != nil || stat.Pzxid != e.pzxid
	}
	w.tickAfter(NextLook(w.pause, s.Timeout()))
	return list
}

// A ticket holds only while its own znodes are known to exist. A waiter watches its own znode, its predecessor and, where
// that helps, the predecessor's release mark (leave.go), by one request. When the predecessor goes, there are three ways
// to hold:
//
//   - By a list, which is the state of the tree at one moment: our znode is in it, and no contender in our way is.
//   - By the event alone: the predecessor was the only contender in our way (Verdict.Ahead is 1), and no other can have
//     come into our way since (recipe.Kind.Overtaken).
//   - By the release mark: the predecessor held, so no contender in its way was left before it; and none was between us in
//     our list.
//
// The last two need no list, but our own znode must have existed when the predecessor's was deleted. It did if its deletion
// was not notified before: the server watches both for one connection, and notifies in the order of the events. If a znode
// is gone before its watch is set, the server notifies at once, in the order of the request's paths, and our own znode
// comes first. After a reconnection, and where we may be unable to read our own znode and so are not notified, the list
// decides. See session.Watch.ExistedWhen.

// isNext reports, after the predecessor's deletion was notified, whether it is our turn, and no list is needed.
func (w *waiter) isNext(v recipe.Verdict) bool {
	next := v.Ahead == 1 && !w.e.q.Kind.Overtaken() || w.released()
	return next && w.t.existedWhen(w.watches[0])
}

// released reports whether the predecessor, of whose deletion we were notified, has left by its mark. Servers before 3.9 do
// not tell whether one transaction made the mark and deleted the predecessor. Then the mark counts if our own access list,
// which is taken for the directory's, lets nobody create a mark who may not delete the predecessor as well.
func (w *waiter) released() bool {
	if w.mark == nil || w.mark.Event() != zk.EventNodeCreated {
		return false
	}
	if same, known := w.mark.FiredWith(w.watches[0]); known {
		return same
	}
	return !slices.ContainsFunc(w.e.q.ACL, func(a zk.ACL) bool { return a.Perms&(zk.PermCreate|zk.PermDelete) == zk.PermCreate })
}

// existedWhen reports whether all own znodes are known to have existed when the one that w watches was deleted.
func (t *Ticket) existedWhen(w *session.Watch) bool {
	for _, e := range t.entries {
		if e.ownWatch == nil || !e.ownWatch.ExistedWhen(w) || !e.notified() {
			return false
		}
	}
	return true
}

// checkOwn returns ErrGone if one of our own znodes is known to be gone, and watches those again whose data were set.
func (w *waiter) checkOwn(ctx context.Context) error {
	if !slices.ContainsFunc(w.t.entries, func(e *entry) bool { return hasFired(e.ownWatch) }) {
		return nil
	}
	_, err := w.watch(ctx, "")
	return err
}

// place notes the place in line, and reports a change of it.
func (w *waiter) place(v recipe.Verdict) {
	e := w.e
	line := Line{Ahead: v.Ahead, Holder: e.node}
	if v.First != e.name() {
		line.Holder = e.q.Dir + "/" + kept(v.First)
	}
	switch {
	case line.Holder != e.line.Holder:
		w.described = false
		if v.Ahead > 0 {
			w.tickAfter(WatchAfter) // to find out who that is
		}
	case v.Ahead == e.line.Ahead:
		return
	default:
		line.Who = e.line.Who
	}
	e.line = line
	if v.Ahead > 0 {
		e.q.Caller.Queued(line)
	}
}

// explain adds the place in line to the error of a wait that the end of ctx has ended.
func (e *entry) explain(ctx context.Context, err error) error {
	switch {
	case err == nil || !errors.Is(err, ctx.Err()) || e.line.Ahead == 0:
		return err // if it waited for anything but its turn, err says so
	case err == ctx.Err(): //nolint:errorlint // bare: there is nothing more in it
		return session.Ended(ctx, nil, LineError{e.line})
	}
	return fmt.Errorf("%w, %w", err, LineError{e.line})
}

// hold makes a ticket that is first in every queue hold: it retains the session.
func (t *Ticket) hold(ctx context.Context) error {
	keep, err := t.s.Retain(ctx, t.Nodes()...)
	if errors.Is(err, zk.ErrNoNode) {
		return fmt.Errorf("%w: %w", ErrGone, err)
	}
	if err != nil {
		return err
	}
	if slices.ContainsFunc(t.entries, (*entry).gone) { // meanwhile
		keep.Release()
		return ErrGone
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.keep = keep
	for _, e := range t.entries {
		e.q.Caller = nil // a hold keeps nothing of the call that got it
	}
	return nil
}
