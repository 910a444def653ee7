// Package handoff lets the goroutines of one process that want the same mutex share one place in
// the ensemble's line. They wait in a local queue, and a turn passes from one to the next inside
// the process, without a request.
//
//   - Queues are the local queues of a client.
//   - A localQueue has the calls of this process that wait for one lock.
//   - A Turn is the process's ticket, from the moment at which it holds until it is given up. The
//     holds of one turn follow one another on one znode, and so have the same token.
//
// # Safety
//
// Inside the process, localQueue.mu excludes: a turn has one holder, whose context has ended before
// the next one is chosen.
//
// Between processes, a turn is as safe as any other hold: its znode exists and is first, and its
// session's lease is checked before each hold begins. A hold that is lost ends its turn, and the
// next turn has its own znode and token.
//
// # Fairness
//
// While calls wait here, a goroutine of the turn watches the directory for contenders of other
// processes (Turn.watch). While there are none, the number of hand-overs has no limit. Before the
// first list, and once such a contender was seen, hand-overs end after contendedLimit. Then the
// znode is deleted, and the local waiters enter the ensemble's line again.
//
// Source: lock cohorting (Dice, Marathe, Shavit: Lock Cohorting, PPoPP 2012): a local queue in
// front of a global one, with bounded hand-overs.
//
// # Mutexes
//
// localQueue.mu is the outermost mutex (ARCHITECTURE.md has the order). Of Config's functions,
// only Go is called under it.
package handoff

import (
	"context"
	"crypto/sha256"
	"fmt"
	"log/slog"
	"sync"

	"github.com/zklock/locker/internal/queue"
)

// Key determines which calls share a queue.
type Key struct {
	Path string
	Rest [sha256.Size]byte // a digest of everything else that the znode depends on
}

// Config describes a lock with local handoff. All calls that share a queue have equal ones.
type Config struct {
	Key  Key
	Self string // names this process in messages

	// Context ends when the client is closed. From then on, calls return its cause.
	Context context.Context
	// Go runs fn in a goroutine that the client's Close joins. It returns false, and does not run
	// fn, if the client is closed.
	Go     func(fn func()) bool
	Logger *slog.Logger

	// Acquire queues at the ensemble and returns a ticket that holds. With try it does not wait,
	// but returns queue.ErrBusy.
	Acquire func(ctx context.Context, try bool, c queue.Caller) (*queue.Ticket, error)
	// GiveUp leaves a ticket that is no longer wanted, even if ctx has ended.
	GiveUp func(ctx context.Context, t *queue.Ticket)
	// Unreachable returns why the ensemble can't be reached when ctx has ended. It returns nil if
	// there is a connection.
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

// openAndLock returns the queue of conf.Key, with its mutex held.
func (qs *Queues) openAndLock(conf *Config) *localQueue {
	for {
		q := qs.open(conf)
		q.mu.Lock()
		if q.state != forgotten {
			return q
		}
		q.mu.Unlock() // it was forgotten in between: open its successor
	}
}

// open returns the queue of conf.Key, and makes one if there is none.
func (qs *Queues) open(conf *Config) *localQueue {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	q := qs.all[conf.Key]
	if q != nil {
		return q
	}
	if qs.all == nil {
		qs.all = map[Key]*localQueue{}
	}
	q = &localQueue{qs: qs, conf: conf}
	qs.all[conf.Key] = q
	return q
}

// forget removes the queue of key.
func (qs *Queues) forget(key Key) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	delete(qs.all, key)
}

// Lock returns a turn that is granted to the caller, which then calls Turn.Guard. It waits behind
// earlier calls in this process and behind earlier contenders at the ensemble, until ctx ends or
// the client is closed. A call that ends so leaves nothing behind.
//
// It returns the errors of Config.Acquire, ctx's error, or that of Config.Context, the last two
// with the place in line.
func (qs *Queues) Lock(ctx context.Context, conf *Config, c queue.Caller) (*Turn, error) {
	q := qs.openAndLock(conf)
	t, err := q.waitAndUnlock(ctx, len(q.waiters), c)
	for err == nil {
		cause := t.check() // the turn may have ended since it was granted
		if cause == nil {
			return t, nil
		}
		c.Retried(fmt.Errorf("it was our turn, but it is lost: %w", cause))
		q = qs.openAndLock(conf)
		t, err = q.waitAndUnlock(ctx, 0, c) // it was the first call, and is the first again
	}
	return nil, err
}

// TryLock is Lock without waiting for another call. If another call in this process has the lock,
// waits, tries, or gives up its place, it returns queue.ErrBusy without a request. Otherwise it
// asks the ensemble once.
func (qs *Queues) TryLock(ctx context.Context, conf *Config, c queue.Caller) (*Turn, error) {
	q := qs.openAndLock(conf)
	if q.state != idle {
		defer q.mu.Unlock()
		at := q.placeLocked(len(q.waiters))
		at.Ahead = max(at.Ahead, 1) // the call that enters, tries, or gives up
		return nil, queue.Busy(at)
	}
	q.state = trying
	q.mu.Unlock()
	ticket, err := conf.Acquire(ctx, true, c)
	q.mu.Lock()
	defer q.mu.Unlock()
	if err != nil {
		q.state = idle
		q.advanceLocked()
		return nil, err
	}
	t := q.beginLocked(ticket)
	if len(q.waiters) > 0 {
		t.watchOthersLocked()
	}
	return t, nil
}
