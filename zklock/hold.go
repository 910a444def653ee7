package zklock

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/locker/session"
)

// Token is a fencing token: the zxid at which the holder's place in line was made. It grows from holder to holder of a
// path and is never used again; a store that remembers the greatest it has seen can refuse a holder that is late.
// It is positive and fits an SQL BIGINT.
type Token int64

// Hold is one acquisition of one lock. Its methods may be called concurrently.
type Hold struct {
	g      *grip
	read   bool         // of a read lock
	ctx    leaseContext // made once by bind
	cancel context.CancelCauseFunc

	released atomic.Bool // by Unlock, or turned into another by Downgrade
}

// Context returns a context that is cancelled when the lock is no longer safely ours: before the ensemble can give it
// to anybody else, also when nothing is heard of the ensemble any more; for clocks that run alike within two per cent
// and a process that runs. context.Cause says why: ErrUnlocked, ErrClosed, or an error that matches ErrLost.
//
// Its Err, Done and Value look at the clock, about 50 ns each: a process that was stopped (SIGSTOP, a paused virtual
// machine) until the lease was over is told so when it asks, a loop on ctx.Err() or a select on ctx.Done() that begins
// after the stop at once. So are context.WithValue's children of it, and the contexts of Do, Guard, Election.Run and
// package lockhttp. What is left: a context that context.WithCancel, WithTimeout or another library derived from it, and
// a select that was waiting already, hear of the end when somebody asks this one, or when a timer has run, which is
// mostly within a millisecond of waking; HoldFrom(ctx) finds the hold, whose Err is right first thing. And whoever asks
// and then acts may be stopped in between: for that there are the token and Multi.
//
// It carries the values of the context that Lock was called with, and not its end. A Lock of the same path with a
// context that comes from it is reentrant, or ErrDeadlock: see WithReentrancy.
func (h *Hold) Context() context.Context { return &h.ctx }

// bind makes the hold's context, which ends with the grip's.
func (h *Hold) bind(grip, values context.Context, s *session.Session) {
	h.ctx.Context, h.cancel = context.WithCancelCause(holdContext{grip, values, h})
	h.ctx.s = s
}

// Err returns nil while the lock is held, and then the cause of Context's end. It looks at the clock as that does.
func (h *Hold) Err() error {
	if h.ctx.Err() == nil {
		return nil
	}
	return context.Cause(&h.ctx)
}

// Token returns the fencing token. Reentrant holds share it.
func (h *Hold) Token() Token { return Token(h.g.place().Czxid()) }

// SafeUntil returns the instant before which nobody else can hold the lock, local clock, unless the session or the
// znode is removed by force. It moves on with each heartbeat while the ensemble answers; see Session.SafeUntil of package
// session for when it moves back.
func (h *Hold) SafeUntil() time.Time { return h.g.place().Session().SafeUntil() }

// Node returns the path of our znode, below the chroot; of a MultiLock's, the first path's.
func (h *Hold) Node() string { return h.Nodes()[0] }

// Nodes returns the paths of our znodes: one, or for a MultiLock one for each path.
func (h *Hold) Nodes() []string { return h.g.place().Nodes() }

// Check asks the ensemble whether the lock is still ours: our znode, as its leader has it, with our session as its
// owner. Nil: it was, after the call began, but for the milliseconds that session.Sync tells of. When it is not, the hold is lost (ErrLost). It blocks for one round trip
// (a MultiLock's for one for each path), or as long as there is no connection; when ctx ends first, the error is ctx's and says nothing about the lock.
func (h *Hold) Check(ctx context.Context) error {
	h.need(ctx)
	if err := h.Err(); err != nil {
		return h.fail("check", err)
	}
	p := h.g.place()
	s := p.Session()
	for _, node := range p.Nodes() {
		stat, err := s.ExistsNow(ctx, node)
		switch {
		case errors.Is(err, zk.ErrNoNode), err == nil && stat.EphemeralOwner != s.ID():
			h.g.gone(p)
		case err != nil && h.Err() == nil:
			return h.fail("check", err)
		}
	}
	if err := h.Err(); err != nil {
		return h.fail("check", err)
	}
	return nil
}

