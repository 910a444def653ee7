package zklock

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/zklock/locker/internal/contender"
	"github.com/zklock/locker/internal/queue"
	"github.com/zklock/locker/internal/session"
	"github.com/zklock/locker/internal/session/failure"
	"github.com/zklock/locker/internal/text"
	"github.com/zklock/locker/recipe"
)

// lock is what all kinds of locks have in common: paths, options, Client. It stores no ownership.
type lock struct {
	c     *Client
	noun  string   // what it is, for messages
	path  string   // of a MultiLock all of them, for messages
	dirs  []string // its path, or a MultiLock's paths
	o     lockOptions
	data  []byte      // the contenders'
	err   error       // of the path or the options: reported by every call
	size  *queue.Size // of a semaphore; nil for the others
	rank  int         // of an election's candidates
	enter entrance    // an option's; nil: obtain
}

// entrance is how a call takes its place in line: it returns a ticket that holds. After an error that may be a nil pointer.
type entrance func(context.Context, *waiting) (ticket, error)

// What a lock is, where its options depend on that.
const (
	nounMutex     = "mutex"
	nounSemaphore = "semaphore"
	nounElection  = "election"
	nounJob       = "job"
)

func (c *Client) newLock(noun string, opts []LockOption, paths ...string) lock {
	l := lock{c: c, noun: noun, path: strings.Join(paths, ","), dirs: paths}
	for i, p := range paths {
		if l.err = checkLockPath(p); l.err == nil && slices.Contains(paths[:i], p) {
			l.err = fmt.Errorf("%w %q: is named twice", ErrPath, p)
		}
		if l.err != nil {
			return l
		}
	}
	l.o, l.err = newLockOptions(noun, opts)
	l.data = contender.Mine(l.o.owner, nil, "").Encode()
	if l.err == nil && l.o.entrance != nil {
		l.enter, l.err = l.o.entrance(l)
	}
	return l
}

// String names the lock.
func (l *lock) String() string { return l.noun + " " + text.Foreign(strings.Join(l.dirs, ", ")) }

// acquire returns a hold, and the context for work under it: a further one of the acquisition that ctx carries, or a new
// one. WithMaxWait bounds a call that is no try. info has the call's kind, permits and try; op is its name in errors.
func (l *lock) acquire(ctx context.Context, op string, info LockInfo) (context.Context, *Hold, error) {
	caller := ctx
	if l.err != nil {
		return caller, nil, l.fail(op, l.err)
	}
	if ctx.Err() != nil {
		return caller, nil, l.fail(op, l.c.ended(ctx, aboutToQueue(ctx)))
	}
	info.Call, info.Path, info.Owner, info.Context = lastCall.Add(1), l.path, l.o.owner, context.WithoutCancel(ctx)
	if info.Kind == KindMulti {
		info.Paths = l.dirs
	}
	if l.o.waitSet && l.o.wait == 0 {
		info.Try = true
	} else if l.o.waitSet && !info.Try {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, l.o.wait, errWaited)
		defer cancel()
	}
	began := time.Now()
	w, use := &waiting{c: l.c, caller: caller, info: info, since: began, cancel: func() {}}, &l.c.use
	if l.c.tellsWaits(ctx) {
		ctx, w.cancel = context.WithCancel(ctx)
		defer w.cancel()
	}
	use.update(func() { use.waits[w] = struct{}{} })
	defer use.update(func() { delete(use.waits, w) })
	l.c.tell(slog.LevelDebug, "lock asked for", l.c.opts.hooks.Asked, info)
	h, err := l.reenter(caller, info.Kind)
	if h != nil {
		h.tellAcquired(info, began, h.a.info.Call)
	} else if err == nil {
		h, err = l.take(ctx, w)
	}
	if err != nil {
		err = l.fail(op, hide(l.explain(ctx, w.explain(ctx, err)), ErrUnknownOutcome)) // what was made is being removed
		info.Waited, info.Err = time.Since(began), err
		l.c.tell(slog.LevelDebug, "lock not acquired", l.c.opts.hooks.Failed, info)
	}
	if w.panicked != nil {
		if h != nil {
			_ = h.Unlock() // the panic goes on
		}
		panic(w.panicked)
	}
	if err != nil {
		return caller, nil, err
	}
	return h.work, h, nil
}

// lastCall numbers the calls of the process.
var lastCall atomic.Uint64

// errWaited is the cause with which a call's context ends after WithMaxWait's time.
var errWaited = errors.New("WithMaxWait's time was over")

// aboutToQueue is what a call was doing whose context had ended before it began.
func aboutToQueue(ctx context.Context) error {
	if h, ok := ctx.Value(holdKey{}).(*Hold); ok && h.Err() != nil && errors.Is(context.Cause(ctx), h.Err()) {
		return fmt.Errorf("about to queue with the context of an earlier hold, %v; use the context that its Lock was called with", h)
	}
	return errors.New("about to queue")
}

