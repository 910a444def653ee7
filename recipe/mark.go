package recipe

import (
	"context"
	"errors"
	"strings"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/locker/internal/trusted"
	"github.com/zklock/locker/session"
)

// A contender that queued behind several others can't tell from its predecessor's deletion that it is next: the predecessor
// may have given up, or crashed, while others are still before it. So it lists the directory, and that list is all that stands
// between a hand-over and the least that it can cost, one write and one event. A release mark makes the list unnecessary. A
// mutex's holder, or a writer, that had to queue leaves by one transaction:
//
//  1. create its mark, an ephemeral znode whose name follows from its own,
//  2. delete the mark,
//  3. delete its own znode.
//
// The mark never exists between two transactions, so no list shows it; but its creation is notified to the contenders that
// watch for it: those whose predecessor the holder is. Of a mutex that is one; behind a writer it is a writer, or all readers up
// to the next writer.
//
// Safety. The mark says: at some moment while this znode existed, no contender in its way was left before it. That is
// what holding means; and what is true once stays true, since numbers below it can only disappear (doc.go). (A writer's
// Downgrade puts a reader in the writer's place; but that writer held, so no other writer did.) So a waiter whose
// predecessor it was in a list holds as soon as it has gone. The waiter relies on the mark if
//
//   - it is notified of the mark's creation and, behind that, of the predecessor's deletion. The server notifies in the order
//     of a transaction's operations, so the mark never comes later. The mark alone says nothing: the predecessor may
//     still hold;
//   - both were one transaction. Then its author was permitted to delete the predecessor, and a client that may delete in a
//     directory can make two hold anyway. A client that may only create could make a mark for a contender that is about to go
//     by itself; but that is another transaction. Servers since 3.9 tell which transaction a notification is of. Where they
//     don't, the mark counts if the directory's ACL lets no client create that may not delete as well: see acl.go;
//   - its own znode existed when the predecessor's was deleted: see predecessor.go.
//
// In every other case the list decides, as if there were no marks. A mark that was notified on a connection which then
// broke is worth nothing without the deletion on the same connection: ExistedWhen.
//
// These leave without a mark: a call that gives up; a reader, before which other readers may hold; a writer that has
// become one; a semaphore's contender; and one that was first in line when it entered: the contender behind that one sees
// it at the head, and holds by the event alone. (Behind a writer that was first, a list is needed: see Kind.wayOnlyShrinks.) With
// lock delays the next holder reads the directory anyway.
//
// Creating the mark advances the directory's counter by one, as any create in it does.

// markSuffix makes a contender's name its mark's: no contender's, since it does not end with a number.
const markSuffix = "-released"

// leavesMark reports whether the entry, which has held, leaves by its mark: not where servers do not have setWatches, since
// the waiter behind us then most likely can't watch for it.
func (e *entry) leavesMark() bool {
	return e.queued && e.q.Kind.alone() && !e.q.Delays && e.t.s.ForLocks(trusted.Caller{}).HasSetWatches()
}

// releaseOps returns the operations by which the entry leaves, with its mark or without.
func (e *entry) releaseOps(marked bool) []any {
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

// carriedOut reports whether a release by a mark, which failed with markedErr, may have been carried out after all: the plain
// deletion behind it found no znode (plainErr), and markedErr does not prove a refusal.
func carriedOut(markedErr, plainErr error) bool {
	return errors.Is(plainErr, zk.ErrNoNode) && !errors.Is(markedErr, zk.ErrNoAuth) && !errors.Is(markedErr, zk.ErrNodeExists)
}

// predMark returns the path of the release mark to watch. It is "" if the predecessor will leave none, and if we need none:
// when the predecessor is the only contender in our way, its deletion is enough (not for a writer: Kind.wayOnlyShrinks). This works
// only if we are notified of our own znode's deletion. Where we may not read our own znode, and so most likely not the
// predecessor's, we watch the mark all the same.
func (w *waiter) predMark(v Verdict) string {
	q := w.e.q
	switch pred, _ := Parse(v.Watch); {
	case q.Delays, !pred.Kind.alone(), !hasOurForm(v.Watch, pred.Kind),
		v.Ahead == 1 && q.Kind.wayOnlyShrinks() && w.e.notified():
		return ""
	}
	return q.Dir + "/" + v.Watch + markSuffix
}

// hasOurForm reports whether the name of a contender of kind k has the form that this library gives it. Curator's have it
// too: they leave no mark, and the watch for one does not fire.
func hasOurForm(name string, k Kind) bool {
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
	if w.mark == nil || w.mark.Event() != zk.EventNodeCreated {
		return false, nil
	}
	if same, known := w.mark.FiredWith(pred); known {
		return same, nil
	}
	return sharedIn(w.t.s).permitted.alike(ctx, w.e.q.Dir, w.e.dir)
}

// forgetMark gives up the watch on the predecessor's mark.
func (w *waiter) forgetMark() {
	if w.mark != nil {
		w.mark.Close()
	}
	w.mark, w.heard = nil, false
}
