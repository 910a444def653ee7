package recipe

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/locker/internal/trusted"
	"github.com/zklock/locker/session"
)

// A ticket holds only while its own znodes are known to exist. A waiter watches its own znode and that of the contender
// before it, its predecessor, and, where that is worth it, the predecessor's release mark (see below): one request
// registers all of them. When the predecessor goes, there are three ways to hold.
//
//   - By a list: a list of the directory is the state of the tree at one moment. If our znode is in it, and no contender
//     in our way is, we held at that moment.
//   - By the event alone, without a list: if the predecessor was the only contender in our way (Verdict.Ahead is 1), and no
//     other can have come into our way since (Kind.wayOnlyShrinks).
//   - By the release mark, without a list: the mark says that the predecessor held, so that no contender in its way was left
//     before it; and when we listed, none was between the two of us.
//
// The last two also need that our own znode existed when the predecessor's was deleted. We know that it did if its
// deletion was not notified before: the server watches both for one connection, and notifies in the order of the
// events. If a znode is gone before its watch is set, the server notifies at once, in the order of the request's paths, and
// our own znode comes first in the request. After a reconnection, and where we may not be allowed to read our own znode and
// so would not be notified, the list decides. See session.Watch.ExistedWhen.

// waitForPred waits until the predecessor is gone, or the directory has to be listed again. next: it is our turn, and no list
// is needed.
func (w *waiter) waitForPred(ctx context.Context, v Verdict) (next bool, err error) {
	for {
		pred, err := w.watchPred(ctx, v.Watch, w.predMark(v))
		if err != nil {
			return false, err
		}
		// Blind, only the mark can wake us, and once is enough. Otherwise we wait for the deletion, which is notified right
		// behind the mark.
		var mark *session.Watch
		if pred == nil && !w.markWoke {
			mark = w.mark
		}
		err = w.sleep(ctx, pred, mark)
		pred.Close()
		switch {
		case err != nil || !hasFired(pred):
			w.markWoke = w.markWoke || hasFired(w.mark)
			return false, err
		case pred.Event() == zk.EventNodeDeleted:
			next = v.Ahead == 1 && w.e.q.Kind.wayOnlyShrinks()
			return (next || w.released(ctx, pred)) && w.t.existedWhen(pred), nil
		} // else the predecessor's data were set, and it is still before us
	}
}

// watchPred watches the predecessor, which is name, our own znodes, and, unless mark is "", the creation of the release mark at
// that path, as watch does. It returns a nil Watch if we may not read the predecessor, and so have to list from time to time.
func (w *waiter) watchPred(ctx context.Context, name, mark string) (*session.Watch, error) {
	if name != w.pred {
		w.forgetMark()
		w.pred, w.blind, w.looked, w.pause = name, false, false, WatchAfter
		w.readAfter(WatchAfter)
	}
	if w.blind {
		return nil, nil
	}
	if w.mark != nil {
		mark = ""
	}
	ws, err := w.watch(ctx, mark, w.e.q.Dir+"/"+name)
	switch {
	case errors.Is(err, zk.ErrNoAuth): // of a server that sets watches by exists
		w.blind = true
		return nil, nil
	case err != nil:
		return nil, err
	}
	return ws[0], nil
}

