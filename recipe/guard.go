package recipe

import (
	"context"
	"errors"
	"path"
	"slices"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/locker/internal/trusted"
	"github.com/zklock/locker/session"
)

// Guard calls fn, once, when the ticket, which holds, is lost: with ErrGone when one of its znodes was deleted by another
// client, or was found missing (by a heartbeat, or reported by Missing); with the cause of the session's end when that
// ends. fn is not called once Leave or Lose has begun, though a call that has begun may still be running then.
//
// The znodes are watched from WatchAfter on, unless Wait watches them already: a shorter hold costs nothing. Guard does
// not block, and calls fn in another goroutine.
func (t *Ticket) Guard(fn func(error)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.life != entered {
		return
	}
	t.life, t.lost = guarded, fn
	t.guardLocked()
	t.keep.OnMissing(t.Missing)
	t.unhook = context.AfterFunc(t.s.Context(), func() { t.lose(t.s.Err()) })
}

// guardLocked follows the watches on our own znodes, or has them set a little later.
func (t *Ticket) guardLocked() {
	if slices.ContainsFunc(t.entries, func(e *entry) bool { return e.ownWatch == nil }) {
		t.watcher = time.AfterFunc(WatchAfter, func() { t.s.Go(t.watchOwn) })
		return
	}
	for _, e := range t.entries {
		t.followLocked(e)
	}
	if slices.ContainsFunc(t.entries, func(e *entry) bool { return e.set }) {
		t.s.Go(t.heedEarlier)
	}
}

// watchOwn watches those own znodes that are not watched, in one request. It finds out behind that whose they are: a
// watch knows a znode by its name alone, and a neighbour's may have the name by now. No deletion behind the watch is
// missed.
func (t *Ticket) watchOwn(ctx context.Context) {
	var entries []*entry
	var nodes []string
	t.mu.Lock()
	for _, e := range t.entries {
		if e.ownWatch == nil || hasFired(e.ownWatch) {
			entries, nodes = append(entries, e), append(nodes, e.node)
		}
	}
	over := t.life == left
	t.mu.Unlock()
	if over || len(nodes) == 0 {
		return
	}
	ws, err := t.s.WatchAll(ctx, nodes...)
	if err != nil {
		return // the session has ended; or a znode may not be read, and only heartbeats look after it
	}
	for i, w := range ws {
		stat, err := ownStat(ctx, t.s, nodes[i])
		if w.Exists && errors.Is(err, ErrGone) {
			w.Close()
			t.Missing(nodes[i])
			continue
		}
		t.mu.Lock()
		if e := entries[i]; t.life == left || e.node != nodes[i] {
			w.Close() // given up, or replaced by a Downgrade, since
		} else {
			e.ownWatch = w
			t.followLocked(e)
		}
		t.mu.Unlock()
		if err == nil {
			t.heed(ctx, nodes[i], stat.Version)
		}
	}
}

// ownStat returns the Stat of node, one of the session's. ErrGone: it is gone, or is a neighbour's, who has seen ours go
// before we did and made another one of its name. Any other error says that this could not be asked.
func ownStat(ctx context.Context, s *session.Session, node string) (zk.Stat, error) {
	dir, name := path.Split(node)
	nodes, err := s.StatsBelow(ctx, path.Clean(dir), []string{name})
	switch {
	case err != nil:
		return zk.Stat{}, err
	case errors.Is(nodes[0].Err, zk.ErrNoNode), nodes[0].Err == nil && nodes[0].Stat.EphemeralOwner != s.ID():
		return zk.Stat{}, ErrGone
	}
	return nodes[0].Stat, nodes[0].Err
}

// followLocked has Missing called when the znode that e.ownWatch watches is deleted, and watches it again when its data were
// set.
func (t *Ticket) followLocked(e *entry) {
	node := e.node
	e.ownWatch.Then(func(event zk.EventType) {
		if event == zk.EventNodeDeleted {
			t.Missing(node)
		} else {
			t.watchOwn(t.s.Context())
		}
	})
}

// Missing reports that node was found missing. If it is the ticket's, the ticket is lost; but while a Downgrade is under
// way, which deletes the znode itself, only if the Downgrade fails.
func (t *Ticket) Missing(node string) {
	t.mu.Lock()
	current := slices.ContainsFunc(t.entries, func(e *entry) bool { return e.node == node })
	moving := t.move != nil
	t.missed = t.missed || current && moving
	t.mu.Unlock()
	if current && !moving {
		t.s.ForLocks(trusted.Caller{}).Gone(node) // however it was found: it takes no room any more
		t.lose(ErrGone)
	}
}

// lose reports the loss, once.
func (t *Ticket) lose(why error) {
	t.mu.Lock()
	if t.life != guarded {
		t.mu.Unlock()
		return
	}
	t.endLocked(lost)
	fn := t.lost
	t.mu.Unlock()
	fn(why)
	t.keep.Release() // not before the holder has heard: the lease protects what is left
}

// Lose says that the hold on the ticket has ended otherwise than by its release: Guard reports no loss any more, and the
// lease is not kept. The znodes that there are stay until Leave, which may be called or not.
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

// endLocked ends what Guard began. After Leave the lease is kept until the znodes are gone: see there.
func (t *Ticket) endLocked(to life) {
	t.life = to
	if t.watcher != nil {
		t.watcher.Stop()
	}
	if t.unhook != nil {
		t.unhook()
	}
}

// gone reports whether the watch on our own znode has fired with its deletion. It does not block.
func (e *entry) gone() bool { return hasFired(e.ownWatch) && e.ownWatch.Event() == zk.EventNodeDeleted }

// notified reports whether we are certainly notified of our own znode's deletion: only those that may read it are.
func (e *entry) notified() bool { return e.s.Grants(e.q.ACL, zk.PermRead) }

// unwatch gives up the watch on our own znode, which has been deleted or will be. It fires then by itself, unless the
// znode may not be read.
func (e *entry) unwatch() {
	if e.ownWatch != nil && !e.notified() {
		e.ownWatch.Close()
	}
}
