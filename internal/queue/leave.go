package queue

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/locker/internal/session"
)

// Leave gives up the place: it deletes the znodes by their full names, and nothing else; several in one transaction if all
// still exist. Nil: they are deleted. ErrGone: another client had deleted one before. Any other error: ctx or the session
// ended first; it matches ErrTaken if another client had deleted one. The deletion then goes on in the background until it
// succeeds, is refused for good (final), or the session is over and the server deletes the znodes.
//
// It blocks for one round trip, or until ctx ends. The znodes are deleted even if ctx has ended already. Call it once.
func (t *Ticket) Leave(ctx context.Context) error {
	t.mu.Lock()
	t.endLocked(left)
	t.mu.Unlock()
	err := t.remove(ctx, t.entries...)
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.keep != nil {
		t.keep.Release()
	}
	return err
}

// removeEach leaves one queue after the other, and returns the first failure. ErrGone: there is no other, and so nothing is
// left.
func (t *Ticket) removeEach(ctx context.Context) (first error) {
	for _, e := range t.entries {
		if err := t.remove(ctx, e); err != nil && (first == nil || errors.Is(first, ErrGone)) {
			first = err
		}
	}
	return first
}

// remove is Leave for some of the ticket's znodes.
func (t *Ticket) remove(ctx context.Context, entries ...*entry) error {
	err := t.delete(ctx, entries...)
	for first := true; ; first = false {
		gone, several := errors.Is(err, zk.ErrNoNode), len(entries) > 1
		again := transient(err) && ctx.Err() == nil && t.s.Err() == nil
		switch {
		case err == nil || gone && !several:
			for _, e := range entries {
				e.unwatch()
			}
			if gone && first {
				return ErrGone
			}
			return nil // or our own deletion, whose reply was lost, has done it
		case several && gone: // another client had deleted one, so this has deleted none
			err := t.removeEach(ctx)
			if err == nil || errors.Is(err, ErrGone) {
				return ErrGone
			}
			return fmt.Errorf("%w: %w", ErrTaken, err)
		case several && again:
			if err := t.removeEach(ctx); !errors.Is(err, ErrGone) {
				return err
			}
			return nil // our transaction, whose reply was lost, has done it
		case again:
			err = t.delete(ctx, entries...)
			continue
		}
		discard(entries...)
		if transient(err) {
			err = session.Ended(ctx, t.s.Err(), err)
		}
		return err
	}
}

// delete tries once to delete the znodes, all or none, by their release marks where they leave marks and the server lets us
// make them.
func (t *Ticket) delete(ctx context.Context, entries ...*entry) (err error) {
	var ops []session.Op
	for _, e := range entries {
		ops = append(ops, e.releaseOps()...)
	}
	b := t.s.Grouped()
	if len(ops) == 1 {
		b.Delete(entries[0].node, -1)
	} else {
		b.Multi(ops...)
	}
	err = b.Do(ctx)
	if len(ops) > len(entries) && err != nil && !isEnd(ctx, t.s, err) && !errors.Is(err, zk.ErrNoNode) && !transient(err) {
		// The server does not let us make the mark: we lack a permission or a quota, or a znode has its name.
		for _, e := range entries {
			e.queued = false // no further attempt has a mark
		}
		if session.IsOne(err, zk.ErrNoAuth, zk.ErrNodeExists) {
			return t.delete(ctx, entries...)
		}
		err = fmt.Errorf("%w (%w)", session.ErrNoReply, err) // another answer proves nothing: remove tries again
	}
	if err == nil {
		for _, e := range entries {
			e.renewed()
		}
	}
	return err
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

// releaseOps are what deletes the znode: by its mark where it has held, after queueing.
func (e *entry) releaseOps() []session.Op {
	gone := session.OpDelete{Path: e.node, Version: -1}
	if e.t.keep == nil || !e.queued || !e.q.Kind.Alone() {
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

// isEnd reports whether err says that ctx or the session has ended. An answer that came before does not, whatever has ended
// since.
func isEnd(ctx context.Context, s *session.Session, err error) bool {
	return err != nil && session.IsOne(err, ctx.Err(), s.Err())
}

// persist calls fn until it succeeds, or its error is final, or ctx, which is the session's, ends.
func persist(ctx context.Context, fn func() error) {
	for pause := firstPause; ctx.Err() == nil; pause = min(2*pause, lastPause) {
		err := fn()
		if err == nil || final(err) {
			return
		}
		if transient(err) {
			continue // the next attempt waits for a connection by itself
		}
		select { // a server in trouble must not be hammered
		case <-time.After(pause):
		case <-ctx.Done():
		}
	}
}

// Pauses after an answer of a server in trouble.
const (
	firstPause = 50 * time.Millisecond
	lastPause  = time.Second
)
