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

// besideOtherClients returns an error if the caller of w holds the lock through another Client, and
// w would wait for that hold: see mayAskBeside. Permits of a semaphore are added up instead: the
// context that besideOtherClients returns has the sum.
func (l *lock) besideOtherClients(ctx context.Context, w *waiting) (context.Context, error) {
	permits := 0
	for _, e := range l.heldElsewhere(w.caller) {
		isHeld, err := l.isOurs(ctx, e)
		if err != nil {
			return ctx, err
		}
		if !isHeld {
			continue
		}
		if err := mayAskBeside(e, w.info); err != nil {
			return ctx, err
		}
		permits += e.hold.a.info.Permits
	}
	if permits == 0 {
		return ctx, nil
	}
	own, _ := ctx.Value(permitsKey{l.c, l.path}).(int)
	return context.WithValue(ctx, permitsKey{l.c, l.path}, own+permits), nil
}

// mayAskBeside returns nil if the call, whose caller has e's hold, may be made all the same.
// Otherwise it returns ErrDeadlock, or ErrConflict if that hold is of another kind of lock.
func mayAskBeside(e elsewhere, call LockInfo) error {
	theirs := e.hold.a.info
	bothRead := theirs.Kind == KindRead && call.Kind == KindRead
	switch {
	case !contenderKind(theirs.Kind).Shares(contenderKind(call.Kind)):
		return fmt.Errorf("%w: the caller holds %s as a %s, through another Client", ErrConflict,
			e.dir, theirs.Kind)
	case call.Kind == KindSemaphore:
		return nil
	case call.Try && bothRead:
		return nil // the try finds out itself whether a writer waits
	}
	return fmt.Errorf("%w: %s is held through another Client of this program", ErrDeadlock, e.dir)
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
