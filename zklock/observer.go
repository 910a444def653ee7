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

// observer is one use of the sequence that Observe returns.
type observer struct {
	e       *Election
	yield   func(Leader, error) bool
	stopped bool // yield has returned false

	last     *shown        // what was yielded last; nil before anything was
	interval time.Duration // before the latest poll: see queue.NextPoll
}

// shown identifies what was yielded: the znode of a leader, and the write that set its value. Its
// zero value says that there is no leader.
type shown struct {
	node  string
	mzxid int64
}

// watch observes through one session, until that or ctx ends, or yield returns false.
func (o *observer) watch(ctx context.Context, s *session.Session) error {
	for !o.stopped {
		first, err := o.e.first(ctx, s)
		switch {
		case err != nil:
		case first == "":
			err = o.awaitCandidate(ctx, s)
		default:
			err = o.follow(ctx, s, first)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// awaitCandidate yields "no leader" and waits for a candidate, or for the directory.
func (o *observer) awaitCandidate(ctx context.Context, s *session.Session) error {
	o.show(Leader{}, 0)
	if o.stopped {
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

// follow yields the value of the first in line, called name, and its changes. It returns nil when
// it is time to list the candidates.
func (o *observer) follow(ctx context.Context, s *session.Session, name string) error {
	for !o.stopped {
		again, err := o.followOnce(ctx, s, name)
		if errors.Is(err, zk.ErrNoAuth) {
			// Not hopeless: a neighbour may have made this candidate with its own access list; the
			// next may be readable.
			return fmt.Errorf("the leader's znode may not be read: %v", err) //nolint:errorlint // as text
		}
		if err != nil || !again {
			return err
		}
	}
	return nil
}

// followOnce yields the value of the first in line, called name, if it leads, and waits for a
// change. again is true if the znode has changed and still exists. Otherwise it is time to list the
// candidates.
func (o *observer) followOnce(
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
		err = o.showAndSleep(ctx, s, name, w)
	}
	if err != nil && !errors.Is(err, zk.ErrNoNode) {
		return false, err
	}
	isGone := err != nil || w.Event() == zk.EventNodeDeleted
	if isGone && o.last != nil && o.last.node == node {
		o.show(Leader{}, 0)
	}
	hasChanged := w.Event() != 0
	return hasChanged && !isGone, nil
}

// showAndSleep reads the first in line, called name, yields its value or that there is no leader,
// and sleeps until w fires or it is time to poll.
func (o *observer) showAndSleep(
	ctx context.Context, s *session.Session, name string, w *session.Watch,
) error {
	first, err := o.e.read(ctx, s, name)
	if err != nil {
		return err
	}
	if first.leads {
		o.show(first.Leader, first.mzxid)
	} else {
		o.show(Leader{}, 0)
	}
	if o.stopped {
		return nil
	}
	return o.sleep(ctx, s, w)
}

// show yields l, whose value was set by the write mzxid, unless it was yielded last. The zero
// Leader says that there is none: show yields that with ErrNoLeader, and also between two leaders.
func (o *observer) show(l Leader, mzxid int64) {
	now := shown{l.Node, mzxid}
	if o.last != nil {
		if *o.last == now {
			return
		}
		isNextLeader := o.last.node != "" && now.node != "" && o.last.node != now.node
		if isNextLeader {
			o.show(Leader{}, 0)
		}
	}
	if o.stopped {
		return
	}
	var err error
	if now.node == "" {
		err = ErrNoLeader
	}
	o.last = &now
	o.stopped = !o.yield(l, err)
}

// sleep sleeps until w fires or it is time to poll.
func (o *observer) sleep(ctx context.Context, s *session.Session, w *session.Watch) error {
	interval := queue.NextPoll(o.interval, s.Timeout())
	fired := make(chan struct{}, 1)
	w.Wake(fired)
	select {
	case <-fired:
		o.interval = 0
	case <-time.After(interval):
		o.interval = interval
	case <-s.Done():
		return s.Err()
	case <-ctx.Done():
		return o.e.c.ended(ctx, errors.New("waiting for a change of leader"))
	}
	return nil
}
