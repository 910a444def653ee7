package zklock

import (
	"context"
	"time"

	"github.com/zklock/locker/session"
)

// Hooks are told what happens, for metrics and traces. Each may be nil. They are called synchronously, never under a
// lock of this package, by the goroutine that the event happens in, several at a time; they should return soon, since
// the lock call that they report on goes on only then, and must not call Client.Close.
//
// LockInfo.Call ties events together. What is Asked for is Acquired or has Failed, once; in between it may be Queued and
// Retried, any number of times. What was Acquired is Released or Lost, once; in between it may be Downgraded, once, and
// an end at that moment may be told first. All of that has the number of the call that asked. A call that is refused
// before it asks for anything (a bad path or option, a context that has ended) is not told of.
//
// With WithReentrancy, a call that counts up a hold is Asked and Acquired under a number of its own, and Joined names
// the call whose hold it is. That one is Released, when the last Unlock was called, or Lost; the joined one is not.
type Hooks struct {
	Session    func(SessionInfo)    // a session came up, is in doubt, or is over
	Asked      func(LockInfo)       // somebody wants a lock
	Queued     func(QueuedInfo)     // it waits in line; again whenever its place was seen to change
	Acquired   func(AcquiredInfo)   // it holds the lock
	Failed     func(FailedInfo)     // it gave up: busy, ctx, closed
	Downgraded func(DowngradedInfo) // a hold of a write lock became one of the read lock
	Released   func(ReleasedInfo)   // Unlock was called on a lock that was held
	Lost       func(LostInfo)       // a hold ended that nobody released
	Retried    func(RetriedInfo)    // a step failed and is made again
}

// JoinHooks returns hooks that tell all of hooks, in that order: the program's own beside a library's for metrics.
func JoinHooks(hooks ...Hooks) Hooks {
	var j Hooks
	for _, h := range hooks {
		j.Session = both(j.Session, h.Session)
		j.Asked = both(j.Asked, h.Asked)
		j.Queued = both(j.Queued, h.Queued)
		j.Acquired = both(j.Acquired, h.Acquired)
		j.Failed = both(j.Failed, h.Failed)
		j.Downgraded = both(j.Downgraded, h.Downgraded)
		j.Released = both(j.Released, h.Released)
		j.Lost = both(j.Lost, h.Lost)
		j.Retried = both(j.Retried, h.Retried)
	}
	return j
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

// SessionInfo is a change of a session that the client's locks live in, of which there may be several (WithEphemeralBytes):
// ID tells them apart. A further one that was not needed any more is Over with ErrClosed.
type SessionInfo struct {
	State session.State // Connected, Disconnected (in doubt) or Over
	ID    int64
	Addr  string // of the server
	// Timeout is what the ensemble granted, for Connected.
	Timeout time.Duration
	Err     error // why, for Disconnected and Over
}

// LockInfo names a lock and who asks for it.
type LockInfo struct {
	Call    uint64 // the number of the call that asked: no other call of this process has it
	Path    string
	Paths   []string // of a MultiLock; nil for the others
	Kind    string   // "mutex", "read", "write", "semaphore", "multi", "election"
	Permits int      // of a Semaphore; 0 for the others
	Owner   string   // WithOwner
	Try     bool     // TryLock
	// Context has the values of the context that the call was made with, the trace that it belongs to among them. It
	// never ends: there is nothing in it to wait for.
	Context context.Context
}

// QueuedInfo is a place in line.
type QueuedInfo struct {
	LockInfo
	Ahead  int    // contenders that stand in the way
	Holder string // the first of them: its znode's path
	Who    string // who that is; "" until the wait has lasted for 300 ms and it was worth a read
}

// AcquiredInfo is a hold that began.
type AcquiredInfo struct {
	LockInfo
	Token  Token
	Node   string
	Waited time.Duration // since it was asked for
	// Joined is the call whose hold this one counts up, for a reentrant call; else 0.
	Joined uint64
}

// FailedInfo is a call that ended without a hold.
type FailedInfo struct {
	LockInfo
	Waited time.Duration
	Err    error
}

// DowngradedInfo is a hold of a write lock that became one of the read lock, without having been free: by Downgrade, or
// because the write lock was released before a read lock that was taken under it. Its Kind is "read" from here on.
type DowngradedInfo struct {
	LockInfo
	Token Token // as before
	Node  string
	Held  time.Duration // for writing
}

// ReleasedInfo is a hold that was released.
type ReleasedInfo struct {
	LockInfo
	Token Token
	Held  time.Duration // from Acquired on
	Err   error         // nil, or why the deletion goes on in the background
}

// LostInfo is a hold that ended without having been released.
type LostInfo struct {
	LockInfo
	Token Token
	Held  time.Duration // from Acquired on
	Cause error         // matches ErrLost, or ErrClosed
}

// RetriedInfo is a step that is made again.
type RetriedInfo struct {
	LockInfo
	Err error
}

// call calls a hook that may be nil.
func call[T any](hook func(T), info T) {
	if hook != nil {
		hook(info)
	}
}
