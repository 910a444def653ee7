package zklock

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/zklock/locker/recipe"
	"github.com/zklock/locker/session"
)

// Local handoff: the goroutines of one process that want one mutex stand in a line of their own, and the process has at
// most one place in the ensemble's line for all of them.
//
//	line    one for each path and set of options that the znode depends on; it lives as long as somebody waits or there
//	        is a place
//	tenure  the place while it is first in line, from the moment at which it is until it is given up: the holds of one
//	        tenure follow one another inside the process, on one znode, and so with one token
//
// A line is in one of these states: its goroutine queues (line.run); a TryLock is under way (trying); there is a tenure,
// with a holder, or kept idle, or about to be handed on; or there is nothing, and the line is forgotten.
//
// Safety. Inside the process exclusion is the line's mutex: a tenure has one holder, whose context has ended before the
// next is chosen. Towards others it is what it is for every hold: the znode stands and is first, and the session, retained
// for the whole tenure, has a lease, which is looked at before each hold begins. Whatever else ends a hold than its Unlock
// ends the tenure: it is never handed on, and the next one has a znode, and a token, of its own.
//
// Fairness. The tenure's goroutine (tenure.tend) watches the directory for other places. As long as it does not know, and
// once it has seen one, it hands on n times at most, and then, or turnLimit after it saw one, gives the znode up; those
// who wait here queue again, behind whoever waits outside.

// turnLimit is for how long a process goes on handing a lock on inside once it has seen somebody wait outside.
const turnLimit = time.Second

// lineKey tells which calls share a line.
type lineKey struct {
	path string
	opts [sha256.Size]byte
}

// shareKey is the key of b's line: the path, and what the znode, and the time for which it stands, depend on.
func (b *base) shareKey() lineKey {
	h := sha256.New()
	fmt.Fprintf(h, "%d %d %t %t %t %d\n", b.o.handoff, b.o.keep, b.o.container, b.o.verifyACL, b.o.delaySet, b.o.delay)
	for _, a := range b.o.acl {
		fmt.Fprintf(h, "%d %q %q\n", a.Perms, a.Scheme, a.ID)
	}
	h.Write(b.data)
	k := lineKey{path: b.path}
	h.Sum(k.opts[:0])
	return k
}

// lines has a client's local lines.
type lines struct {
	// used are waiters that are used again with their channels, which are half of what a wait takes of the heap. They
	// are the client's, since channels of a testing/synctest bubble must not leave it.
	used sync.Pool

	mu  sync.Mutex // guards all; taken inside line.mu
	all map[lineKey]*line
}

// of returns the line of b, locked.
func (ls *lines) of(b *base) *line {
	for {
		ls.mu.Lock()
		l := ls.all[b.share]
		if l == nil {
			if ls.all == nil {
				ls.all = map[lineKey]*line{}
			}
			l = &line{c: b.c, b: *b, self: describe(b.data)}
			ls.all[b.share] = l
		}
		ls.mu.Unlock()
		l.mu.Lock()
		if !l.dead {
			return l
		}
		l.mu.Unlock() // forgotten since
	}
}

// line is the local line of one lock.
type line struct {
	c *Client
	b base // of the first that came; the others' are equal in what is used of it

	self string // who this process is, for messages

	mu          sync.Mutex // guards what follows, and the line's waiters and tenures
	first, last *localWaiter
	n           int // of them
	t           *tenure
	trying      bool               // a TryLock looks for a place
	stop        context.CancelFunc // of the goroutine that queues; nil: there is none
	wound       chan struct{}      // closed when that goroutine is done with queueing
	out         recipe.Line        // the place in the ensemble's line, as last heard
	dead        bool               // forgotten by lines
}

// localWaiter is a call that waits in a local line.
type localWaiter struct {
	ready chan grant    // capacity 1: filled when it leaves the line otherwise than by itself
	wake  chan struct{} // capacity 1: there is news

	// Guarded by line.mu.
	prev, next *localWaiter
	in         bool  // in the line
	moved      bool  // news: the place in line
	retried    error // news: a step was made again
}

// waiter returns one that is in no line.
func (ls *lines) waiter() *localWaiter {
	if w, ok := ls.used.Get().(*localWaiter); ok {
		return w
	}
	return &localWaiter{ready: make(chan grant, 1), wake: make(chan struct{}, 1)}
}

// recycle takes back a waiter that is in no line, so that nobody will send to it.
func (ls *lines) recycle(w *localWaiter) {
	select {
	case <-w.wake:
	default:
	}
	w.moved, w.retried = false, nil
	ls.used.Put(w)
}

// grant is what a waiter waited for.
type grant struct {
	t       *tenure
	counted bool // against the tenure's hand-overs
	err     error
}

// push puts w at the end of the line, or, when it has been there before, at its head. The caller holds mu.
func (l *line) push(w *localWaiter, front bool) {
	w.in = true
	l.n++
	switch {
	case l.first == nil:
		l.first, l.last = w, w
	case front:
		w.next, l.first.prev, l.first = l.first, w, w
	default:
		w.prev, l.last.next, l.last = l.last, w, w
	}
}

