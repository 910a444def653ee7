package zklock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/locker/internal/queue"
	"github.com/zklock/locker/internal/session"
	"github.com/zklock/locker/recipe"
)

type observer struct {
	e       *Election
	yield   func(Leader, error) bool
	stopped bool // yield has returned false

	pause time.Duration // before the latest poll: see queue.NextPoll

	node  string // of the leader that was yielded last; "" for none
	mzxid int64  // of its value; 0 for none; -1: nothing has been yielded
}

// watch observes through one session, until that or ctx ends, or yield returns false.
func (o *observer) watch(ctx context.Context, s *session.Session) error {
	for !o.stopped {
		first, err := o.e.first(ctx, s)
		if err == nil && first == "" {
			err = o.await(ctx, s)
		}
		for again := first != ""; again && !o.stopped; {
			if again, err = o.look(ctx, s, first); errors.Is(err, zk.ErrNoAuth) {
				// Not hopeless: a neighbour may have made this candidate with its own access list;
				// the next may be readable.
				err = fmt.Errorf("the leader's znode may not be read: %v", err) //nolint:errorlint // as text
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// await yields "no leader" and waits for a candidate, or for the directory.
func (o *observer) await(ctx context.Context, s *session.Session) error {
	if o.show(Leader{}, 0); o.stopped {
		return nil
	}
	w, names, _, err := s.WatchChildren(ctx, o.e.path)
	listed := err == nil
	if errors.Is(err, zk.ErrNoNode) {
		w, err = s.Watch(ctx, o.e.path)
	}
	if err != nil {
		return err
	}
	defer w.Close()
	if w.Exists != listed || len(recipe.Family(names, recipe.Lock)) > 0 {
		// the directory was made, or has a candidate, by now
		return nil
	}
	return o.sleep(ctx, s, w)
}

// look yields the value of the first in line, called name, if it leads, and waits for the next
// change. If the znode has changed and still exists, again is true: look at it again. Otherwise it
// is time to list the candidates.
func (o *observer) look(
	ctx context.Context, s *session.Session, name string,
) (again bool, err error) {
	node := o.e.path + "/" + name
	ws, err := s.WatchAll(ctx, node)
	if err != nil {
		return false, err
	}
	w := ws[0]
	defer w.Close() // also when yield panics
	if w.Exists {
		var c firstInLine
		if c, err = o.e.read(ctx, s, name); err == nil {
			if o.showFirst(c); !o.stopped {
				err = o.sleep(ctx, s, w)
			}
		}
	}
	gone := err != nil || w.Event() == zk.EventNodeDeleted
	switch {
	case err != nil && !errors.Is(err, zk.ErrNoNode):
		return false, err
	case gone && o.node == node:
		o.show(Leader{}, 0)
	}
	return w.Event() != 0 && !gone, nil
}

// showFirst yields the first in line if it leads, and otherwise that there is no leader.
func (o *observer) showFirst(c firstInLine) {
	if c.leads {
		o.show(c.Leader, c.mzxid)
	} else {
		o.show(Leader{}, 0)
	}
}

// show yields l (zero: there is no leader) unless it was yielded last. Between two leaders comes
// zero.
func (o *observer) show(l Leader, mzxid int64) {
	var err error
	switch {
	case l.Node == "":
		err = ErrNoLeader
	case o.node != "" && o.node != l.Node:
		o.show(Leader{}, 0)
	}
	if o.stopped || o.node == l.Node && o.mzxid == mzxid {
		return
	}
	o.node, o.mzxid = l.Node, mzxid
	o.stopped = !o.yield(l, err)
}

// sleep waits until w fires, or until it is time to look without an event.
func (o *observer) sleep(ctx context.Context, s *session.Session, w *session.Watch) error {
	pause, fired := queue.NextPoll(o.pause, s.Timeout()), make(chan struct{}, 1)
	w.Wake(fired)
	select {
	case <-fired:
		o.pause = 0
	case <-time.After(pause):
		o.pause = pause
	case <-s.Done():
		return s.Err()
	case <-ctx.Done():
		return o.e.c.ended(ctx, errors.New("waiting for a change of leader"))
	}
	return nil
}
