package zklock

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/zklock/locker/recipe"
	"github.com/zklock/locker/session"
)

// Kind is the kind of lock of a call, hold or contender, in the words of Hooks, Status, package admin and their JSON forms.
type Kind string

const (
	KindMutex     Kind = "mutex"
	KindRead      Kind = "read"  // of an RWMutex
	KindWrite     Kind = "write" // of an RWMutex
	KindSemaphore Kind = "semaphore"
	// KindMulti is known only to the process that made the call: its contenders' znodes are those of a mutex, and
	// package admin shows them so. A candidate's are too, but its data have KindElection.
	KindMulti    Kind = "multi"
	KindElection Kind = "election"
)

// contender returns the kind that the contenders' names tell: for KindMulti and KindElection it is the mutex's.
func (k Kind) contender() recipe.Kind {
	switch k {
	case KindRead:
		return recipe.Read
	case KindWrite:
		return recipe.Write
	case KindSemaphore:
		return recipe.Permits
	}
	return recipe.Lock
}

// Hooks report what happens to locks and sessions, for metrics and traces. Each may be nil. They are called concurrently,
// each in the goroutine of its event. They should return soon, since the lock call that they report on waits for them, and
// must not call Client.Close.
//
// LockInfo.Call ties events together. Each Asked is followed by one Acquired or Failed, with any number of Queued and Retried
// in between; each Acquired by one Released or Lost. A call that is refused before it asks for anything is not reported. With
// WithReentrancy, a call that joins a hold is Asked and Acquired under its own number; Released or Lost has that of the call
// whose hold it joined (AcquiredInfo.Joined).
type Hooks struct {
	Session  func(SessionInfo)  // a session came up, is in doubt, or is over
	Asked    func(LockInfo)     // a call asks for a lock
	Queued   func(QueuedInfo)   // it waits in line; again whenever its place in line was seen to change
	Acquired func(AcquiredInfo) // it holds the lock
	Failed   func(FailedInfo)   // it gave up: busy, ctx, closed
	Released func(ReleasedInfo) // Unlock was called on a lock that was held
	Lost     func(LostInfo)     // a hold ended without Unlock
	Retried  func(RetriedInfo)  // a step failed and is made again
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

// SessionInfo is a change of the client's session; the next one has another ID.
type SessionInfo struct {
	State session.State // Connected, Disconnected (in doubt) or Over
	ID    int64
	Addr  string // of the server
	// Timeout is what the ensemble granted, for Connected.
	Timeout time.Duration
	Err     error // why, for Disconnected and Over
}

// LockInfo describes a lock and the call that asks for it.
type LockInfo struct {
	Call    uint64 // the number of the call, unique in this process
	Path    string
	Paths   []string // of a MultiLock; nil for the others
	Kind    Kind
	Permits int    // of a Semaphore; 0 for the others
	Owner   string // WithOwner
	Try     bool   // TryLock
	// Context has the values of the call's context, its trace among them. It never ends.
	Context context.Context
}

// QueuedInfo says where in line a call is.
type QueuedInfo struct {
	LockInfo
	Ahead  int    // contenders that are in its way
	Holder string // the first of them: its znode's path
	Who    string // its owner; "" until the wait has lasted for 300 ms and the znode was read
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

// lastCall numbers the calls of the process.
var lastCall atomic.Uint64

// tell logs an event of a lock, and then calls its hook, which may be nil. Package session logs the sessions' changes.
func tell[I any](c *Client, level slog.Level, event string, l *LockInfo, hook func(I), info I, more ...slog.Attr) {
	if c.log.Enabled(l.Context, level) {
		attrs := []slog.Attr{slog.Uint64("call", l.Call), slog.String("kind", string(l.Kind)), slog.String("path", l.Path)}
		if l.Owner != "" {
			attrs = append(attrs, slog.String("owner", l.Owner))
		}
		if l.Permits > 0 {
			attrs = append(attrs, slog.Int("permits", l.Permits))
		}
		if l.Try {
			attrs = append(attrs, slog.Bool("try", true))
		}
		c.log.LogAttrs(l.Context, level, event, append(attrs, more...)...)
	}
	if hook != nil {
		hook(info)
	}
}

// tellsWaits reports whether a user's function is called while a call waits.
func (c *Client) tellsWaits(ctx context.Context) bool {
	return c.opts.hooks.Queued != nil || c.opts.hooks.Retried != nil || c.log.Enabled(ctx, slog.LevelDebug)
}

func (t Token) attr() slog.Attr { return slog.Int64("token", int64(t)) }

func (c *Client) tellAsked(i LockInfo) {
	tell(c, slog.LevelDebug, "lock asked for", &i, c.opts.hooks.Asked, i)
}

func (c *Client) tellQueued(i QueuedInfo) {
	tell(c, slog.LevelDebug, "lock queued", &i.LockInfo, c.opts.hooks.Queued, i,
		slog.Int("ahead", i.Ahead), slog.String("holder", i.Holder), slog.String("who", i.Who))
}

func (c *Client) tellAcquired(i AcquiredInfo) {
	event, more := "lock acquired", slog.Duration("waited", i.Waited)
	if i.Joined != 0 {
		event, more = "lock acquired again", slog.Uint64("joined", i.Joined)
	}
	tell(c, slog.LevelDebug, event, &i.LockInfo, c.opts.hooks.Acquired, i, i.Token.attr(), slog.String("node", i.Node), more)
}

func (c *Client) tellFailed(i FailedInfo) {
	tell(c, slog.LevelDebug, "lock not acquired", &i.LockInfo, c.opts.hooks.Failed, i,
		slog.Duration("waited", i.Waited), slog.Any("error", i.Err))
}

func (c *Client) tellReleased(i ReleasedInfo) {
	more := []slog.Attr{i.Token.attr(), slog.Duration("held", i.Held)}
	if i.Err != nil {
		more = append(more, slog.Any("error", i.Err))
	}
	tell(c, slog.LevelDebug, "lock released", &i.LockInfo, c.opts.hooks.Released, i, more...)
}

// tellLost warns of a loss, unless it is Close's doing.
func (c *Client) tellLost(i LostInfo) {
	level := slog.LevelWarn
	if errors.Is(i.Cause, ErrClosed) {
		level = slog.LevelInfo
	}
	tell(c, level, "lock lost", &i.LockInfo, c.opts.hooks.Lost, i,
		i.Token.attr(), slog.Duration("held", i.Held), slog.Any("cause", i.Cause))
}

func (c *Client) tellRetried(i RetriedInfo) {
	tell(c, slog.LevelDebug, "lock step retried", &i.LockInfo, c.opts.hooks.Retried, i, slog.Any("error", i.Err))
}