// remove takes w out of the line. The caller holds mu.
func (l *line) remove(w *localWaiter) {
	if w.prev != nil {
		w.prev.next = w.next
	} else {
		l.first = w.next
	}
	if w.next != nil {
		w.next.prev = w.prev
	} else {
		l.last = w.prev
	}
	w.prev, w.next, w.in = nil, nil, false
	l.n--
}

// give ends the first waiter's wait. The caller holds mu.
func (l *line) give(g grant) {
	w := l.first
	l.remove(w)
	w.ready <- g
}

// place says where in line w stands: behind the holder, whoever waits outside before us, and those who came before it
// here. known: somebody is known to hold the lock or to wait before this process. The caller holds mu.
func (l *line) place(w *localWaiter) (at recipe.Line, known bool) {
	at = l.out
	switch {
	case l.t != nil && (l.t.held || l.t.over):
		at = recipe.Line{Ahead: 1, Holder: l.t.Nodes()[0], Who: l.self}
	case at.Ahead == 0:
		at.Who = l.self // only those before it here, if there are any
	}
	known = at.Ahead > 0
	if w == l.last { // as one that has just come
		at.Ahead += l.n - 1
		return at, known
	}
	for p := w.prev; p != nil; p = p.prev {
		at.Ahead++
	}
	return at, known
}

// advance sees to it that those who wait get a place, and that a line without anybody is forgotten. The caller holds mu.
func (l *line) advance() {
	if l.t != nil || l.trying || l.stop != nil || l.dead {
		return
	}
	if l.first == nil {
		l.dead = true
		l.c.lines.mu.Lock()
		delete(l.c.lines.all, l.b.share)
		l.c.lines.mu.Unlock()
		return
	}
	ctx, cancel := context.WithCancel(l.c.ctx)
	l.stop, l.wound = cancel, make(chan struct{})
	if !l.c.spawn(func() { l.run(ctx) }) {
		cancel()
		l.stop = nil
		l.refuse(closedError{})
	}
}

// refuse ends the wait of all. The caller holds mu.
func (l *line) refuse(err error) {
	for l.first != nil {
		l.give(grant{err: err})
	}
	l.advance()
}

// run queues on behalf of all who wait here, and then looks after what it got. It goes on when the first of them, or any
// other, leaves; ctx ends when the last has left, and when the client is closed.
func (l *line) run(ctx context.Context) {
	r := request{queue: l.b.queue(recipe.Lock)}
	r.queue.Queued = func(at recipe.Line) { l.heard(at, nil) }
	r.queue.Retried = func(err error) { l.heard(recipe.Line{}, err) }
	p, keep, err := l.b.obtain(ctx, &r)
	l.mu.Lock()
	left := ctx.Err() != nil
	l.stop()
	l.stop, l.out = nil, recipe.Line{}
	close(l.wound)
	if err != nil {
		switch {
		case l.c.ctx.Err() != nil:
			l.refuse(closedError{})
		case left:
			l.advance() // somebody may have come since the last had left
		default:
			l.refuse(err)
		}
		l.mu.Unlock()
		return
	}
	t := l.begin(p, keep)
	leave := false
	if l.first != nil {
		t.give(false)
	} else {
		t.seal(ErrUnlocked) // the last left when it was our turn; it is not kept, as nobody has had it
		leave = true
	}
	l.mu.Unlock()
	if leave {
		t.giveUp(ctx)
		return
	}
	t.tend()
}

// heard passes on to those who wait what was heard of the place in the ensemble's line. They tell the hooks themselves.
func (l *line) heard(at recipe.Line, retried error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.out = at
	for w := l.first; w != nil; w = w.next {
		w.moved = true
		if retried != nil {
			w.retried = retried
		}
		select {
		case w.wake <- struct{}{}:
		default: // it has not looked yet
		}
	}
}

// leaveLine takes w out of the line because its call has ended, and says what it was waiting for; ctx has ended, or the
// client was closed. When it was its turn already, the lock goes on to the next.
func (l *line) leaveLine(ctx context.Context, w *localWaiter) error {
	l.mu.Lock()
	if !w.in {
		g := <-w.ready
		if g.err != nil {
			l.mu.Unlock()
			return g.err
		}
		l.mu.Unlock()
		g.t.decline(ctx, g.counted)
		return l.ended(ctx, recipe.Line{}, false)
	}
	at, known := l.place(w)
	l.remove(w)
	if l.first == nil && l.stop != nil {
		l.stop() // nobody wants the place any more
	}
	l.advance()
	l.mu.Unlock()
	return l.ended(ctx, at, known)
}

// ended is the error of a wait whose ctx has ended.
func (l *line) ended(ctx context.Context, at recipe.Line, known bool) error {
	if l.c.ctx.Err() != nil {
		return closedError{}
	}
	if !known { // perhaps for want of a connection: then there is more to say
		s := l.c.sessions.current()
		if s.State() != session.Connected {
			if _, err := l.c.Session(ctx); err != nil {
				return err
			}
			return s.Sync(ctx, l.b.path)
		}
	}
	if at.Ahead == 0 {
		return session.Waited(ctx, errors.New("about to enter the line"))
	}
	return session.Waited(ctx, recipe.Waiting{Line: at})
}
