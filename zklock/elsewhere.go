package zklock

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/locker/internal/session/failure"
)

// Two packages of a program may have a Client each. A call for a lock that its own context holds
// through another Client would wait forever, as within one Client (reenter). But the paths of two
// Clients may be of two ensembles. A hold's znode has a random name: if our ensemble has a znode of
// that name, made by the same transaction, it is the same ensemble.

// elsewhere is a path of a lock that the caller holds through another Client.
type elsewhere struct {
	dir  string // of the lock
	hold *Hold
	node string // the hold's znode, below the lock's chroot
}

// heldElsewhere returns which of l's paths may be held by other Clients' holds to which ctx
// belongs.
func (l *lock) heldElsewhere(ctx context.Context) (all []elsewhere) {
	h, _ := ctx.Value(holdKey{}).(*Hold)
	for h != nil {
		if h.a.c != l.c && h.a.ended() == nil {
			all = append(all, l.pathsOf(h)...)
		}
		h, _ = h.caller.Value(holdKey{}).(*Hold)
	}
	return all
}

// pathsOf returns which of l's paths h has, if both are of one ensemble.
func (l *lock) pathsOf(h *Hold) (all []elsewhere) {
	nodes := h.Nodes()
	for i, path := range h.a.paths {
		for _, dir := range l.dirs {
			if l.c.chroot+dir == h.a.c.chroot+path {
				all = append(all, elsewhere{dir, h, dir + nodes[i][len(path):]})
			}
		}
	}
	return all
}

// besideOtherClients returns the error of the call w if its caller holds the lock through another
// Client: ErrDeadlock, or ErrConflict if that is another kind of lock. Two exceptions:
//   - a reader's try beside a reader of the caller's finds out by itself whether a writer waits;
//   - a semaphore's permits are added up: the context that besideOtherClients returns has the sum.
func (l *lock) besideOtherClients(ctx context.Context, w *waiting) (context.Context, error) {
	permits := 0
	for _, e := range l.heldElsewhere(w.caller) {
		same, err := l.isOurs(ctx, e)
		theirs := e.hold.a.info
		switch {
		case err != nil:
			return ctx, err
		case !same:
			continue
		case !contenderKind(theirs.Kind).Shares(contenderKind(w.info.Kind)):
			return ctx,
				fmt.Errorf("%w: the caller holds %s as a %s, through another Client", ErrConflict,
					e.dir, theirs.Kind)
		case w.info.Kind == KindSemaphore:
			permits += theirs.Permits
			continue
		case w.info.Try && w.info.Kind == KindRead && theirs.Kind == KindRead:
			continue
		}
		return ctx,
			fmt.Errorf("%w: %s is held through another Client of this program", ErrDeadlock, e.dir)
	}
	if permits == 0 {
		return ctx, nil
	}
	own, _ := ctx.Value(permitsKey{l.c, l.path}).(int)
	return context.WithValue(ctx, permitsKey{l.c, l.path}, own+permits), nil
}

// isOurs reports whether e's znode is at the ensemble of l. If a session ends meanwhile, it asks in
// the next one.
func (l *lock) isOurs(ctx context.Context, e elsewhere) (bool, error) {
	for {
		s, err := l.c.await(ctx)
		if err != nil {
			return false, err
		}
		stat, err := s.Exists(ctx, e.node)
		if errors.Is(err, zk.ErrNoNode) {
			// The server may lag behind the other Client's.
			b := s.Batch()
			b.Sync(e.dir)
			again := b.Exists(e.node)
			_ = b.Do(ctx) // the second result is what counts
			stat, err = again.Value, again.Err
		}
		switch {
		case err == nil:
			return Token(stat.Czxid) == e.hold.Token(), nil
		case failure.IsOne(err, zk.ErrNoNode, zk.ErrNoAuth):
			return false, nil
		case s.Err() == nil || ctx.Err() != nil:
			return false, err
		}
	}
}
