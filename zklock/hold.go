package zklock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/locker/internal/queue"
	"github.com/zklock/locker/internal/text"
	"github.com/zklock/locker/session"
)

// Token is a fencing token: the zxid of the transaction that made the holder's znode. It grows from
// holder to holder of a path: a store that remembers the greatest it has seen can refuse a late
// holder. Locks of different paths may have the same token. It is positive and fits an SQL BIGINT.
type Token int64

// Hold is one acquisition of one lock. Its methods may be called concurrently.
type Hold struct {
	a      *acquisition
	caller context.Context // that Lock was called with

	// Made once, by bind:
	ctx     leaseContext // ends with the hold alone
	cancel  context.CancelCauseFunc
	workCtx *leaseContext // ends with the hold, and with caller too

	// Made by tieWork, if caller may end:
	tied           leaseContext       // what workCtx points to; a field, to save an allocation
	untie          func() bool        // stops the callback for caller's end
	cancelDeadline context.CancelFunc // of caller's deadline; nil if it has none

	released atomic.Bool // by Unlock
}

// bind makes h a hold of a. Its context is a child of the session's. Its work's context ends with
// that, and with caller, the context that Lock was called with.
func (h *Hold) bind(a *acquisition, caller context.Context) {
	s := a.ticket.Session()
	h.a, h.caller, h.ctx.s = a, caller, s
	h.ctx.Context, h.cancel = context.WithCancelCause(holdContext{s.Context(), caller, h})
	if caller.Done() == nil { // it never ends
		h.workCtx = &h.ctx
		return
	}
	h.tieWork()
}

// tieWork makes the work's context: a child of the hold's that ends with the caller's too.
//
// It is the hold's child, and not the caller's, which would be cheaper. So the end of a session
// ends the works of all its holds at once, before any of them is reported, and before a caller who
// watches the hold can cancel: the cause is the loss.
func (h *Hold) tieWork() {
	var base context.Context = &h.ctx
	deadline, hasDeadline := h.caller.Deadline()
	if hasDeadline {
		base, h.cancelDeadline = context.WithDeadline(base, deadline)
	}
	work, cancel := context.WithCancelCause(base)
	h.tied = leaseContext{work, h.ctx.s}
	h.workCtx = &h.tied
	h.untie = context.AfterFunc(h.caller, func() {
		if hasDeadline && errors.Is(h.caller.Err(), context.DeadlineExceeded) {
			select {
			case <-work.Done(): // its own timer has fired: it says DeadlineExceeded, not Canceled
			case <-time.After(10 * time.Millisecond): // the caller's deadline is by another clock
			}
		}
		cancel(context.Cause(h.caller))
	})
}

// untieWork releases what ties the work's context to the caller's. The hold has ended, or never
// begins, since this may end the work's context.
func (h *Hold) untieWork() {
	if h.untie != nil {
		h.untie()
	}
	if h.cancelDeadline != nil {
		h.cancelDeadline()
	}
}

// tellAcquired reports the hold, which the call i got that had begun to wait at began. joined is
// the call whose acquisition the hold joins, or 0. If a hook panics, the caller does not get the
// hold, which is released.
func (h *Hold) tellAcquired(i LockInfo, began time.Time, joined uint64) {
	i.Token, i.Node, i.Joined, i.Waited = h.Token(), h.Node(), joined, time.Since(began)
	hasReturned := false
	defer func() {
		if !hasReturned {
			_ = h.Unlock() // the panic says more than its error
		}
	}()
	level, event := slog.LevelDebug, "lock acquired"
	switch {
	case joined != 0:
		event = "lock acquired again"
	case i.Kind == KindElection:
		level, event = slog.LevelInfo, "leadership won"
	}
	h.a.c.tell(level, event, h.a.c.opts.hooks.Acquired, i)
	hasReturned = true
}

