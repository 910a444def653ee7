package zklock

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-zookeeper/zk"
)

// Two packages of a program may have a Client each. A call for a lock that its own context holds
// through another Client would wait for ever, as within one Client (reenter). But the paths of two
// Clients may be of two ensembles. A hold's znode has a random name: if our ensemble has a znode of
// that name, made by the same transaction, it is the same ensemble.

// elsewhere is a path of a lock that the caller holds through another Client.
type elsewhere struct {
	dir  string // of the lock
	hold *Hold
	node string // the hold's znode, below the lock's chroot
}

// heldElsewhere returns which of l's paths may be held by other Clients' holds to which ctx belongs.
func (l *lock) heldElsewhere(ctx context.Context) (all []elsewhere) {
	h, _ := ctx.Value(holdKey{}).(*Hold)
	for h != nil {
		if h.a.c != l.c && h.a.ended() == nil {
			all = append(all, l.pathsOf(h)...)
		}
		h, _ = h.a.info.Context.Value(holdKey{}).(*Hold)
	}
	return all
}

// pathsOf returns which of l's paths h has, if both are of one ensemble.
func (l *lock) pathsOf(h *Hold) (all []elsewhere) {
	nodes := h.Nodes()
	for i, path := range h.a.paths() {
		for _, dir := range l.dirs {
			if l.c.chroot+dir == h.a.c.chroot+path {
				all = append(all, elsewhere{dir, h, dir + nodes[i][len(path):]})
			}
		}
	}
	return all
}

// besideOtherClients returns ErrDeadlock if the caller of w holds the lock through another Client. A
// semaphore's permits are added up instead: the context that besideOtherClients returns has the sum.
func (l *lock) besideOtherClients(ctx context.Context, w *waiting) (context.Context, error) {
	permits := 0
	for _, e := range l.heldElsewhere(w.caller) {
		same, err := l.isOurs(ctx, e)
		switch {
		case err != nil:
			return ctx, err
		case !same:
			continue
		case w.info.Kind != KindSemaphore:
			return ctx, fmt.Errorf("%w: %s is held through another Client of this program", ErrDeadlock, e.dir)
		}
		permits += e.hold.a.info.Permits
	}
	if permits == 0 {
		return ctx, nil
	}
	own, _ := ctx.Value(permitsKey{l.c, l.path}).(int)
	return context.WithValue(ctx, permitsKey{l.c, l.path}, own+permits), nil
}

// isOurs reports whether e's znode is at the ensemble of l.
func (l *lock) isOurs(ctx context.Context, e elsewhere) (bool, error) {
	s, err := l.c.await(ctx)
	if err != nil {
		return false, err
	}
	stat, err := s.Exists(ctx, e.node)
	if errors.Is(err, zk.ErrNoNode) || errors.Is(err, zk.ErrNoAuth) {
		return false, nil
	}
	return err == nil && Token(stat.Czxid) == e.hold.Token(), err
}
