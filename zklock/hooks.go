package zklock

import (
	"time"

	"github.com/zklock/locker/session"
)

// Hooks are told what happens, for metrics and traces. Each may be nil. They are called synchronously, never under a
// lock of this package, by the goroutine that the event happens in, several at a time; they should return soon, since
// the lock call that they report on goes on only then, and must not call Client.Close.
type Hooks struct {
	Session  func(SessionInfo)  // the session came up, is in doubt, or is over
	Asked    func(LockInfo)     // somebody wants a lock
	Queued   func(QueuedInfo)   // it waits in line; again whenever its place was seen to change
	Acquired func(AcquiredInfo) // it holds the lock
	Failed   func(FailedInfo)   // it gave up: busy, ctx, closed
	Released func(ReleasedInfo) // Unlock was called on a lock that was held
	Lost     func(LostInfo)     // a hold ended that nobody released
	Retried  func(RetriedInfo)  // a step failed and is made again
}

// SessionInfo is a change of the session that the client's locks live in.
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
	Path  string
	Paths []string // of a MultiLock; nil for the others
	Kind  string   // "mutex", "read", "write", "semaphore", "multi", "election"
	Owner string   // WithOwner
	Try   bool     // TryLock
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
}

// FailedInfo is a call that ended without a hold.
type FailedInfo struct {
	LockInfo
	Waited time.Duration
	Err    error
}

// ReleasedInfo is a hold that was released.
type ReleasedInfo struct {
	LockInfo
	Token Token
	Held  time.Duration
	Err   error // nil, or why the deletion goes on in the background
}

// LostInfo is a hold that ended without having been released.
type LostInfo struct {
	LockInfo
	Token Token
	Held  time.Duration
	Cause error // matches ErrLost, or ErrClosed
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
