package recipe

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/locker/internal/trusted"
	"github.com/zklock/locker/session"
)

// toWatch has the tickets of one session that hold, did not wait, and whose own znodes are to be watched WatchAfter later.
// However many there are, they share a timer and a goroutine: thousands of locks that are taken at once would otherwise be
// thousands of each, and of requests.
type toWatch struct {
	s *session.Session

	// Guarded by toWatches.mu.
	timer       *time.Timer
	busy        bool    // the timer runs, or a goroutine watches what was due
	first, last *Ticket // in the order in which they are due
}

// toWatches has those of the sessions that last.
var toWatches = struct {
	mu sync.Mutex
	of map[*session.Session]*toWatch
}{of: map[*session.Session]*toWatch{}}

// due is a ticket's place in a toWatch. Guarded by toWatches.mu.
type due struct {
	in         *toWatch // nil: none
	at         time.Time
	prev, next *Ticket
}

// watchLater has the ticket's znodes watched WatchAfter from now, unless forgetWatch comes first.
func (t *Ticket) watchLater() {
	toWatches.mu.Lock()
	defer toWatches.mu.Unlock()
	w := toWatches.of[t.s]
	if w == nil {
		w = &toWatch{s: t.s}
		toWatches.of[t.s] = w
		context.AfterFunc(t.s.Context(), func() {
			toWatches.mu.Lock()
			defer toWatches.mu.Unlock()
			delete(toWatches.of, w.s)
		})
	}
	t.due = due{in: w, at: time.Now().Add(WatchAfter), prev: w.last}
	if w.last != nil {
		w.last.due.next = t
	} else {
		w.first = t
	}
	w.last = t
	if !w.busy {
		w.busy = true
		w.wakeLocked(WatchAfter)
	}
}

// forgetWatch undoes watchLater.
func (t *Ticket) forgetWatch() {
	toWatches.mu.Lock()
	defer toWatches.mu.Unlock()
	t.forgetWatchLocked()
}

func (t *Ticket) forgetWatchLocked() {
	d := t.due
	if d.in == nil {
		return
	}
	if d.prev != nil {
		d.prev.due.next = d.next
	} else {
		d.in.first = d.next
	}
	if d.next != nil {
		d.next.due.prev = d.prev
	} else {
		d.in.last = d.prev
	}
	t.due = due{}
}

func (w *toWatch) wakeLocked(after time.Duration) {
	if w.timer == nil {
		w.timer = time.AfterFunc(after, w.wake)
	} else {
		w.timer.Reset(after)
	}
}

// wake has what is due watched.
func (w *toWatch) wake() {
	if tickets := w.take(); len(tickets) > 0 {
		w.s.Go(func(ctx context.Context) {
			for ; len(tickets) > 0; tickets = w.take() {
				watchOwn(ctx, tickets...)
			}
		})
	}
}

// watchedAtOnce bounds the tickets whose znodes are watched together.
const watchedAtOnce = 1000

// take takes out what is due. When nothing is, it sets the timer for the next one.
func (w *toWatch) take() (tickets []*Ticket) {
	toWatches.mu.Lock()
	defer toWatches.mu.Unlock()
	now := time.Now()
	for t := w.first; t != nil && len(tickets) < watchedAtOnce && !t.due.at.After(now); t = w.first {
		t.forgetWatchLocked()
		tickets = append(tickets, t)
	}
	switch {
	case len(tickets) > 0:
	case w.first == nil:
		w.busy = false
	default:
		w.wakeLocked(w.first.due.at.Sub(now))
	}
	return tickets
}

// watchOwn watches those own znodes of tickets of one session that are not watched, in one request. It finds out behind that
// whose they are: a watch knows a znode by its name alone, and a neighbour's may have the name by now. No deletion behind the
// watch is missed.
func watchOwn(ctx context.Context, tickets ...*Ticket) {
	var owners []*Ticket
	var entries []*entry
	var nodes []string
	for _, t := range tickets {
		t.mu.Lock()
		for _, e := range t.entries {
			if t.life != left && (e.ownWatch == nil || hasFired(e.ownWatch)) {
				owners, entries, nodes = append(owners, t), append(entries, e), append(nodes, e.node)
			}
		}
		t.mu.Unlock()
	}
	if len(nodes) == 0 {
		return
	}
	s := tickets[0].s
	ws, err := s.WatchAll(ctx, nodes...)
	switch {
	case err != nil && len(tickets) > 1 && ctx.Err() == nil: // one of them may not be read: the others may
		for _, t := range tickets {
			watchOwn(ctx, t)
		}
		return
	case err != nil:
		return // the session has ended; or the znode may not be read, and only heartbeats look after it
	}
	stats := ownStats(ctx, s, nodes)
	for i, w := range ws {
		owners[i].watched(entries[i], nodes[i], w, stats[i])
	}
}

// watched notes the watch on node, e's when it was asked for, and what was found behind it.
func (t *Ticket) watched(e *entry, node string, w *session.Watch, found session.Node) {
	if w.Exists && errors.Is(found.Err, ErrGone) {
		w.Close()
		t.s.Go(func(context.Context) { t.Missing(node) })
		return
	}
	t.mu.Lock()
	if t.life == left || e.node != node {
		w.Close() // given up, or replaced by a Downgrade, since
	} else {
		e.ownWatch = w
		t.followLocked(e)
	}
	t.mu.Unlock()
	if found.Err == nil && t.unheard(node, found.Stat.Version) != nil {
		t.s.Go(func(ctx context.Context) { t.heed(ctx, node, found.Stat.Version) })
	}
}

// ownStats returns the Stats of nodes, which are the session's. ErrGone: it is gone, or is a neighbour's, who has seen ours
// go before we did and made another one of its name. Any other error says that this could not be asked.
func ownStats(ctx context.Context, s *session.Session, nodes []string) []session.Node {
	found, err := s.StatsOf(ctx, trusted.Caller{}, nodes)
	if err != nil {
		found = make([]session.Node, len(nodes))
	}
	for i := range found {
		switch n := &found[i]; {
		case err != nil:
			n.Err = err
		case errors.Is(n.Err, zk.ErrNoNode), n.Err == nil && n.Stat.EphemeralOwner != s.ID():
			n.Err = ErrGone
		}
	}
	return found
}
