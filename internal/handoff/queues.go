package handoff

import (
	"context"
	"crypto/sha256"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/zklock/locker/recipe"
)

// Config is what the queues of a client need of it.
type Config struct {
	Context context.Context      // ends when the client is closed
	Closed  error                // what calls return from then on
	Go      func(fn func()) bool // runs fn in a goroutine that the client's Close joins; false: it is closed
	Logger  *slog.Logger
	// GiveUp leaves a ticket that is not wanted any more; ctx may be over.
	GiveUp func(ctx context.Context, t *recipe.Ticket)
	// Unreachable returns why the ensemble can't be reached, once ctx has ended; nil when it can.
	Unreachable func(ctx context.Context, path string) error
}

// Key says which calls share a queue.
type Key struct {
	Path string
	Rest [sha256.Size]byte // a digest of what else the znode depends on
}

// Lock is a lock with local handoff. Its calls agree in all of this.
type Lock struct {
	Key      Key
	Self     string        // who this process is, for messages
	Handoffs int           // how often a turn may be handed on while others wait, or may wait, at the ensemble
	IdleKeep time.Duration // for how long a turn that no call has is kept; 0: not
	// Acquire queues at the ensemble, and returns a ticket that holds. With try it does not wait: recipe.ErrBusy.
	Acquire func(ctx context.Context, try bool, c Caller) (*recipe.Ticket, error)
}

// Caller receives the progress of a wait.
type Caller interface {
	Queued(recipe.Line)  // its place in line, the callers here and the contenders at the ensemble counted
	Retried(cause error) // a step failed and is made again
}

// Queues has a client's local queues. Its methods may be called concurrently.
type Queues struct {
	conf Config

	// idle are waiters that are used again with their channels, which are half of what a wait takes of the heap. They
	// belong to one client, since channels of a testing/synctest bubble must not leave it.
	idle sync.Pool

	mu  sync.Mutex // guards all; taken inside queue.mu
	all map[Key]*queue
}

// New returns the queues of a client that has none yet.
func New(conf Config) *Queues {
	return &Queues{conf: conf, all: map[Key]*queue{}}
}

// Len returns how many queues there are. One without waiters and without a turn is forgotten.
func (qs *Queues) Len() int {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	return len(qs.all)
}

// Kept is a turn that no call has, and that is kept for the next one.
type Kept struct {
	Turn  *Turn
	Path  string
	Since time.Time // when it was released
}

// Kept returns the turns that are kept, in no order.
func (qs *Queues) Kept() (kept []Kept) {
	qs.mu.Lock()
	all := slices.Collect(maps.Values(qs.all))
	qs.mu.Unlock()
	for _, q := range all {
		q.mu.Lock()
		if t := q.turn; t != nil && t.state == idle && t.idleTimer != nil {
			kept = append(kept, Kept{t, q.lock.Key.Path, t.idleSince})
		}
		q.mu.Unlock()
	}
	return kept
}

// openLocked returns the queue of lock with its mutex held, and its turn if that is free: it is the caller's then.
func (qs *Queues) openLocked(lock *Lock) (*queue, *Turn) {
	for {
		qs.mu.Lock()
		q := qs.all[lock.Key]
		if q == nil {
			q = &queue{qs: qs, lock: lock}
			qs.all[lock.Key] = q
		}
		qs.mu.Unlock()
		q.mu.Lock()
		if t := q.freeLocked(); t != nil || q.state != forgotten {
			return q, t
		}
		q.mu.Unlock() // there is another queue now, or will be
	}
}

// waiter returns one that is in no queue.
func (qs *Queues) waiter() *waiter {
	if w, ok := qs.idle.Get().(*waiter); ok {
		return w
	}
	return &waiter{granted: make(chan grant, 1), news: make(chan struct{}, 1)}
}

// recycle takes back a waiter that is in no queue, so that no goroutine will send to it.
func (qs *Queues) recycle(w *waiter) {
	select {
	case <-w.news:
	default:
	}
	w.moved, w.retried = false, nil
	qs.idle.Put(w)
}
