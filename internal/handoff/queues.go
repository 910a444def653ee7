// Package handoff lets the goroutines of one process that want one mutex share one place in the ensemble's queue. They
// wait in a queue of their own, and a turn is passed from one to the next inside the process, without a request.
//
//	Queues  the local queues of a client
//	queue   the local queue of one lock: the calls that wait here
//	Turn    the process's ticket while it holds, from the moment at which it does until it is given up; the holds of one
//	        turn follow one another on one znode, and so with one token
//
// Safety. Inside the process exclusion is queue.mu: a turn has one holder, whose context has ended before the next is
// chosen. Between processes, a turn is as safe as any other hold: its znode exists and is first, and its session's
// lease is checked before each hold begins. If anything but a release ends a hold, the turn ends with it: it is never handed
// on, and the next turn has its own znode and token.
//
// Fairness. While calls wait here, a goroutine of the turn watches the directory for contenders of other processes
// (Turn.watch). As long as it does not know, and once it has seen one, the turn is handed on n times at most, and then, or
// contendedLimit after one was seen, the znode is deleted; local waiters queue again, behind those of other processes.
//
// Source: lock cohorting (Dice, Marathe, Shavit: Lock Cohorting, PPoPP 2012): a local queue in front of a global lock,
// with a bound on the local hand-overs.
//
// Order of mutexes: queue.mu is taken first, then that of Queues, of the client (Config.Go), of the ticket or of its
// session. No function of a caller's is called under any of them.
package handoff

import (
	"context"
	"crypto/sha256"
	"fmt"
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

	mu  sync.Mutex // guards all; taken inside queue.mu
	all map[Key]*queue
}

// New returns the queues of a client that has none yet.
func New(conf Config) *Queues { return &Queues{conf: conf, all: map[Key]*queue{}} }

// Len returns how many queues there are. One without waiters and without a turn is forgotten.
func (qs *Queues) Len() int {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	return len(qs.all)
}

// Kept returns the turns that no call has, and that are kept for the next one, with when each was released.
func (qs *Queues) Kept() map[*Turn]time.Time {
	since := map[*Turn]time.Time{}
	qs.mu.Lock()
	all := slices.Collect(maps.Values(qs.all))
	qs.mu.Unlock()
	for _, q := range all {
		q.mu.Lock()
		if t := q.turn; t != nil && t.state == idle && t.idleTimer != nil {
			since[t] = t.idleSince
		}
		q.mu.Unlock()
	}
	return since
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

// Lock returns a turn that is the caller's: granted, and still to be guarded (Turn.Guard). It waits behind the calls that
// came before, here, and behind the contenders that came before, at the ensemble. It blocks until then, or until ctx ends or
// the client is closed, and leaves nothing behind then. A turn that is there and free costs no request: the session's lease
// is looked at.
//
// Errors are those of Lock.Acquire, ctx's with the place in line, and Config.Closed.
func (qs *Queues) Lock(ctx context.Context, lock *Lock, c Caller) (*Turn, error) {
	for first := true; ; first = false {
		q, t := qs.openLocked(lock)
		if t != nil {
			q.mu.Unlock()
			return t, nil
		}
		me, i := make(waiter, 1), 0 // it was our turn before
		if first {
			i = len(q.waiters)
		}
		q.waiters = slices.Insert(q.waiters, i, me)
		if q.turn != nil {
			q.turn.lookLocked()
		}
		at := q.placeLocked(i)
		q.advanceLocked()
		q.mu.Unlock()
		if at.Ahead > 0 {
			c.Queued(at)
		}
		t, err := q.await(ctx, me, c)
		if err != nil {
			return nil, err
		}
		q.mu.Lock()
		cause := t.checkLocked() // time may have passed since
		q.mu.Unlock()
		if cause == nil {
			return t, nil
		}
		c.Retried(fmt.Errorf("it was our turn, but it is lost: %w", cause))
	}
}

// TryLock is Lock for when no call in this process has the lock, waits for it, or asks for it: recipe.ErrBusy, without a
// request, otherwise. It asks the ensemble once. ctx's error: it ended first.
func (qs *Queues) TryLock(ctx context.Context, lock *Lock, c Caller) (*Turn, error) {
	q, t := qs.openLocked(lock)
	for q.state == entering && len(q.waiters) == 0 { // they have all left: the attempt at the ensemble is being cancelled
		entered := q.entered
		q.mu.Unlock()
		select {
		case <-entered:
		case <-ctx.Done():
			return nil, q.waitEnded(ctx, recipe.Line{})
		}
		q, t = qs.openLocked(lock)
	}
	switch {
	case t != nil:
		q.mu.Unlock()
		return t, nil
	case q.state != empty:
		defer q.mu.Unlock()
		return nil, q.busyLocked()
	}
	q.moveLocked(trying)
	q.mu.Unlock()
	ticket, err := lock.Acquire(ctx, true, c)
	q.mu.Lock()
	defer q.mu.Unlock()
	if err != nil {
		q.moveLocked(empty)
		q.advanceLocked()
		return nil, err
	}
	t = q.beginLocked(ticket)
	t.moveLocked(granted)
	if len(q.waiters) > 0 {
		t.lookLocked()
	}
	return t, nil
}
