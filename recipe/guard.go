package recipe

import (
	"context"
	"slices"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/locker/internal/trusted"
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
		sharedIn(t.s).toWatch.later(t)
		return
	}
	for _, e := range t.entries {
		t.followLocked(e)
	}
	if slices.ContainsFunc(t.entries, func(e *entry) bool { return e.set }) {
		t.s.Go(t.heedEarlier)
	}
}

// followLocked has Missing called when the znode that e.ownWatch watches is deleted, and watches it again when its data were
// set.
func (t *Ticket) followLocked(e *entry) {
	node := e.node
	e.ownWatch.Then(func(event zk.EventType) {
		if event == zk.EventNodeDeleted {
			t.Missing(node)
		} else {
			watchOwn(t.s.Context(), t)
		}
	})
}

// Missing reports that node was found missing. If it is the ticket's, the ticket is lost; but while a Downgrade is under
// way, which deletes the znode itself, only if the Downgrade fails.
func (t *Ticket) Missing(node string) {
	t.mu.Lock()
	current := slices.ContainsFunc(t.entries, func(e *entry) bool { return e.node == node })
	moving := t.movingLocked() != nil
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
	t.keep.Release() // not before fn has ended the hold: the lease protects it until then
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
	sharedIn(t.s).toWatch.forget(t)
	if t.unhook != nil {
		t.unhook()
	}
}

// gone reports whether the watch on our own znode has fired with its deletion. It does not block.
func (e *entry) gone() bool { return e.ownWatch != nil && e.ownWatch.Event() == zk.EventNodeDeleted }

// notified reports whether we are certainly notified of our own znode's deletion: only those that may read it are.
func (e *entry) notified() bool { return e.t.s.Grants(e.q.ACL, zk.PermRead) }

// unwatch gives up the watch on our own znode, which has been deleted or will be. It fires then by itself, unless the
// znode may not be read.
func (e *entry) unwatch() {
	if e.ownWatch != nil && !e.notified() {
		e.ownWatch.Close()
	}
}
