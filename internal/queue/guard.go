package queue

import (
	"container/list"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/locker/internal/session"
)

// Guard calls fn, once, when the ticket, which holds, is lost: with ErrGone when another client has deleted one of its
// znodes, as a watch, a heartbeat, or Missing reports; with the cause of the session's end when that ends. fn is not called
// once Leave or Lose has begun, but a call that has begun may still run then. Guard does not block, and calls fn in another
// goroutine.
//
// The znodes are watched from WatchAfter on, unless Wait watches them already: a shorter hold costs nothing.
func (t *Ticket) Guard(fn func(error)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.life != entered {
		return
	}
	t.life, t.onLoss = guarded, fn
	if slices.ContainsFunc(t.entries, func(e *entry) bool { return e.ownWatch == nil }) {
		sharedIn(t.s).toWatch.later(t)
	} else {
		for _, e := range t.entries {
			t.followLocked(e)
		}
	}
	t.keep.OnMissing(t.Missing)
	t.unhook = context.AfterFunc(t.s.Context(), func() { t.reportLoss(t.s.Err()) })
}

// followLocked has Missing called when e's znode is deleted, and watches the znode again when its data were set (as Curator's
// Revoker does).
func (t *Ticket) followLocked(e *entry) {
	e.ownWatch.Then(func(event zk.EventType) {
		if event == zk.EventNodeDeleted {
			t.Missing(e.node)
		} else {
			watchOwn(t.s.Context(), t)
		}
	})
}

// Missing reports that node was found missing. If it is the ticket's, the ticket is lost.
func (t *Ticket) Missing(node string) {
	if slices.Contains(t.Nodes(), node) {
		t.s.Gone(node) // the session does not count it any more
		t.reportLoss(ErrGone)
	}
}

// reportLoss reports the loss, once.
func (t *Ticket) reportLoss(why error) {
	t.mu.Lock()
	if t.life != guarded {
		t.mu.Unlock()
		return
	}
	t.endLocked(lost)
	fn := t.onLoss
	t.mu.Unlock()
	fn(why)
	t.keep.Release() // not before fn has ended the hold: the lease protects it until then
}

// Lose says that the hold has ended otherwise than by its release: Guard reports no loss any more, and the lease is not
// kept. Znodes that still exist stay until Leave, which need not be called.
func (t *Ticket) Lose(error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.life == guarded {
		t.endLocked(lost)
	}
	if t.life == lost {
		t.keep.Release()
	}
}

// endLocked ends what Guard began, except the lease, which its callers, or leave, release later.
func (t *Ticket) endLocked(to life) {
	t.life = to
	sharedIn(t.s).toWatch.forget(t)
	if t.unhook != nil {
		t.unhook()
	}
}

// gone reports whether the watch on our own znode has fired with its deletion. It does not block.
func (e *entry) gone() bool { return e.ownWatch != nil && e.ownWatch.Event() == zk.EventNodeDeleted }

// unwatched reports whether our own znode has to be watched: there is no watch yet, or it has fired.
func (e *entry) unwatched() bool { return e.ownWatch == nil || hasFired(e.ownWatch) }

// notified reports whether the server certainly notifies us of our own znode's deletion: we may read the znode.
func (e *entry) notified() bool { return e.t.s.Grants(e.q.ACL, zk.PermRead) }

// unwatch gives up the watch on our own znode. The deletion ends it, unless we may not read the znode and are not notified.
func (e *entry) unwatch() {
	if e.ownWatch != nil && !e.notified() {
		e.ownWatch.Close()
	}
}

// toWatch has the tickets of one session that hold and did not wait, until their own znodes are watched, WatchAfter later.
// They share a timer and a goroutine: a thousand locks taken at once would otherwise need a thousand of each.
type toWatch struct {
	s *session.Session

	mu      sync.Mutex // guards what follows, and the tickets' inToWatch and dueAt
	busy    bool       // a timer runs, or a goroutine watches what was due
	tickets list.List  // in the order in which they are due
}

// later has the znodes of t watched WatchAfter from now, unless forget comes first.
func (w *toWatch) later(t *Ticket) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if t.inToWatch != nil {
		return
	}
	t.inToWatch, t.dueAt = w.tickets.PushBack(t), time.Now().Add(WatchAfter)
	if !w.busy {
		w.busy = true
		time.AfterFunc(WatchAfter, w.wake)
	}
}

func (w *toWatch) forget(t *Ticket) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.forgetLocked(t)
}

func (w *toWatch) forgetLocked(t *Ticket) {
	if t.inToWatch != nil {
		w.tickets.Remove(t.inToWatch)
		t.inToWatch = nil
	}
}

func (w *toWatch) wake() {
	if due := w.take(); len(due) > 0 {
		w.s.Go(func(ctx context.Context) {
			for ; len(due) > 0; due = w.take() {
				watchOwn(ctx, due...)
			}
		})
	}
}

// watchedAtOnce bounds the tickets whose znodes are watched together.
const watchedAtOnce = 1000

// take removes and returns the tickets that are due. If none is, it sets a timer for the next one.
func (w *toWatch) take() (due []*Ticket) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for w.tickets.Len() > 0 && len(due) < watchedAtOnce {
		t := w.tickets.Front().Value.(*Ticket)
		if rest := time.Until(t.dueAt); rest > 0 {
			if len(due) == 0 {
				time.AfterFunc(rest, w.wake)
			}
			return due
		}
		w.forgetLocked(t)
		due = append(due, t)
	}
	w.busy = len(due) > 0
	return due
}

// watchOwn watches those of the tickets' own znodes that are not watched, in one request. The tickets are of one session.
func watchOwn(ctx context.Context, tickets ...*Ticket) {
	s := tickets[0].s
	var own []*entry
	var nodes []string
	for _, t := range tickets {
		t.mu.Lock()
		for _, e := range t.entries {
			if t.life != left && e.unwatched() {
				own, nodes = append(own, e), append(nodes, e.node)
			}
		}
		t.mu.Unlock()
	}
	ws, err := s.WatchAll(ctx, nodes...)
	for i, e := range own {
		if err == nil {
			e.watched(ws[i])
		} else if ctx.Err() == nil { // a server in trouble must not be hammered
			sharedIn(s).toWatch.later(e.t)
		}
	}
}

// watched notes the watch on the znode.
func (e *entry) watched(w *session.Watch) {
	t := e.t
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.life == left || !e.unwatched() { // another call was first
		w.Close()
		return
	}
	e.ownWatch = w
	t.followLocked(e)
}