// watch watches nodes and, in the same request and before them, those own znodes of the ticket that are not watched yet,
// or whose watch has fired because another client has set their data; and the creation of mark, unless that is "".
// ErrGone: one of our own znodes is gone.
func (w *waiter) watch(ctx context.Context, mark string, nodes ...string) ([]*session.Watch, error) {
	var unwatched []*entry
	var paths []string
	again := false // another client has set data, or made another znode of one's name while we were disconnected
	for _, e := range w.t.entries {
		switch {
		case e.gone():
			return nil, ErrGone
		case e.unwatched():
			e.set = e.ownWatch != nil
			again = again || e.set
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
	gone := slices.ContainsFunc(unwatched, (*entry).gone)
	if again && !gone {
		gone = slices.ContainsFunc(ownStats(ctx, w.t.s, paths), func(n session.Node) bool { return errors.Is(n.Err, ErrGone) })
	}
	if gone {
		for _, other := range ws {
			other.Close()
		}
		return nil, ErrGone
	}
	return ws, nil
}

// checkOwn returns ErrGone when an own znode is known to be gone. Those whose data were set are watched again.
func (w *waiter) checkOwn(ctx context.Context) error {
	if !slices.ContainsFunc(w.t.entries, func(e *entry) bool { return hasFired(e.ownWatch) }) {
		return nil
	}
	_, err := w.watch(ctx, "")
	if errors.Is(err, zk.ErrNoAuth) {
		return nil // as for watchPred: the list tells
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

// tryToRead returns nil if this session may read the child name of dir, and zk.ErrNoNode if that is gone. Its cost is bounded,
// whatever others have put there: it reads the list of children if there are none, else the data if they are short. A znode
// that has children and long data counts as unreadable.
func tryToRead(ctx context.Context, s *session.Session, dir, name string) error {
	const short = 64 << 10
	node := dir + "/" + name
	stat, err := s.Exists(ctx, node)
	switch {
	case err != nil:
	case stat.NumChildren == 0:
		_, _, err = s.List(ctx, node)
	case stat.DataLength <= short:
		_, _, err = s.Get(ctx, node)
	default:
		err = zk.ErrNoAuth
	}
	return err
}

// AwaitGone waits until the contender name of dir has gone, by a watch, on behalf of one that is not in line. It returns
// nil then, or when the contender's data were set. One that may not be read can't be waited for: then it returns nil
// after a pause of an eighth of the session timeout, for the caller to list again. An error is that of ctx or the
// session.
func AwaitGone(ctx context.Context, s *session.Session, dir, name string) error {
	t := newTicket(s, []Queue{{Dir: dir}}) // which never enters
	w := &waiter{t: t, e: t.entries[0], woken: make(chan struct{}, 1), pred: name, pause: WatchAfter}
	pred, err := s.WatchExisting(ctx, dir+"/"+name)
	if err != nil && !errors.Is(err, zk.ErrNoAuth) {
		return err
	}
	defer pred.Close()
	err = w.sleep(ctx, pred, nil)
	if err == nil && w.blind && !hasFired(pred) {
		w.readAfter(s.Timeout() / blindPart)
		err = w.sleep(ctx, pred, nil)
	}
	w.timer.Stop()
	return err
}

// # Release marks
//
// A contender that queued behind several others can't tell from its predecessor's deletion that it is next: the predecessor
// may have given up, or crashed, while others are still before it. A release mark makes a list unnecessary, so that a hand-over
// costs one write and one event. A mutex's holder, or a writer, that had to queue leaves by one transaction:
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
//     don't, the mark counts if the directory's ACL lets no client create that may not delete as well: see permitted;
//   - its own znode existed when the predecessor's was deleted, and both were notified on one connection (ExistedWhen).
//
// In every other case the list decides, as if there were no marks.
//
// These leave without a mark: a call that gives up; a reader, before which other readers may hold; a writer that has
// become one; a semaphore's contender; and one that was first in line when it entered: the contender behind that one sees
// it first in line, and holds by the event alone. (Behind a writer that was first, a list is needed: see Kind.wayOnlyShrinks.)
// With lock delays the next holder reads the directory anyway. A mark advances the directory's counter by one, as any create
// does.

// markSuffix makes a contender's name its mark's: no contender's, since it does not end with a number.
const markSuffix = "-released"

// leavesMark reports whether the entry leaves by its mark: it has held. Not where servers do not have setWatches, since the
// waiter behind us then most likely can't watch for it.
func (e *entry) leavesMark() bool {
	return e.t.keep != nil && e.queued && e.q.Kind.alone() && !e.q.Delays && e.t.s.ForLocks(trusted.Caller{}).HasSetWatches()
}

// releaseOps returns the operations by which the entry leaves, with its mark or without.
func (e *entry) releaseOps() []any {
	gone := &zk.DeleteRequest{Path: e.node, Version: -1}
	if !e.leavesMark() {
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

// markRefused reports whether a release by a mark may have failed because the server does not let us make the mark: for want of
// a permission or a quota, or because a znode has its name.
func markRefused(ctx context.Context, s *session.Session, err error) bool {
	return err != nil && ctx.Err() == nil && s.Err() == nil && !errors.Is(err, zk.ErrNoNode) && !transient(err)
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
	return len(name) >= idLength && strings.HasPrefix(name, "_c_") && madeWith(k.label(), name[idLength:])
}

// released reports whether the predecessor, whose deletion pred was notified of, has left by its mark.
func (w *waiter) released(ctx context.Context, pred *session.Watch) bool {
	if w.mark == nil || w.mark.Event() != zk.EventNodeCreated {
		return false
	}
	if same, known := w.mark.FiredWith(pred); known {
		return same
	}
	return sharedIn(w.t.s).permitted.alike(ctx, w.e.q.Dir, w.e.dir)
}

// forgetMark gives up the watch on the predecessor's mark.
func (w *waiter) forgetMark() {
	w.mark.Close()
	w.mark, w.markWoke = nil, false
}
