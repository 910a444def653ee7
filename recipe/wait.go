package recipe

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/locker/internal/trusted"
	"github.com/zklock/locker/session"
)

// WatchAfter is how long a wait or a hold lasts before it is worth further reads: a waiter reads who holds, for messages,
// and whether it may read its predecessor; a holder that did not wait watches its own znode.
const WatchAfter = 300 * time.Millisecond

const (
	// A waiter that may not read its predecessor lists again within max(session timeout / blindPart, WatchAfter).
	blindPart = 8
	// lookAgainMost bounds a waiter's pause between two looks at a readable predecessor; the first is the session timeout.
	lookAgainMost = time.Minute
)

// Wait returns nil when the ticket holds: it is first in every queue, or its permits are free; its znodes exist; and the session's lease is confirmed, and kept until Leave. It keeps its place across
// reconnections.
//
// It returns an error when ctx ends (ctx's, with the place in line), when the session ends (why it ended), or when a znode
// is gone (ErrGone); of a semaphore also session.ErrConfig or ErrDeadlock, as Enter, when its size falls below what the call
// asks for. After any error the ticket still has what is left of its place: call Leave.
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
			if w.timer != nil {
				w.timer.Stop()
			}
			if err != nil {
				return err
			}
			// Our znode in another queue may have been deleted meanwhile, unnoticed if unreadable: list all queues again.
			again = again || len(t.entries) > 1 && w.pred != "" && !e.notified()
		}
	}
	return t.hold(ctx)
}

