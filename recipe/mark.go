package recipe

import (
	"context"
	"errors"
	"strings"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/locker/internal/trusted"
	"github.com/zklock/locker/session"
)

// Who queued behind several contenders can't tell from its predecessor's deletion that it is next: the predecessor may
// have given up, or crashed, while others are still before it. So it lists the directory, and that list is all that
// stands between a hand-over and its limit, one write and one event. A release mark saves it. A mutex's holder, or a
// writer, that had to queue leaves by one transaction:
//
//  1. create its mark, an ephemeral znode whose name follows from its own,
//  2. delete the mark,
//  3. delete its own znode.
//
// The mark never exists between two transactions, so that no list shows it; but its creation is notified to those that
// watch for it, and that is the one behind the holder.
//
// Safety. The mark says: at some moment while this znode existed, no contender in its way was left before it. That is
// what holding means; and what is true once stays true, since numbers below it can only disappear (doc.go). So whoever
// was immediately behind it in a list holds as soon as it has gone. The waiter believes the word if
//
//   - it is notified of the mark's creation and, behind it, of the predecessor's deletion. The server notifies in the order
//     of a transaction's operations, so the mark never comes later. The mark alone says nothing: the predecessor may
//     still hold;
//   - both were one transaction. Then its author was permitted to delete the predecessor, and whoever may delete in a
//     directory can have two hold anyway. One who may only create could make a mark for a contender that is about to go
//     by itself; but that is another transaction. Servers since 3.9 tell which transaction a notification is of. Where they
//     don't, the mark counts if the directory's ACL lets nobody create who may not delete as well: see Permitted;
//   - its own znode existed when the predecessor's was deleted: see predecessor.go.
//
// In every other case the list decides, as if there were no marks. A mark that was notified on a connection which then
// broke is worth nothing without the deletion on the same connection: StoodWhen.
//
// Who does not leave by a mark: a call that gives up; a reader, before which other readers may hold; a writer that has
// become one; a semaphore's contender; and one that was first in line when it entered: whoever is behind that one sees it
// at the head, and holds by the event alone. (A writer that was first costs the one behind it a list: see Kind.shrinks.)
// With lock delays the next holder reads the directory anyway.
//
// The mark counts as a create of the directory.

// markSuffix makes a contender's name its mark's: no contender's, since it does not end with a number.
const markSuffix = "-released"

// leavesMark reports whether the entry, which has held, leaves by its mark.
func (e *entry) leavesMark() bool {
	return e.queued && e.q.Kind.alone() && !e.q.Delays && e.s.ForLocks(trusted.Caller{}).TellsCreations()
}

// release returns the operations by which the entry leaves, with its mark or without.
func (e *entry) release(marked bool) []any {
	gone := &zk.DeleteRequest{Path: e.node, Version: -1}
	if !marked {
		return []any{gone}
	}
	mark := e.node + markSuffix
	return []any{
		// Readable by all: servers notify only those that may read the znode.
		&zk.CreateRequest{Path: mark, Acl: zk.WorldACL(zk.PermRead), Flags: int32(session.Ephemeral)},
		&zk.DeleteRequest{Path: mark, Version: -1},
		gone,
	}
}

// markRefused reports whether the error of a release by a mark proves that it was refused though its znode is there: the
// server does not let us make the mark, for a permission, a quota, or a znode of its name.
func markRefused(ctx context.Context, s *session.Session, err error) bool {
	return err != nil && ctx.Err() == nil && s.Err() == nil && !errors.Is(err, zk.ErrNoNode) && !transient(err)
}

// carriedOut reports whether a release by a mark may have been carried out though the server answered marked, as one in
// trouble may: the deletion tried behind it, plain, has found no znode.
func carriedOut(marked, plain error) bool {
	return errors.Is(plain, zk.ErrNoNode) && !errors.Is(marked, zk.ErrNoAuth) && !errors.Is(marked, zk.ErrNodeExists)
}

// markBefore returns the path of the mark that the predecessor leaves by if it holds before; "" if it leaves none, or we
// don't need it: whose only predecessor it is holds by its deletion. One that may not read its own znode, and most
// likely not its predecessor's, is not notified of the deletion; it is woken by the mark.
func (w *waiter) markBefore(v Verdict) string {
	q := w.e.q
	switch pred, _ := Parse(v.Watch); {
	case q.Delays, !pred.Kind.alone(), !ours(v.Watch, pred.Kind),
		v.Ahead == 1 && q.Kind.shrinks() && w.e.notified():
		return ""
	}
	return q.Dir + "/" + v.Watch + markSuffix
}

// ours reports whether the name of a contender of kind k has the form that this library gives it. Curator's have it too.
func ours(name string, k Kind) bool {
	if len(name) < idLength || !strings.HasPrefix(name, "_c_") {
		return false
	}
	number, ok := strings.CutPrefix(name[idLength:], k.label())
	if ok {
		_, ok = numberOf(number)
	}
	return ok
}

// released reports whether the predecessor, whose deletion pred was notified of, has left by its mark.
func (w *waiter) released(ctx context.Context, pred *session.Watch) (bool, error) {
	if !hasFired(w.mark) || w.mark.Event() != zk.EventNodeCreated {
		return false, nil
	}
	if same, known := w.mark.FiredWith(pred); known {
		return same, nil
	}
	return w.e.q.Permitted.alike(ctx, w.t.s, w.e.q.Dir, w.e.dir)
}

// forgetMark gives up the watch on the predecessor's mark.
func (w *waiter) forgetMark() {
	if w.mark != nil {
		w.mark.Close()
	}
	w.mark, w.heard = nil, false
}