// do calls fn with the work's context, and releases the hold. The error is that of Mutex.Do.
func (h *Hold) do(ctx context.Context, fn func(context.Context) error) (err error) {
	defer func() {
		h.awaitDeadlineOf(ctx)
		// That the release is refused is logged, and no error: fn ran while the lock was held.
		lost, _ := h.unlock()
		err = hide(err, ErrNotRun)
		if lost == nil {
			return
		}
		loss := &Error{"do", h.a.info.Path, fmt.Errorf("lost before its release: %w", lost)}
		if err == nil {
			err = loss
		} else {
			err = fmt.Errorf("%w; %w", err, loss)
		}
	}()
	return fn(h.workCtx)
}

// awaitDeadlineOf waits until ctx has ended if the work's context has reached its deadline, which
// is that of ctx. They have two timers, and the work's may fire first. A caller who sees that end,
// and then checks ctx, must find it ended too.
func (h *Hold) awaitDeadlineOf(ctx context.Context) {
	_, hasDeadline := ctx.Deadline()
	if !hasDeadline || !errors.Is(h.workCtx.Context.Err(), context.DeadlineExceeded) {
		return
	}
	select {
	case <-ctx.Done():
	case <-time.After(time.Second): // ctx does not keep its own deadline
	}
}

// Context returns a context that ends with the hold alone, for work that goes on when the context
// that Lock was called with has ended. It is cancelled before the ensemble can give the lock to
// another client, even when nothing is heard any more. context.Cause says why: ErrUnlocked,
// ErrClosed, or an error that matches ErrLost.
//
// If the process was stopped for longer than the lease, Err shows the loss at once, and a select
// usually wakes within a millisecond.
func (h *Hold) Context() context.Context {
	return &h.ctx
}

// Err returns nil while the lock is held, and then the cause of Context's end.
func (h *Hold) Err() error {
	h.ctx.look()
	return context.Cause(h.ctx.Context)
}

// Token returns the fencing token. Reentrant holds share it.
func (h *Hold) Token() Token {
	return Token(h.a.ticket.Czxid())
}

// SafeUntil returns the instant, by the local clock, before which no other client can hold the
// lock, unless it is released, or session or znode are removed by force, or this process ends with
// a session file (WithSessionFile). Each answered heartbeat moves it on. When nothing is heard any
// more, the context ends at least a twentieth of the session timeout before it (0.5 s by default),
// in which the work can stop.
func (h *Hold) SafeUntil() time.Time {
	return h.ctx.s.SafeUntil()
}

// Node returns the path of our znode, below the chroot; of a MultiLock's, the first path's.
func (h *Hold) Node() string {
	return h.a.ticket.Nodes()[0]
}

// Nodes returns the paths of our znodes: one, or for a MultiLock one for each path.
func (h *Hold) Nodes() []string {
	return slices.Clone(h.a.ticket.Nodes())
}

// Check asks the ensemble whether the lock is still ours, by a write. It returns nil if it was,
// after the call began.
//
// Errors: ErrLost: it is not, and the hold is lost from then on. ErrUnlocked, ErrClosed: this hold
// was released, or the Client closed. ctx's says nothing about the lock.
func (h *Hold) Check(ctx context.Context) error {
	err := h.Err()
	if err == nil {
		err = h.a.ticket.Check(ctx)
	}
	if errors.Is(err, queue.ErrGone) { // the hold is about to end
		err = ErrNodeDeleted
	}
	return h.fail("check", cmp.Or(h.Err(), hide(err, ErrUnknownOutcome)))
}

// Multi carries out ZooKeeper writes in one transaction that commits only if the lock is still
// ours: no other client has held it in between. The operations are session.OpCreate, OpSet,
// OpDelete and OpCheck; the responses are the driver's. It blocks for one round trip, or as long as
// there is no connection.
//
// Errors:
//   - ErrUnknownOutcome: it may have been carried out. Check for this one first: it may match the
//     next ones, or ctx's, too.
//   - ErrLost, ErrUnlocked, ErrClosed: the lock was not ours any more.
//   - An operation's own (zk.ErrBadVersion, …): the ensemble refused it.
func (h *Hold) Multi(ctx context.Context, ops ...session.Op) ([]zk.MultiResponse, error) {
	resps, err := h.a.ticket.Multi(ctx, h.Err, ops...)
	if errors.Is(err, queue.ErrGone) && h.Err() == nil { // the hold is about to end
		err = errors.Join(err, ErrNodeDeleted)
	}
	return resps, h.fail("multi", err)
}

