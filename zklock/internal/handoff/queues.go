// Package handoff lets the goroutines of one process that want the same mutex share one place in the ensemble's queue. They
// wait in a local queue, and a turn passes from one to the next inside the process, without a request.
//
//	Queues       the local queues of a client
//	localQueue   the calls of this process that wait for one lock
//	Turn         the process's ticket, from when it holds until it is given up. The holds of one turn follow one another on one
//	             znode, and so have the same token
//
// Safety. Inside the process, localQueue.mu excludes: a turn has one holder, whose context has ended before the next is chosen.
// Between processes, a turn is as safe as any other hold: its znode exists and is first, and its session's lease is checked
// before each hold begins. A hold that is lost ends its turn: the next one has its own znode and token.
//
// Fairness. While calls wait here, a goroutine of the turn watches the directory for contenders of other processes
// (Turn.watch). While there are none, hand-overs are not limited. Before the first look, and once a contender was seen, they
// end after contendedLimit. Then the znode is deleted, and local waiters queue again.
//
// Source: lock cohorting (Dice, Marathe, Shavit: Lock Cohorting, PPoPP 2012): a local queue in front of a global one, with
// bounded hand-overs.
//
// localQueue.mu is the outermost mutex (ARCHITECTURE.md has the order). Of Lock's functions, only Go is called under it.
package handoff

import (
	"context"
	"crypto/sha256"
	"fmt"
	"log/slog"
	"slices"
	"sync"

	"github.com/zklock/locker/internal/queue"
)

// Key says which calls share a queue.
type Key struct {
	Path string
	Rest [sha256.Size]byte // a digest of everything else that the znode depends on
}

// Lock describes a lock with local handoff. All calls that share a queue have equal ones.
type Lock struct {
	Key  Key
	Self string // names this process in messages

	Context context.Context      // ends when the client is closed; its cause is what calls return from then on
	Go      func(fn func()) bool // runs fn in a goroutine that the client's Close joins; false: the client is closed
	Logger  *slog.Logger

	// Acquire queues at the ensemble and returns a ticket that holds. With try it does not wait: queue.ErrBusy.
	Acquire func(ctx context.Context, try bool, c queue.Caller) (*queue.Ticket, error)
	// GiveUp leaves a ticket that is no longer wanted, even if ctx has ended.
	GiveUp func(ctx context.Context, t *queue.Ticket)
	// Unreachable returns why the ensemble can't be reached when ctx has ended; nil if there is a connection.
	Unreachable func(ctx context.Context, path string) error
}

// Queues are a client's local queues; none at first. The methods may be called concurrently.
type Queues struct {
	mu  sync.Mutex // guards all; taken inside localQueue.mu
	all map[Key]*localQueue
}

// Len returns the number of queues, each of which has waiters or a turn.
func (qs *Queues) Len() int {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	return len(qs.all)
}

// openAndLock returns the queue of lock, with its mutex held.
func (qs *Queues) openAndLock(lock *Lock) *localQueue {
	for {
		qs.mu.Lock()
		q := qs.all[lock.Key]
		if q == nil {
			if qs.all == nil {
				qs.all = map[Key]*localQueue{}
			}
			q = &localQueue{qs: qs, lock: lock}
			qs.all[lock.Key] = q
		}
		qs.mu.Unlock()
		q.mu.Lock()
		if q.state != forgotten {
			return q
		}
		q.mu.Unlock() // look up or make its successor
	}
}

// Lock returns a turn that is granted to the caller, who then calls Turn.Guard. It waits behind earlier calls in this
// process and behind earlier contenders at the ensemble, until ctx ends or the client is closed; a call that ends so leaves
// nothing behind.
//
// Errors are those of Lock.Acquire, ctx's and that of Lock.Context, with the place in line.
func (qs *Queues) Lock(ctx context.Context, lock *Lock, c queue.Caller) (*Turn, error) {
	for first := true; ; first = false {
		q := qs.openAndLock(lock)
		me, i := make(waiter, 1), 0 // after a lost turn: first again
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
		cause := t.checkLocked() // the turn may have ended since it was granted
		q.mu.Unlock()
		if cause == nil {
			return t, nil
		}
		c.Retried(fmt.Errorf("it was our turn, but it is lost: %w", cause))
	}
}

// TryLock is Lock without waiting for another call. If another call in this process has the lock, waits, tries, or gives up
// its place, it returns queue.ErrBusy without a request; otherwise it asks the ensemble once.
func (qs *Queues) TryLock(ctx context.Context, lock *Lock, c queue.Caller) (*Turn, error) {
	q := qs.openAndLock(lock)
	if q.state != empty {
		defer q.mu.Unlock()
		at := q.placeLocked(len(q.waiters))
		at.Ahead = max(at.Ahead, 1) // the call that enters, tries, or gives up
		return nil, queue.Busy(at)
	}
	q.state = trying
	q.mu.Unlock()
	ticket, err := lock.Acquire(ctx, true, c)
	q.mu.Lock()
	defer q.mu.Unlock()
	if err != nil {
		q.state = empty
		q.advanceLocked()
		return nil, err
	}
	t := q.beginLocked(ticket)
	if len(q.waiters) > 0 {
		t.lookLocked()
	}
	return t, nil
}
