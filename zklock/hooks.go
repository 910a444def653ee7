package zklock

import (
	"context"
	"time"

	"github.com/zklock/locker/internal/contender"
	"github.com/zklock/locker/session"
)

// LockKind is a kind of lock. At the ensemble a contender of a MultiLock or of an Election is a
// mutex's.
type LockKind string

// The kinds of locks.
const (
	KindMutex     LockKind = "mutex"            // a Mutex, or the lock of a Job
	KindRead      LockKind = "read"             // an RWMutex, for a reader
	KindWrite     LockKind = "write"            // an RWMutex, for a writer
	KindSemaphore LockKind = "semaphore"        // a Semaphore
	KindMulti     LockKind = "multi"            // a MultiLock
	KindElection  LockKind = contender.Election // an Election: "election"
)

// Hooks report what happens to locks and sessions, for metrics and traces. Each may be nil. They
// are called concurrently. A call waits for its hooks, except Session, and except Lost unless the
// call itself finds the loss. They must not call Client.Close.
//
// Each Asked is followed by one Acquired or Failed of the same LockInfo.Call, with any number of
// Queued and Retried in between; each Acquired by one Released or Lost. With WithReentrancy, a call
// that joins a hold is Asked and Acquired under its own number; Released or Lost has that of the
// call whose hold it joined.
type Hooks struct {
	Session  func(session.Change)
	Asked    func(LockInfo) // a call asks for a lock
	Queued   func(LockInfo) // it waits; again when its place has changed, or who holds was read
	Acquired func(LockInfo)
	Failed   func(LockInfo) // it gave up: busy, ctx, closed
	Released func(LockInfo) // by Unlock
	Lost     func(LockInfo) // the hold ended without Unlock
	Retried  func(LockInfo) // a step failed and is made again

	// LeadFailed is told of the error that lead returned to Election.Run after its term was lost,
	// if that is more than the end of its context. Run campaigns again, as an http.Server goes on
	// after a handler that failed: so no caller would hear of it.
	LeadFailed func(LockInfo)
}

// and returns hooks that call h and then more.
func (h Hooks) and(more Hooks) Hooks {
	return Hooks{
		Session:  both(h.Session, more.Session),
		Asked:    both(h.Asked, more.Asked),
		Queued:   both(h.Queued, more.Queued),
		Acquired: both(h.Acquired, more.Acquired),
		Failed:   both(h.Failed, more.Failed),
		Released: both(h.Released, more.Released),
		Lost:     both(h.Lost, more.Lost),
		Retried:  both(h.Retried, more.Retried),

		LeadFailed: both(h.LeadFailed, more.LeadFailed),
	}
}

func both[T any](first, second func(T)) func(T) {
	switch {
	case first == nil:
		return second
	case second == nil:
		return first
	}
	return func(info T) { first(info); second(info) }
}

// LockInfo is a call for a lock, and what has come of it, for Hooks and Status.
type LockInfo struct {
	Call    uint64   // unique in this process
	Kind    LockKind // KindMutex, …
	Path    string   // of a MultiLock all paths, with commas
	Paths   []string // of a MultiLock
	Permits int      // of a Semaphore
	Owner   string   // WithOwner
	Try     bool     // TryLock
	// Context has the values of the call's context, its trace among them, and never ends. Nil in
	// Status.
	Context context.Context

	// For Queued and Status.Waits.
	Ahead      int    // how many are in the way
	HolderNode string // the first one's znode
	// the first one's owner, after 300 ms (3 s behind 1,000 others): "owner (host:pid)", or another
	// library's text
	HolderOwner string

	// For Acquired, Released, Lost and Status.Holds.
	Token  Token
	Node   string // of a MultiLock the first
	Joined uint64 // for Acquired: with WithReentrancy, the call whose hold this one joins

	Waited time.Duration // for Acquired and Failed
	Held   time.Duration // for Released and Lost
	// for Failed, Lost and Retried; for Released, why the znode may still be there, or had gone
	Err error

	// For Status alone.
	Since     time.Time // when it was asked for, or acquired
	SafeUntil time.Time // as Hold.SafeUntil
	Count     int       // of holds that are not released: more than one with WithReentrancy
}
