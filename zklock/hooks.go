package zklock

import (
	"context"
	"time"

	"github.com/zklock/locker/session"
)

// Hooks report what happens to locks and sessions, for metrics and traces. Each may be nil. They are called
// synchronously, never while a mutex of this package is held, in the goroutine in which the event happens, and
// concurrently. They should return soon, since the lock call that they report on waits for them, and must not call
// Client.Close.
//
// LockInfo.Call ties events together. Each Asked is followed by one Acquired or Failed, with any number of Queued and
// Retried in between. Each Acquired is followed by one Released or Lost. It may be Downgraded once in between; Released or
// Lost may be reported before a concurrent Downgraded. All of these have the number of the call that asked. A call that is
// refused before it asks for anything (a bad path or option, a context that has ended) is not reported.
//
// With WithReentrancy, a call that joins a hold is Asked and Acquired under its own number, and Joined is the number of
// the call whose hold it joins. Released, after the last Unlock, or Lost is reported with the number of that joined call
// only.
type Hooks struct {
	Session        func(SessionInfo)        // a session came up, is in doubt, or is over
	Asked          func(LockInfo)           // a call asks for a lock
	Queued         func(QueuedInfo)         // it waits in line; again whenever its place in line was seen to change
	Acquired       func(AcquiredInfo)       // it holds the lock
	Failed         func(FailedInfo)         // it gave up: busy, ctx, closed
	AskedToRelease func(AskedToReleaseInfo) // a holder was asked to let go: see Client.Ask
	Downgraded     func(DowngradedInfo)     // a hold of a write lock became one of the read lock
	Released       func(ReleasedInfo)       // Unlock was called on a lock that was held
	Lost           func(LostInfo)           // a hold ended without Unlock
	Retried        func(RetriedInfo)        // a step failed and is made again
}

// JoinHooks returns hooks that call each of hooks, in that order: the program's own beside a library's for metrics.
func JoinHooks(hooks ...Hooks) Hooks {
	var j Hooks
	for _, h := range hooks {
		j.Session = both(j.Session, h.Session)
		j.Asked = both(j.Asked, h.Asked)
		j.Queued = both(j.Queued, h.Queued)
		j.Acquired = both(j.Acquired, h.Acquired)
		j.Failed = both(j.Failed, h.Failed)
		j.AskedToRelease = both(j.AskedToRelease, h.AskedToRelease)
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

// SessionInfo is a change of a session that the client's locks live in, of which there may be several
// (WithEphemeralBytes): ID tells them apart. A further session that is no longer needed is Over with ErrClosed.
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
	Kind    Kind
	Permits int    // of a Semaphore; 0 for the others
	Owner   string // WithOwner
	Try     bool   // TryLock
	// Context has the values of the context that the call was made with, the trace that it belongs to among them. It
	// never ends: there is nothing in it to wait for.
	Context context.Context
}

// QueuedInfo says where in line a call is.
type QueuedInfo struct {
	LockInfo
	Ahead  int    // contenders that are in its way
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

// AskedToReleaseInfo is a request to a holder to let go.
type AskedToReleaseInfo struct {
	LockInfo
	Token Token
	ReleaseRequest
}

// DowngradedInfo is a hold of a write lock that became one of the read lock, without having been free: by Downgrade, or
// because the write lock was released before a read lock that was taken under it. Its Kind is KindRead from here on.
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
