package zklock

import (
	"context"
	"errors"
	"path"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/locker/recipe"
)

// tend looks after a tenure until it is over: it hears of the end of the session and of the znode, of others who want
// the lock, and of the end of the idle time. One goroutine of the client's, however many holds there are.
//
// It asks for nothing before it is worth it. When somebody else waits here, or the place is to be kept, or else after
// recipe.Settle, it watches the own znode; in the first two cases it also lists the directory with a watch in one
// request, so that nobody can come in between. Whoever came before it was our turn is in the list. A list as old as it may be does no harm: the
// watch is set at the same server, and fires when that learns of what is missing. Across connections package session
// sets the watch again as of the latest that was seen.
func (t *tenure) tend() {
	defer func() {
		if cause := t.s.Err(); cause != nil {
			t.lose(cause)
		}
	}()
	settle := time.NewTimer(recipe.Settle)
	defer settle.Stop()
	select {
	case <-t.want:
	case <-settle.C:
	case <-t.ctx.Done():
		return
	}
	t.s.Go(func(context.Context) {
		if err := t.ticket.OnGone(t.ctx, t.gone); errors.Is(err, recipe.ErrGone) {
			t.gone()
		}
	})
	select {
	case <-t.want:
		t.watch()
		<-t.ctx.Done()
	case <-t.ctx.Done():
	}
}

// watch returns when there is nothing more to look for: somebody was seen, or the tenure is over.
func (t *tenure) watch() {
	dir, own := path.Split(t.ticket.Nodes()[0])
	for {
		w, names, _, err := t.s.WatchChildren(t.ctx, path.Clean(dir))
		switch {
		case err == nil:
		case t.ctx.Err() != nil:
			return
		case errors.Is(err, zk.ErrNoNode):
			t.gone()
			return
		default: // nobody can tell who waits: suppose that somebody does
			t.l.c.log.Warn("can't watch for others who want a lock, which is not handed on for long", "path", t.l.b.path, "error", err)
			t.found(crowded)
			return
		}
		switch others, stands := survey(names, own); {
		case !stands:
			w.Close()
			t.gone()
			return
		case others:
			w.Close()
			t.found(crowded)
			return
		}
		t.found(alone)
		if !t.await(w.Fired()) {
			w.Close()
			return
		}
	}
}

// survey reads a list of the directory: whether there are other places in line than own, and whether that stands.
func survey(names []string, own string) (others, stands bool) {
	for _, name := range names {
		if name == own {
			stands = true
		} else if _, ok := recipe.Parse(name); ok {
			others = true
		}
	}
	return others, stands
}

// await returns true when the watch has fired, and false when the tenure is over.
func (t *tenure) await(fired <-chan struct{}) bool {
	var idle <-chan time.Time
	if t.timer != nil {
		idle = t.timer.C
	}
	for {
		select {
		case <-fired:
			return true
		case <-idle:
			t.idled()
		case <-t.ctx.Done():
			return false
		}
	}
}

// gone hears that the znode was deleted: by our own hand, if the tenure is over.
func (t *tenure) gone() { t.lose(ErrNodeDeleted) }

// found notes what is known of others now, and goes on accordingly with a tenure that nobody has.
func (t *tenure) found(others company) {
	t.l.mu.Lock()
	if others == crowded && t.others != crowded {
		t.until = time.Now().Add(turnLimit)
		if t.others == alone {
			t.left = t.l.b.o.handoff // else it has counted already
		}
	}
	t.others = others
	leave := !t.held && t.next()
	t.l.mu.Unlock()
	if leave {
		t.giveUp(t.s.Context())
	}
}

// idled gives the tenure up if nobody has had it for the idle time.
func (t *tenure) idled() {
	t.l.mu.Lock()
	t.timing = false
	leave := false
	if !t.held && !t.over && !t.idle.IsZero() {
		if rest := t.l.b.o.keep - time.Since(t.idle); rest > 0 {
			t.timing = true
			t.timer.Reset(rest)
		} else {
			t.seal(ErrUnlocked)
			leave = true
		}
	}
	t.l.mu.Unlock()
	if leave {
		t.giveUp(t.s.Context())
	}
}