// reenter returns a further hold if ctx carries one of the same lock and the lock is reentrant. Otherwise waiting would
// never end: ErrDeadlock, as for a hold of some of a MultiLock's paths, or of others too. Nil, nil: ctx carries none.
// Permits of a semaphore are added up instead: see queue.Queue.Held.
func (l *lock) reenter(ctx context.Context, kind LockKind) (*Hold, error) {
	if kind == KindSemaphore {
		return nil, nil
	}
	for _, dir := range l.dirs {
		if a, ok := ctx.Value(lockKey{l.c, dir}).(*acquisition); ok {
			if h, err := a.join(ctx, l, dir, kind); h != nil || err != nil {
				return h, err
			}
		}
	}
	return nil, nil
}

// take waits until the lock is ours, and makes the hold.
func (l *lock) take(ctx context.Context, w *waiting) (*Hold, error) {
	t, err := l.queueUp(ctx, w)
	if err != nil {
		return nil, err
	}
	if !l.c.countEnd() {
		l.c.giveUp(ctx, t)
		return nil, closedError{}
	}
	return l.c.newHold(t, w, l.o), nil
}

// queueUp returns a ticket that holds. After an error it may be a nil pointer.
func (l *lock) queueUp(ctx context.Context, w *waiting) (ticket, error) {
	if l.enter != nil {
		return l.enter(ctx, w)
	}
	return l.obtain(ctx, w.info, w)
}

// obtain returns a ticket that holds. If its session ends, it queues again in the next one.
func (l *lock) obtain(ctx context.Context, call LockInfo, caller queue.Caller) (t *queue.Ticket, err error) {
	var aside queue.LineError // the place of a candidate that has stepped aside, until it has entered again
	defer func() {
		if err != nil && aside.Ahead > 0 && errors.Is(err, ctx.Err()) && !errors.As(err, new(queue.LineError)) {
			err = fmt.Errorf("%w, %w", err, aside)
		}
	}()
	queues := l.queues(ctx, call)
	for i := range queues {
		queues[i].Caller = caller
	}
	for {
		var s *session.Session
		if s, err = l.c.await(ctx); err != nil {
			return nil, err
		}
		if call.Try {
			t, err = queue.Try(ctx, s, queues...)
		} else if t, err = queue.Enter(ctx, s, queues...); err == nil {
			if err = t.Wait(ctx); err != nil {
				l.c.giveUp(ctx, t)
			}
		}
		switch {
		case err == nil:
			return t, nil
		case errors.Is(err, queue.ErrOutranked):
			errors.As(err, &aside)
			queues[0].Since = t.Arrival()
			continue // at the end of the line
		case errors.Is(err, ErrSessionFull):
			return nil, fmt.Errorf("%w: open another Client for more locks", err)
		case !failure.IsOne(err, ctx.Err(), ErrLost, ErrClosed, queue.ErrGone): // an answer, whatever has ended since
			return nil, err
		case ctx.Err() != nil, l.c.ctx.Err() != nil, errors.Is(err, ErrAuth): // the next session would not do
			return nil, l.c.ended(ctx, err)
		}
		aside, queues[0].Since = queue.LineError{}, 0
		caller.Retried(err) // our session is over, or our znode is gone: take another place
	}
}

// queues describes the places in line of a call.
func (l *lock) queues(ctx context.Context, call LockInfo) []queue.Queue {
	permits, _ := ctx.Value(permitsKey{l.c, l.path}).(int)
	queues := make([]queue.Queue, len(l.dirs))
	for i, dir := range l.dirs {
		queues[i] = queue.Queue{Dir: dir, Kind: contenderKind(call.Kind), Permits: call.Permits, Size: l.size, Held: permits,
			ACL: l.o.acl, Container: l.o.container, Data: l.data,
			Ranked: l.noun == nounElection, Rank: l.rank, Describe: contender.Describe, Log: l.c.log}
	}
	return queues
}

// contenderKind returns the kind that the contenders' names tell.
func contenderKind(kind LockKind) recipe.Kind {
	switch kind {
	case KindRead:
		return recipe.Read
	case KindWrite:
		return recipe.Write
	case KindSemaphore:
		return recipe.Permits
	case KindMutex, KindMulti, KindElection:
		return recipe.Lock
	}
	panic("zklock: not a kind: " + string(kind))
}

// explain returns ErrBusy for a try that found another contender, and for a call that was in line when WithMaxWait's time
// ended before its caller's context. A call that could not queue, for lack of a connection, did not find the lock busy.
// ErrBusy has the cause as text only, since a deadline in it is not the caller's.
func (l *lock) explain(ctx context.Context, err error) error {
	var line queue.LineError
	if !errors.As(err, &line) {
		return err
	}
	if errors.Is(err, queue.ErrBusy) {
		return busy(line.Line, err.Error())
	}
	var found error = line
	if l.c.use.holding(l.dirs, line.Node) {
		found, err = fmt.Errorf("%w (this process)", line), fmt.Errorf("%w (this process)", err)
	}
	if errors.Is(context.Cause(ctx), errWaited) {
		return busy(line.Line, fmt.Sprintf("gave up after %v: %v", l.o.wait, found))
	}
	return err
}

// withSession runs fn in the current session, for a call that takes no place in line.
func (l *lock) withSession(ctx context.Context, op string, fn func(*session.Session) error) error {
	err := l.err
	if err == nil {
		var s *session.Session
		if s, err = l.c.await(ctx); err == nil {
			err = fn(s)
		}
	}
	return l.fail(op, err)
}

func (l *lock) fail(op string, err error) error { return failed(op, l.path, err) }
