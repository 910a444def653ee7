package zklock

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/locker/internal/trusted"
	"github.com/zklock/locker/recipe"
	"github.com/zklock/locker/session"
)

// Observe yields who leads now, and then every change, once and in order: (leader, nil) for a new leader or a new value
// of the same one, and (zero, ErrNoLeader) when there is no leader, always between two leaders. If values change faster
// than they can be read, only the last is yielded; one that the leader had to send again, because a reply was lost, may be
// yielded twice. It survives disconnects and sessions that end, and costs the
// candidates nothing: an observer watches the leader's znode, and the list only while there is no leader.
//
// It ends with ctx, or when nothing more can be observed (ErrClosed, ErrPath); the last pair then has that error. Each
// use of the sequence starts over.
func (e *Election) Observe(ctx context.Context) iter.Seq2[Leader, error] {
	use(ctx, e)
	return func(yield func(Leader, error) bool) {
		if e.err != nil {
			yield(Leader{}, e.fail("observe", e.err))
			return
		}
		o := observer{e: e, yield: yield}
		for !o.stopped {
			s, err := e.c.Session(ctx)
			if err == nil {
				err = o.watch(ctx, s)
			}
			switch {
			case o.stopped:
				return
			case e.c.ctx.Err() != nil:
				err = ErrClosed
			case ctx.Err() != nil && !errors.Is(err, ctx.Err()):
				err = session.Waited(ctx, trusted.Caller{}, err)
			case ctx.Err() != nil, s == nil:
			case s.Err() != nil:
				continue // in the next session
			case !hopeless(err):
				e.c.log.Warn("observing an election failed, and goes on", "path", e.path, "error", err)
				e.c.rest(ctx, time.Second)
				continue
			}
			yield(Leader{}, e.fail("observe", err))
			return
		}
	}
}

// observer is one use of Observe.
type observer struct {
	e       *Election
	yield   func(Leader, error) bool
	stopped bool // yield has returned false

	began bool   // something has been yielded
	node  string // of the leader that was yielded last; "" for none
	mzxid int64  // of its value
}

// leader yields l if it is news.
func (o *observer) leader(l Leader, mzxid int64) {
	if o.node != "" && o.node != l.Node {
		o.none()
	}
	if o.stopped || o.node == l.Node && o.mzxid == mzxid {
		return
	}
	o.began, o.node, o.mzxid = true, l.Node, mzxid
	o.stopped = !o.yield(l, nil)
}

// none yields "no leader" if it is news.
func (o *observer) none() {
	if o.stopped || o.began && o.node == "" {
		return
	}
	o.began, o.node = true, ""
	o.stopped = !o.yield(Leader{}, ErrNoLeader)
}

// watch observes through one session, until that ends, ctx ends, or yield has had enough.
func (o *observer) watch(ctx context.Context, s *session.Session) error {
	for !o.stopped {
		first, err := o.e.first(ctx, s)
		if err == nil && first == "" {
			err = o.await(ctx, s)
		}
		for exists := first != ""; exists && !o.stopped; {
			exists, err = o.look(ctx, s, first)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// look yields the leader's value and waits for the next change. False: there is no such znode any more, or no watch.
func (o *observer) look(ctx context.Context, s *session.Session, name string) (exists bool, err error) {
	node := o.e.path + "/" + name
	w, err := s.WatchExisting(ctx, node)
	if err != nil {
		return false, unreadable(err)
	}
	defer w.Close() // also when yield panics
	if w.Exists {
		var l Leader
		var stat zk.Stat
		if l, stat, err = o.e.read(ctx, s, name); err == nil {
			o.leader(l, stat.Mzxid)
		}
		if err = unreadable(err); err == nil && !o.stopped {
			// Where the value was not too long to be read, the znode may be read, and the watch tells of its end.
			err = sleep(ctx, s, w, stat.DataLength <= recipe.MaxData)
		}
	}
	switch {
	case err != nil && !errors.Is(err, zk.ErrNoNode):
		return false, err
	case err != nil || !w.Exists || !o.stopped && w.Event() == zk.EventNodeDeleted:
		if o.node == node {
			o.none()
		}
		return false, nil
	}
	return true, nil
}

// unreadable makes an error that says that a candidate may not be read one that is not hopeless: the candidate may be a
// neighbour's, who has chosen its access list, and the next one may be readable.
func unreadable(err error) error {
	if errors.Is(err, zk.ErrNoAuth) {
		return fmt.Errorf("the leader's znode may not be read: %v", err) //nolint:errorlint // as text: it is not hopeless
	}
	return err
}

// await yields "no leader" and waits for a candidate, or for the directory.
func (o *observer) await(ctx context.Context, s *session.Session) error {
	o.none()
	if o.stopped {
		return nil
	}
	w, names, _, err := s.WatchChildren(ctx, o.e.path)
	exists := err == nil
	if errors.Is(err, zk.ErrNoNode) {
		if w, err = s.Watch(ctx, o.e.path); err == nil && w.Exists {
			w.Close()
			return nil
		}
	}
	if err != nil {
		return err
	}
	defer w.Close()
	if len(recipe.Family(names, recipe.Lock)) > 0 {
		return nil
	}
	return sleep(ctx, s, w, exists)
}

// observeAgain is how often an observer looks by itself where no watch may fire: at a znode that it may be unable to
// read, since its data are too long to be read, and at a directory that does not exist.
const observeAgain = 10 * time.Second

// hidden is how often it looks at a znode that it could read: the owner may have hidden it since, and then the
// observer is not notified of its end.
const hidden = time.Minute

// sleep waits until w fires, or until it is time to look again.
func sleep(ctx context.Context, s *session.Session, w *session.Watch, readable bool) error {
	pause := observeAgain
	if readable {
		pause = hidden
	}
	again := time.NewTimer(pause)
	defer again.Stop()
	select {
	case <-w.Fired():
		return nil
	case <-again.C:
		return nil
	case <-s.Done():
		return s.Err()
	case <-ctx.Done():
		return session.Waited(ctx, trusted.Caller{}, errors.New("waiting for a change of leader"))
	}
}

// read returns the candidate name as a leader, and the Stat of its znode.
func (e *Election) read(ctx context.Context, s *session.Session, name string) (Leader, zk.Stat, error) {
	n, err := recipe.ReadChild(ctx, s, e.path, name)
	if err != nil {
		return Leader{}, zk.Stat{}, err
	}
	k := newContender(e.path, name, n, true)
	return Leader{Value: k.Data, Contender: k}, n.Stat, nil
}
