package recipe

import (
	"context"
	"errors"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/locker/session"
)

// A semaphore is a queue whose first contenders hold together, as far as their permits go:
//
//	a contender holds when the permits of all contenders before it, and its own, are at most the size.
//
// So permits are given in order of arrival, all or none, and a large request is not overtaken by small ones for ever. It
// is safe, because contenders before us can only disappear, so that the sum before us only falls.
//
// Waking. A waiter watches the contender immediately before it. It wakes when that contender's znode is deleted, and when
// that contender, after a wait of its own, begins to hold: it announces that by setting its own znode's data. The first of
// those that wait, the head, sees that all before it hold; it watches the list of children, and so wakes when any of them
// releases, and the directory's data, which have the size. A release hence wakes the head, and the contender behind the
// deleted znode if that one waits: two at most, however many wait.
//
// The directory's data have the size, which the first contender writes. When it is lowered, those that hold may have more
// permits than there are, and neither a list nor their data tell them from those that wait: a contender that held at once has
// not set its data. So with the size, in one write, goes the largest that it ever was; and a waiter is a head, too, if the
// one before it may hold by a larger size than the present one:
//
//   - the permits before us are no more than the largest size, and
//   - the one before us was created before the directory's data were last written. (One created
//     later has decided by the data we read, or by newer data, because it reads them after its create. One that found
//     newer data, and did not have to wait, announces that it holds.)
//
// A waiter behind a znode that it may not read (ZooKeeper 3.9 and later say so) is a head as well: it would not be
// notified of that one's deletion.
//
// Taking a waiter for a holder is harmless: it makes another head, which is woken more often than needed. So a Resize is
// one write: those that it concerns watch the data, and nothing depends on whether the caller of Resize learns of its
// success, or does anything afterwards.

// readSize reads the size; false: there is none, or data that are not this library's in its place, and it stays as it was
// last known.
func (w *waiter) readSize(ctx context.Context) (known bool, err error) {
	d, stat, err := w.e.q.readData(ctx, w.t.s)
	switch {
	case errors.Is(err, zk.ErrNoNode):
		return false, ErrGone
	case errors.Is(err, ErrConflict):
		return false, nil
	case err != nil:
		return false, err
	}
	w.written = stat.Mzxid
	if d.Size > 0 {
		w.e.size, w.largest = d.Size, max(d.Size, d.Was)
	}
	return d.Size > 0, nil
}

// untilRoom waits until the entry's permits are free.
func (w *waiter) untilRoom(ctx context.Context) error {
	e := w.e
	names := e.names
	v, err := w.decide(ctx)
	if err != nil {
		return err
	}
	if v.Holds { // by a size that was read before the znode was made, however long ago that is: it may have been lowered
		was := e.size
		known, err := w.readSize(ctx)
		if err == nil && !known { // the directory was deleted after the size was read, and has been made again without
			e.size, err = e.q.readSize(ctx, w.t.s, was)
		}
		if err == nil && e.size < was {
			e.names = names
			v, err = w.decide(ctx)
		}
		if err != nil {
			return err
		}
	}
	silent := w.written < w.t.czxid // the contender behind us decides by the same size
	head := !writable(e.q.ACL)      // once the head, always the head: those before it hold until they go
	for ; ; silent = false {
		switch {
		case v.Holds:
			if !silent {
				w.announce()
			}
			return nil
		case w.t.try:
			return &busyError{e.line}
		}
		if head = head || v.Ahead == 1; head {
			v, err = w.waitAsHead(ctx, v)
		} else {
			v, head, err = w.waitBehind(ctx, v)
		}
		if err != nil {
			return err
		}
	}
}

// writable reports whether all that enter may set the data of their znodes, and so announce that they hold. Where they
// may not, every waiter has to be a head.
func writable(acl []zk.ACL) bool {
	for _, entry := range acl {
		if entry.Perms&zk.PermWrite == 0 {
			return false
		}
	}
	return true
}

// decideAnew reads the list, and then the size: contenders before us only disappear, so an older list is safe, while an
// older size is not.
func (w *waiter) decideAnew(ctx context.Context) (Verdict, error) {
	if err := w.e.list(ctx); err != nil {
		return Verdict{}, err
	}
	if _, err := w.readSize(ctx); err != nil {
		return Verdict{}, err
	}
	return w.decide(ctx)
}

// waitBehind waits behind a contender that waits, until that one has gone or holds. head: that contender holds, or may hold by
// an earlier, larger size, or may not be read; then we are the head.
func (w *waiter) waitBehind(ctx context.Context, was Verdict) (v Verdict, head bool, err error) {
	before, err := w.watchPred(ctx, was.Watch, "")
	if err != nil {
		return was, false, err
	}
	if before != nil {
		defer before.Close()
	}
	// It may have begun to hold between our list and the watch: look again, now that nothing can be missed.
	v, err = w.decideAnew(ctx)
	if err != nil || v.Holds || v.Ahead == 1 || v.Watch != was.Watch || hasFired(before) {
		return v, false, err
	}
	switch stat, err := w.t.s.Exists(ctx, w.e.q.Dir+"/"+was.Watch); {
	case err == nil && (stat.Version > 0 || v.Permits <= w.largest && stat.Czxid < w.written):
		return v, true, nil
	case errors.Is(err, zk.ErrNoAuth): // nor shall we hear when it begins to hold; a head does not depend on that
		return v, true, nil
	case err != nil && !errors.Is(err, zk.ErrNoNode):
		return v, false, err
	}
	if err := w.sleep(ctx, fired(before), nil); err != nil {
		return v, false, err
	}
	v, err = w.decideAnew(ctx)
	return v, false, err
}

// waitAsHead waits as the first of those that wait, until one that holds has gone or the size has changed.
func (w *waiter) waitAsHead(ctx context.Context, was Verdict) (Verdict, error) {
	w.pred, w.blind = "", false
	dir, err := w.t.s.Watch(ctx, w.e.q.Dir)
	if err != nil {
		return was, err
	}
	defer dir.Close()
	list, names, stat, err := w.t.s.WatchChildren(ctx, w.e.q.Dir)
	if errors.Is(err, zk.ErrNoNode) {
		return was, ErrGone
	}
	if err != nil {
		return was, err
	}
	defer list.Close()
	w.e.listed(session.Children{Names: names, Stat: stat})
	if _, err := w.readSize(ctx); err != nil { // after the watches: a change from here on wakes us
		return was, err
	}
	v, err := w.decide(ctx)
	if err != nil || v.Holds {
		return v, err
	}
	if err := w.sleep(ctx, list.Fired(), dir.Fired()); err != nil {
		return v, err
	}
	return w.decideAnew(ctx)
}

// announce wakes the contender behind us, now that we hold: it may be its turn too.
func (w *waiter) announce() {
	t, node, data := w.t, w.e.node, w.e.q.Data
	t.s.Go(func(ctx context.Context) {
		persist(ctx, func() error { // if our znode is gone, its deletion has woken the next one, and so has who has set its data
			stat, err := t.s.Set(ctx, node, data, 0)
			if err == nil {
				t.known(node, stat.Version)
			}
			return err
		})
	})
}
