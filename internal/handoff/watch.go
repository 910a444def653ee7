package handoff

import (
	"errors"
	"path"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/locker/recipe"
)

// lookLocked starts the goroutine that watches for contenders outside, unless it was started: when a call waits here, or
// the turn is to be kept. A turn that no other call in the process wants costs neither a goroutine nor a request.
func (t *Turn) lookLocked() {
	if !t.looking {
		t.looking = t.q.qs.conf.Go(t.watch) // false: the client is closed, and the turn ends with its session
	}
}

// watch looks for contenders outside until one was seen, or the turn is over, and gives up a turn that was idle for too
// long.
//
// It lists the directory with a watch in one request, so that no contender is missed in between. Contenders that came
// before we held are in the list. A stale list is safe: the watch is on the same server and fires when it catches up.
// Across connections package session sets the watch again as of the latest state that was seen.
func (t *Turn) watch() {
	dir, own := path.Split(t.nodes[0])
	for {
		w, names, _, err := t.Session().WatchChildren(t.ctx, path.Clean(dir))
		switch {
		case err == nil:
		case t.ctx.Err() != nil:
			return
		case errors.Is(err, zk.ErrNoNode):
			t.Missing(t.nodes[0])
			return
		default: // it is not known whether others wait: suppose that one does
			t.q.qs.conf.Logger.Warn("can't watch for others who want a lock, which is not handed on for long",
				"path", t.q.lock.Key.Path, "error", err)
			t.found(present)
			return
		}
		switch others, exists := survey(names, own); {
		case !exists:
			w.Close()
			t.Missing(t.nodes[0])
			return
		case others:
			w.Close()
			t.found(present)
			return
		}
		t.found(none)
		if !t.await(w.Fired()) {
			w.Close()
			return
		}
	}
}

// survey reads a list of the directory: whether there are other contenders than own, and whether that one exists.
func survey(names []string, own string) (others, exists bool) {
	for _, name := range names {
		if name == own {
			exists = true
		} else if _, ok := recipe.Parse(name); ok {
			others = true
		}
	}
	return others, exists
}

// await returns true when the watch has fired, and false when the turn is over.
func (t *Turn) await(fired <-chan struct{}) bool {
	var idleOver <-chan time.Time
	if t.idleTimer != nil {
		idleOver = t.idleTimer.C
	}
	for {
		select {
		case <-fired:
			return true
		case <-idleOver:
			t.idleOver()
		case <-t.ctx.Done():
			return false
		}
	}
}

// found notes what is known of contenders of other processes, and hands on, keeps or ends an idle turn accordingly.
func (t *Turn) found(others contention) {
	t.update(t.Session().Context(), func() (giveUp bool) {
		if others == present && t.others != present {
			t.until = time.Now().Add(contendedLimit)
			if t.others == none {
				t.handoffsLeft = t.q.lock.Handoffs // else it has counted already
			}
		}
		t.others = others
		return t.state == idle && t.nextLocked()
	})
}

// idleOver gives the turn up if no call has had it for the idle time.
func (t *Turn) idleOver() {
	t.update(t.Session().Context(), func() (giveUp bool) {
		if giveUp = t.state == idle && time.Since(t.idleSince) >= t.q.lock.IdleKeep; giveUp {
			t.endLocked(errGivenUp)
		}
		return giveUp
	})
}
