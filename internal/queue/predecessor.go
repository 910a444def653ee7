package queue

import (
	"context"
	"errors"
	"slices"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/locker/internal/session"
	"github.com/zklock/locker/recipe"
)

// A ticket holds only while its own znodes are known to exist. A waiter watches its own znode, its predecessor and, where
// that helps, the predecessor's release mark (see below), by one request. When the predecessor goes, there are three ways
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

// watchPred watches, as watch does, the predecessor name, our own znodes, and the creation of mark, unless it watches them
// already. There is no Watch if we may not read the predecessor, and the server says so: only looks find out that it is gone.
func (w *waiter) watchPred(ctx context.Context, name, mark string) (anew bool, err error) {
	anew = w.follow(name)
	if len(w.watches) > 0 && !w.hasFired() {
		return false, nil
	}
	if w.mark != nil {
		mark = ""
	}
	ws, err := w.watch(ctx, mark, w.e.q.Dir+"/"+name)
	if errors.Is(err, zk.ErrNoAuth) { // watches are set by exists on this server
		return anew, nil
	}
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

// checkOwn returns ErrGone if one of our own znodes is known to be gone, and watches those again whose data were set.
func (w *waiter) checkOwn(ctx context.Context) error {
	if !slices.ContainsFunc(w.t.entries, func(e *entry) bool { return hasFired(e.ownWatch) }) {
		return nil
	}
	_, err := w.watch(ctx, "")
	if errors.Is(err, zk.ErrNoAuth) {
		return nil // as in watchPred: the list tells
	}
	return err
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

// # Release marks
//
// A contender that queued behind several others can't tell from its predecessor's deletion that it is next: the predecessor
// may have given up, or crashed, while others are still before it. A release mark makes a list unnecessary, so that a
// hand-over costs one write and one event. A mutex's holder, or a writer, that had to queue leaves by one transaction:
//
//  1. create its mark, an ephemeral znode whose name follows from its own,
//  2. delete the mark,
//  3. delete its own znode.
//
// No list shows the mark, which never exists between two transactions. But its creation is notified to the contenders that
// watch for it, those behind the holder: of a mutex one; behind a writer one writer, or all readers up to the next writer.
//
// Safety. The mark says: at some moment while this znode existed, no contender in its way was left before it. That is what
// holding means, and it stays true, since lower numbers can only disappear (doc.go). So a waiter that found this znode to be its predecessor, by a
// list, holds as soon as the znode is gone. The waiter relies on the mark if
//
//   - it is notified of the mark's creation and then of the predecessor's deletion. The server notifies in the order of a
//     transaction's operations, so the mark never comes later. The mark alone says nothing: the predecessor may still hold;
//   - both were one transaction. Its author was then permitted to delete the predecessor, and a client that may delete in a
//     directory can make two hold anyway. A client that may only create could make a mark for a contender that is about to
//     go by itself, but in another transaction. Servers since 3.9 tell which transaction a notification is of. With others,
//     the mark counts if the directory's ACL lets no client create that may not delete as well;
//   - its own znode existed when the predecessor's was deleted, and both were notified on one connection (ExistedWhen).
//
// In every other case the list decides, as if there were no marks.
//
// These leave without a mark: a call that gives up; a reader, before which other readers may hold; a semaphore's contender; and one that was first in line when it entered: the contender behind it sees that, and
// holds by the event alone. (A writer needs a list there: recipe.Kind.Overtaken.) A mark advances the directory's counter by one, as any create does.

// markSuffix makes a contender's name its mark's, which is no contender's, since it does not end with a number.
const markSuffix = "-released"

// leavesMark reports whether the entry leaves by its mark: it has held, after queueing.
func (e *entry) leavesMark() bool {
	return e.t.keep != nil && e.queued && e.q.Kind.Alone()
}

func (e *entry) releaseOps() []session.Op {
	gone := session.OpDelete{Path: e.node, Version: -1}
	if !e.leavesMark() {
		return []session.Op{gone}
	}
	mark := e.node + markSuffix
	return []session.Op{
		// Readable by all: servers notify only those that may read the znode.
		session.OpCreate{Path: mark, ACL: zk.WorldACL(zk.PermRead), Mode: session.Ephemeral},
		session.OpDelete{Path: mark, Version: -1},
		gone,
	}
}

// predMark returns the path of the release mark to watch; "" if the predecessor leaves none, or if its deletion is enough:
// we list at our turn (an election), or it is the only contender in our way, we are no writer (recipe.Kind.Overtaken), and we are notified of our own znode's
// deletion. Where we may not read our own znode, and so most likely not the predecessor's, we watch the mark.
func (w *waiter) predMark(v recipe.Verdict) string {
	q := w.e.q
	switch pred, _ := recipe.Parse(v.Watch); {
	case q.Ranked, !pred.Kind.Alone(), !hasOurForm(v.Watch, pred),
		v.Ahead == 1 && !q.Kind.Overtaken() && w.e.notified():
		return ""
	}
	return q.Dir + "/" + v.Watch + markSuffix
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
