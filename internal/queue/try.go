package queue

import (
	"context"
	"errors"
	"math"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/locker/internal/session"
	"github.com/zklock/locker/internal/session/failure"
	"github.com/zklock/locker/recipe"
)

// Try returns a ticket that holds, as after Wait, or an error that matches ErrBusy and names the
// holder. It never waits for another contender. Other errors are those of Enter and Wait. After
// any error nothing is left behind.
//
// While a contender is in the way in any of the queues, Try costs two lists of each directory and a
// sync; in a semaphore, three lists and two reads of its size. Unless this session has read the
// holder's data lately, its name costs two more reads, for which Try waits at most WatchAfter.
//
// Try does not bound the wait for a server: ctx does. A follower that has lost its leader answers
// the sync only when it gives up being a follower, which takes it some ticks.
func Try(ctx context.Context, s *session.Session, queues ...Queue) (*Ticket, error) {
	t := newTicket(s, queues)
	t.try = true
	err := t.tryToHold(ctx)
	if err == nil {
		return t, nil
	}
	var busy *busyError
	if errors.As(err, &busy) && busy.line.Owner == "" { // our own place is given up by now
		ctx, cancel := context.WithTimeout(ctx, WatchAfter)
		defer cancel()
		describe := t.entries[0].q.Describe
		busy.line.Owner, _ = sharedIn(s).descriptions.who(ctx, describe, busy.line.Node)
	}
	return nil, err
}

// tryToHold is Try without the holder's name.
func (t *Ticket) tryToHold(ctx context.Context) error {
	if err := t.readSizes(ctx); err != nil {
		return err
	}
	if err := t.checkFree(ctx); err != nil {
		return err
	}
	if err := t.enter(ctx); err != nil {
		return err
	}
	err := t.Wait(ctx)
	if err != nil {
		// Another contender entered between the list and the create. Our place must not keep others
		// waiting. If ctx ends, the deletion goes on in the background.
		_ = t.Leave(ctx)
	}
	return err
}

// checkFree returns nil if a contender that entered now would hold. Otherwise it returns ErrBusy,
// or ErrConflict if another kind of lock uses a directory.
//
// The connected server may lag behind, and still list a contender whose release another client has
// seen acknowledged. So before checkFree says that a lock is in use, it lists again behind a sync,
// in one more round trip. (A sync at the leader itself is no full barrier: session.Session.Sync.)
// If the lock is free by the first list, the list behind our own create decides, and costs nothing
// more.
func (t *Ticket) checkFree(ctx context.Context) error {
	err := t.checkLists(ctx, t.s.Grouped())
	if !failure.IsOne(err, ErrBusy, ErrConflict) {
		return err
	}
	b := t.s.Grouped()
	sync := b.Sync(t.entries[0].q.Dir) // for all directories: a server syncs as a whole
	err = t.checkLists(ctx, b)
	if sync.Err != nil {
		return sync.Err
	}
	if !errors.Is(err, ErrBusy) || !t.entries[0].q.Kind.Sized() {
		return err
	}
	// The size may have been an old one too.
	if err := t.readSizes(ctx); err != nil {
		return err
	}
	return t.checkLists(ctx, t.s.Grouped())
}

// checkLists lists each directory, by requests that it adds to b, and judges by the lists. It
// returns nil, or an error as checkFree.
func (t *Ticket) checkLists(ctx context.Context, b *session.Batch) error {
	lists := t.addLists(b)
	_ = b.Do(ctx) // each result has its own error
	for i, e := range t.entries {
		// A missing directory has no children.
		if err := lists[i].Err; err != nil && !errors.Is(err, zk.ErrNoNode) {
			return err
		}
		v := recipe.Foresee(lists[i].Value.Names, e.q.Kind, e.q.Permits, e.size)
		if err := e.q.conflict(ctx, t.s, v.OtherKinds, math.MaxInt64); err != nil {
			return err
		}
		if !v.Holds {
			return &busyError{Line{Ahead: v.Ahead, Node: e.q.Dir + "/" + shortened(v.First)}}
		}
	}
	return nil
}