// Unlock releases the lock: the hold's context ends, then its znode is deleted. It waits for the
// ensemble's answer for about a tenth of the session timeout, a second at most, and not at all
// without a connection; then the deletion goes on in the background.
//
// Unlock returns nil if the lock was ours until now. Errors:
//   - ErrLost: it had been lost, with the cause.
//   - ErrClosed: the Client was closed before.
//   - ErrUnlocked: it was released before, and this call has done nothing.
//   - zk.ErrNoAuth: it was ours until now, and the ensemble refuses the deletion of its znode, for
//     lack of the permission DELETE. The deletion is repeated, after a minute at most each time,
//     until it succeeds or the session ends. Until then the lock stays taken.
func (h *Hold) Unlock() error {
	lost, refused := h.unlock()
	return h.fail("unlock", cmp.Or(lost, refused))
}

// unlock releases the hold. lost says why the lock had been lost, or that this hold had been
// released before. refused says that the ensemble refuses the release.
func (h *Hold) unlock() (lost, refused error) {
	if !h.released.CompareAndSwap(false, true) {
		return ErrUnlocked, nil
	}
	if explained := h.a.ticket.Deleted(); explained != nil {
		// The znode was deleted. It will soon be known by whom, and Err will then say why the lock
		// is lost. This call may come from the hook that reports the loss, which is called after
		// the context has ended, and for which explained waits.
		select {
		case <-explained:
		case <-h.ctx.Context.Done():
		}
	}
	lost = h.Err()
	last := h.a.drop(h)
	h.untieWork()
	if !last {
		return lost, nil
	}
	err := h.release()
	switch {
	case errors.Is(err, ErrNodeDeleted): // by another client, perhaps before this call
		lost = cmp.Or(lost, err)
	case errors.Is(err, zk.ErrNoAuth):
		refused = fmt.Errorf(
			"the lock stays taken until its znode can be deleted, which is tried again: %w", err)
	}
	return lost, refused
}

// release releases the lock, and waits for the ensemble's answer as long as Unlock does. Without a
// connection it does not wait, and the deletion goes on in the background.
func (h *Hold) release() error {
	s := h.ctx.s
	if s.State() != session.Connected {
		return h.a.release(endedContext)
	}
	bounds := &h.a.c.unlockBounds
	bound := bounds.begin(min(s.Timeout()/10, time.Second))
	defer bounds.finish(bound)
	return h.a.release(bound.ctx)
}

// endedContext has ended.
var endedContext = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

func (h *Hold) fail(op string, err error) error { return failed(op, h.a.info.Path, err) }

// withCause adds to err, the error of I/O under the hold's context, why the hold has ended. The
// result does not match a context's error: nobody has cancelled the caller's context. If that has
// ended too, or the hold has not, withCause returns err.
func (h *Hold) withCause(caller context.Context, err error) error {
	cause := h.Err()
	if err == nil || cause == nil || caller.Err() != nil {
		return err
	}
	return fmt.Errorf("%w: %w", cause, hide(err, context.Canceled, context.DeadlineExceeded))
}

// String names the lock, the token, and how the hold has ended.
func (h *Hold) String() string {
	s := "hold of " + text.Foreign(h.a.info.Path) + ", token " +
		strconv.FormatInt(int64(h.Token()), 10)
	switch err := h.Err(); {
	case errors.Is(err, ErrUnlocked):
		s += ", released"
	case err != nil:
		s += ", lost: " + bare(err)
	}
	return s
}