// Multi carries out ZooKeeper writes in one transaction that commits only if the lock is still ours: whatever happened
// to this process meanwhile, nobody else had held the lock when they were done. The operations, and the responses, one
// for each, are the driver's: *zk.CreateRequest, *zk.DeleteRequest, *zk.SetDataRequest, *zk.CheckVersionRequest.
//
// Errors: ErrUnknownOutcome when the connection broke, the session ended or ctx ended before the reply: ask for this one
// first, since such an error may match ErrLost, or ctx's, as well. After any other error nothing was done: ErrLost when
// the lock was not ours any more, an operation's own (zk.ErrBadVersion, …) when the ensemble refused it. It blocks for
// one round trip, or as long as there is no connection.
func (h *Hold) Multi(ctx context.Context, ops ...any) (_ []zk.MultiResponse, err error) {
	h.need(ctx)
	h.g.writes.Add(1) // before the look at the hold: see grip.release
	defer func() {
		if !errors.Is(err, ErrUnknownOutcome) {
			h.g.writes.Add(-1)
		}
	}()
	if err := h.Err(); err != nil {
		return nil, h.fail("multi", err)
	}
	p := h.g.place()
	var guarded []any
	for _, node := range p.Nodes() {
		guarded = append(guarded, &zk.CheckVersionRequest{Path: node, Version: -1})
	}
	n := len(guarded)
	resps, err := p.Session().Multi(ctx, append(guarded, ops...)...)
	if len(resps) >= n {
		for _, r := range resps[:n] {
			if errors.Is(r.Error, zk.ErrNoNode) {
				h.g.gone(p)
				return nil, h.fail("multi", errors.Join(err, h.g.why()))
			}
		}
		resps = resps[n:]
	}
	if err != nil {
		return resps, h.fail("multi", err)
	}
	return resps, nil
}

// Unlock releases the lock: the hold's context ends, then its znode is deleted, and nothing else. Nil: it is deleted,
// and the next in line may hold. It blocks for one round trip, or for as long as there is no connection and neither ctx
// nor the session has ended. When ctx ends first, or has ended before, the error is ctx's, the hold counts as released,
// and the deletion goes on in the background until it has succeeded or the session is over.
//
// Errors: ErrNotHeld (released before), ErrLost (it was lost before, and why; or the session ended before the deletion
// was confirmed, and the lock goes with it).
func (h *Hold) Unlock(ctx context.Context) error {
	h.need(ctx)
	if !h.released.CompareAndSwap(false, true) {
		return h.fail("unlock", ErrNotHeld)
	}
	lost := h.Err()
	last, m, mine := h.g.drop(h.read)
	if from, ok := HoldFrom(ctx); ok && from.g == h.g && ctx.Err() == nil {
		// ctx is about to end with the hold, which is no reason to give up its release.
		var done context.CancelFunc
		deadline, bounded := ctx.Deadline()
		if ctx = context.WithoutCancel(ctx); !bounded {
			deadline = time.Now().Add(h.g.place().Session().Timeout())
		}
		ctx, done = context.WithDeadline(ctx, deadline)
		defer done()
	}
	h.cancel(ErrUnlocked)
	var err error
	switch {
	case m != nil:
		err = h.g.demoteFor(ctx, m, mine)
	case last && lost == nil:
		err = h.g.release(ctx)
	case last:
		err = h.g.surrender(ctx, lost)
	default:
		err = lost
	}
	if err != nil {
		return h.fail("unlock", err)
	}
	return nil
}

func (h *Hold) fail(op string, err error) error { return &lockError{op, h.g.info.Path, err} }