// hold makes a ticket that is first in every queue hold: it retains the session.
func (t *Ticket) hold(ctx context.Context) error {
	keep, err := t.s.ForLocks(trusted.Caller{}).Retain(ctx, t.Nodes()...)
	if errors.Is(err, zk.ErrNoNode) {
		return fmt.Errorf("%w: %w", ErrGone, err)
	}
	if err != nil {
		return err
	}
	for _, e := range t.entries {
		if e.gone() { // meanwhile
			keep.Release()
			return ErrGone
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.keep = keep
	for _, e := range t.entries {
		e.q.Queued, e.q.Retried = nil, nil // a hold keeps nothing of the call that got it
	}
	return nil
}

// waiter waits for one entry of a ticket to be first.
type waiter struct {
	t *Ticket
	e *entry

	woken  chan struct{} // receives when a watch of sleep's, or on an own znode of the ticket, has fired; capacity 1
	timer  *time.Timer   // for readMore; nil before the first sleep
	pred   string        // the predecessor's name; "" of a semaphore's head, which any release may wake
	blind  bool          // we may not read the predecessor, and so are not notified of its deletion
	looked bool          // the predecessor could be read when we last looked
	pause  time.Duration // between two lists when blind, else between two looks at it

	mark     *session.Watch // on the predecessor's release mark; nil: none
	markWoke bool           // it has woken us once

	largest  int   // the semaphore's largest size ever
	dataZxid int64 // the Mzxid of the directory's data, as read with the size
}

func (w *waiter) wait(ctx context.Context) error {
	defer w.forgetMark()
	if w.e.q.Kind == Permits {
		return w.e.explain(ctx, w.untilRoom(ctx))
	}
	return w.e.explain(ctx, w.untilFirst(ctx))
}

// untilFirst waits until no contender is in the way.
func (w *waiter) untilFirst(ctx context.Context) error {
	for {
		v, err := w.decide(ctx)
		if err != nil {
			return err
		}
		if v.Holds {
			return w.checkOwn(ctx)
		}
		if w.t.try {
			return &busyError{w.e.line}
		}
		w.e.queued = true
		v.First = "" // place has noted it; a neighbour's name may be long, and is not kept while we wait
		next, err := w.waitForPred(ctx, v)
		if next {
			w.place(Verdict{First: w.e.name()}) // first in line
			return nil
		}
		if err == nil {
			err = w.e.list(ctx)
		}
		if err != nil {
			return err
		}
	}
}

// decide decides by the latest list, and notes the place in line. ErrGone: our own znode is not in the list.
func (w *waiter) decide(ctx context.Context) (Verdict, error) {
	v, err := w.e.decide(ctx)
	if err != nil {
		return v, err
	}
	if !v.Present {
		return v, ErrGone
	}
	w.place(v)
	return v, nil
}

func hasFired(w *session.Watch) bool { return w != nil && w.Event() != 0 }

// readAfter has sleep call readMore after d.
func (w *waiter) readAfter(d time.Duration) {
	if w.timer == nil {
		w.timer = time.NewTimer(d)
	} else {
		w.timer.Reset(d)
	}
}

// sleep returns nil when pred or other, each of which may be nil, has fired, or when the directory has to be listed again;
// an error when ctx or the session ends, or an own znode is gone. After WatchAfter it calls readMore.
func (w *waiter) sleep(ctx context.Context, pred, other *session.Watch) error {
	for _, watch := range []*session.Watch{pred, other} {
		if watch != nil {
			watch.Wake(w.woken)
		}
	}
	if w.timer == nil {
		w.readAfter(WatchAfter)
	}
	for !hasFired(pred) && !hasFired(other) { // before the timer, which may have run as well
		if err := w.checkOwn(ctx); err != nil {
			return err
		}
		select {
		case <-w.woken:
		case <-w.timer.C:
			if relist, err := w.readUntil(ctx, pred); relist || err != nil {
				return err
			}
		case <-w.t.s.Done():
			return w.t.s.Err()
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// readUntil is readMore, but ends when pred has fired: a contender whose turn comes does not wait for the reads.
func (w *waiter) readUntil(ctx context.Context, pred *session.Watch) (relist bool, err error) {
	reading, stop := context.WithCancel(ctx)
	defer stop()
	if pred != nil {
		pred.Then(func(zk.EventType) { stop() })
	}
	relist, err = w.readMore(reading)
	if reading.Err() != nil && ctx.Err() == nil {
		w.readAfter(WatchAfter) // the event may not have been the predecessor's deletion: then read again later
		return false, nil
	}
	return relist, err
}

// readMore makes the reads that a longer wait is worth: for each predecessor, and from time to time again, since its owner
// may revoke our permission to read it. relist: the directory has to be listed, because the predecessor is gone or may not
// be read. (Servers notify a deletion only to those that may read the znode, and some refuse only a read, not the watch.)
func (w *waiter) readMore(ctx context.Context) (relist bool, err error) {
	if w.blind {
		w.pause = min(2*w.pause, max(WatchAfter, w.t.s.Timeout()/blindPart))
		w.readAfter(w.pause)
		return true, nil
	}
	readable := false
	if !w.looked {
		w.pause = WatchAfter // for a holder that is new to us the pauses begin anew
		readable = w.describeHolder(ctx)
	}
	if w.pred == "" {
		return false, nil
	}
	if !readable {
		err = tryToRead(ctx, w.t.s, w.e.q.Dir, w.pred)
		if err != nil && w.t.isEnd(ctx, err) {
			return false, err
		}
	}
	if w.looked = err == nil; w.looked {
		w.pause = max(min(2*w.pause, lookAgainMost), w.t.s.Timeout())
	} else {
		w.blind = !errors.Is(err, zk.ErrNoNode)
		w.pause = WatchAfter
	}
	w.readAfter(w.pause)
	return !w.looked, nil
}

// describeHolder finds out who holds, for messages. read: that has shown that we may read the predecessor.
func (w *waiter) describeHolder(ctx context.Context) (read bool) {
	e := w.e
	if e.line.Ahead == 0 {
		return false
	}
	who, read := sharedIn(w.t.s).descriptions.who(ctx, e.q.Describe, e.line.Holder)
	if who != "" && who != e.line.Who {
		e.line.Who = who
		e.q.queued(e.line)
	}
	return read && e.line.Holder == e.q.Dir+"/"+w.pred
}

// place notes the place in line, and reports a change of it.
func (w *waiter) place(v Verdict) {
	e := w.e
	line := Line{Ahead: v.Ahead, Holder: e.node}
	if v.First != e.name() {
		line.Holder = e.q.Dir + "/" + kept(v.First)
	}
	switch {
	case line.Holder != e.line.Holder:
		w.looked = false
		if v.Ahead > 0 {
			w.readAfter(WatchAfter) // to find out who that is
		}
	case v.Ahead == e.line.Ahead:
		return
	default:
		line.Who = e.line.Who
	}
	e.line = line
	if v.Ahead > 0 {
		e.q.queued(line)
	}
}

// explain adds the place in line to the error of a wait that the end of ctx has ended.
func (e *entry) explain(ctx context.Context, err error) error {
	switch {
	case err == nil || ctx.Err() == nil || isOne(err, ErrGone, e.t.s.Err()) || e.line.Ahead == 0:
		return err // if it waited for anything but its turn, err says so
	case err == ctx.Err(): //nolint:errorlint // bare: there is nothing more in it
		return session.Waited(ctx, trusted.Caller{}, LineError{e.line})
	}
	return fmt.Errorf("%w, %w", err, LineError{e.line})
}
