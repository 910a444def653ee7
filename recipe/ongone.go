package recipe

import (
	"context"
	"errors"
	"path"
	"sync"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/locker/session"
)

// OnGone has fn called once, in a goroutine of the session's, when the znode is deleted by whomever, Leave included.
// It watches the znode, if Wait does not yet, and blocks for that one round trip at most. ErrGone: it is not there.
// To be called once, after Wait.
func (t *Ticket) OnGone(ctx context.Context, fn func()) error {
	w := t.own
	if w == nil {
		var err error
		if w, err = t.watchOwn(ctx); err != nil {
			return err
		}
	}
	t.follow(w, fn)
	return nil
}

// follow watches on when somebody only set the znode's data.
func (t *Ticket) follow(w *session.Watch, fn func()) {
	t.followed.set(w)
	w.Then(func(e zk.EventType) {
		if e == zk.EventNodeDeleted {
			fn()
			return
		}
		next, err := t.watchOwn(t.s.Context())
		switch {
		case err == nil:
			t.follow(next, fn)
		case errors.Is(err, ErrGone):
			fn()
		} // else the session is over, which its holder hears of anyway
	})
}

// watchOwn watches the own znode alone, and returns ErrGone when it is not there.
func (t *Ticket) watchOwn(ctx context.Context) (*session.Watch, error) {
	ws, err := t.s.WatchAll(ctx, t.node)
	if err != nil {
		return nil, err
	}
	if !ws[0].Exists {
		return nil, ErrGone
	}
	if err := t.same(ctx); err != nil {
		ws[0].Close()
		return nil, err
	}
	return ws[0], nil
}

// same returns ErrGone when the own znode is gone, or another one has its name: one of a neighbour's, who has seen ours
// go before we did. A watch and a heartbeat know a znode by its name alone; so it is asked for when a watch on it was set
// anew, behind which no deletion is missed. Nil also when it may not be asked for.
func (t *Ticket) same(ctx context.Context) error {
	nodes, err := t.s.StatsBelow(ctx, t.q.Dir, []string{path.Base(t.node)})
	switch {
	case err != nil:
		return err
	case errors.Is(nodes[0].Err, zk.ErrNoNode):
		return ErrGone
	case nodes[0].Err == nil && nodes[0].Stat.EphemeralOwner != t.s.ID():
		return ErrGone
	}
	return nil
}

// Settled reports whether the own znode is watched already, so that OnGone costs nothing.
func (t *Ticket) Settled() bool { return t.own != nil }

// Gone reports whether Wait's watch has told that the own znode is gone. It does not block.
func (t *Ticket) Gone() bool { return hasFired(t.own) && t.own.Event() == zk.EventNodeDeleted }

// unwatch takes the watch on the own znode, which has been deleted or will be, off the session's table, where it has fired unless
// the znode may not be read.
func (t *Ticket) unwatch() {
	if t.s.Grants(t.q.ACL, zk.PermRead) {
		return
	}
	if t.own != nil {
		t.own.Close()
	}
	t.followed.close()
}

// followed is the watch by which OnGone follows the own znode, until that is given up. Nil follows nothing.
type followed struct {
	mu   sync.Mutex // guards what follows
	w    *session.Watch
	over bool
}

func (f *followed) set(w *session.Watch) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.w = w; f.over {
		w.Close()
	}
}

func (f *followed) close() {
	if f == nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.over = true; f.w != nil {
		f.w.Close()
	}
}
