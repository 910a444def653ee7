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

// lock is what all kinds of locks have in common. It stores no ownership.
type lock struct {
	c     *Client
	kind  *kind
	path  string   // of a MultiLock all of them, for messages
	dirs  []string // its path, or a MultiLock's paths
	keys  []any    // the lockKey of each of dirs
	o     lockOptions
	place queue.Queue // what each call's places in line have in common
	enter entrance    // of WithLocalHandoff; nil without it
	err   error       // what is wrong with the path or the options: every call returns it
}

// entrance is how a call gets its place in line. It returns a ticket that holds. After an error the
// ticket may be a nil pointer.
type entrance func(context.Context, *waiting) (ticket, error)

// kind is what a lock is, where its options and messages depend on that.
type kind struct {
	noun string
	// why WithReentrancy is refused, with the noun's article; "" if it is not
	notReentrant    string
	hasLocalHandoff bool
	isRanked        bool // its contenders have ranks
}

// The kinds of locks.
var (
	mutexKind     = kind{noun: "mutex", hasLocalHandoff: true}
	rwMutexKind   = kind{noun: "read/write lock"}
	multiLockKind = kind{noun: "multi lock"}
	semaphoreKind = kind{noun: "semaphore",
		notReentrant: "a semaphore: each call takes permits of its own"}
	electionKind = kind{noun: "election", notReentrant: "an election: a candidate leads once",
		isRanked: true}
	jobKind = kind{noun: "job",
		notReentrant: "a job: two calls under one hold would both run it"}
)

func (c *Client) newLock(k *kind, opts []LockOption, paths ...string) lock {
	l := lock{c: c, kind: k, path: strings.Join(paths, ","), dirs: paths, keys: lockKeys(c, paths)}
	if l.err = checkPaths(paths); l.err != nil {
		return l
	}
	l.o, l.err = newLockOptions(k, opts)
	l.place = queue.Queue{
		ACL:       l.o.acl,
		Container: l.o.container,
		Data:      contender.Mine(l.o.owner, nil, "").Encode(),
		Ranked:    k.isRanked,
		Describe:  contender.Describe,
		Log:       c.log,
	}
	if l.err == nil && l.o.localHandoff {
		l.enter, l.err = l.localEntrance()
	}
	return l
}

func checkPaths(paths []string) error {
	for i, p := range paths {
		if err := checkLockPath(p); err != nil {
			return err
		}
		if slices.Contains(paths[:i], p) {
			return fmt.Errorf("%w %q: is named twice", ErrPath, p)
		}
	}
	return nil
}

// String names the lock.
func (l *lock) String() string {
	return l.kind.noun + " " + text.Foreign(strings.Join(l.dirs, ", "))
}

// acquire is the body of Lock, TryLock, RLock, Acquire and Campaign. It returns a hold, and the
// context for work under it. The hold is a further one of the acquisition that ctx carries, if
// there is one and the lock is reentrant. Otherwise it is that of a new acquisition. op names the
// call in errors. The caller sets info's Kind, Permits and Try.
func (l *lock) acquire(
	ctx context.Context, op string, info LockInfo,
) (context.Context, *Hold, error) {
	if l.err != nil {
		return ctx, nil, l.fail(op, l.err)
	}
	if ctx.Err() != nil {
		return ctx, nil, l.fail(op, l.c.ended(ctx, errAboutToQueue(ctx)))
	}
	w := l.newWaiting(ctx, info)
	h, err := l.wait(ctx, op, w)
	if w.aborted != nil {
		// During the wait, a hook or the log's handler panicked or called runtime.Goexit. This call
		// ends in the same way. Its caller gets no hold, so the lock is released here. The panic
		// says more than an error of that release.
		if h != nil {
			_ = h.Unlock()
		}
		w.aborted.resume()
	}
	if err != nil {
		return ctx, nil, err
	}
	return h.workCtx, h, nil
}

// wait returns a hold for the call w, whose caller has ctx. Meanwhile Status shows the call.
func (l *lock) wait(ctx context.Context, op string, w *waiting) (*Hold, error) {
	ctx, cancel := l.bound(ctx, w)
	defer cancel()
	l.c.use.update(func() { l.c.use.waits[w] = struct{}{} })
	defer l.c.use.update(func() { delete(l.c.use.waits, w) })
	l.c.tell(slog.LevelDebug, "lock asked for", l.c.opts.hooks.Asked, w.info)
	h, err := l.holdFor(ctx, w)
	if err == nil {
		return h, nil
	}
	err = w.withRetries(ctx, err)
	err = l.classify(ctx, w, err)
	err = hide(err, ErrUnknownOutcome) // a znode that may have been created is being deleted
	err = l.fail(op, err)
	w.tellFailed(err)
	return nil, err
}

// newWaiting returns the call of a caller with ctx. With WithMaxWait(0) it is a try.
func (l *lock) newWaiting(ctx context.Context, info LockInfo) *waiting {
	info.Call = lastCall.Add(1)
	info.Path = l.path
	info.Owner = l.o.owner
	info.Context = context.WithoutCancel(ctx)
	if info.Kind == KindMulti {
		info.Paths = l.dirs
	}
	if l.o.waitSet && l.o.wait == 0 {
		info.Try = true
	}
	return &waiting{c: l.c, caller: ctx, info: info, since: time.Now(), cancel: func() {},
		tells: l.c.tellsWaits(ctx)}
}

// bound returns the context of w's wait, which ends with ctx, and when the call has taken as long
// as it may: a try has tryLimit, another call WithMaxWait's time. It sets w.cancel.
func (l *lock) bound(ctx context.Context, w *waiting) (context.Context, context.CancelFunc) {
	switch {
	case w.info.Try:
		w.limit = l.c.tryLimit()
		ctx, w.cancel = context.WithTimeoutCause(ctx, w.limit, errTried)
	case l.o.waitSet:
		w.limit = l.o.wait
		ctx, w.cancel = context.WithTimeoutCause(ctx, w.limit, errWaited)
	case w.tells:
		ctx, w.cancel = context.WithCancel(ctx)
	}
	return ctx, w.cancel
}

// tryLimit returns how long a try may take. It waits for no other contender, but a server may be
// away or without a leader: half a session timeout is enough to reach another one.
func (c *Client) tryLimit() time.Duration {
	return min(max(c.present.Load().session.Timeout()/2, minTry), maxTry)
}

// minTry and maxTry bound tryLimit. A program that tries does not want to wait, but the client's
// next session may be opened only after a pause of a second (Client.keep).
const (
	minTry = 2 * time.Second
	maxTry = 5 * time.Second
)

// holdFor returns a hold for the call w.
func (l *lock) holdFor(ctx context.Context, w *waiting) (*Hold, error) {
	h, joined, err := l.reenter(w.caller, w.info.Kind)
	if err != nil {
		return nil, err
	}
	if joined {
		h.tellAcquired(w.info, w.since, h.a.info.Call)
		return h, nil
	}
	ctx, err = l.besideOtherClients(ctx, w)
	if err != nil {
		return nil, err
	}
	return l.take(ctx, w)
}

// lastCall numbers the calls of the process.
var lastCall atomic.Uint64

// The causes with which a call's context ends when the call has taken as long as it may.
var (
	errWaited = errors.New("WithMaxWait's time was over")
	errTried  = errors.New("a try's own")
)

// errAboutToQueue returns the error of a call whose context had ended before the call began.
func errAboutToQueue(ctx context.Context) error {
	h, ok := ctx.Value(holdKey{}).(*Hold)
	endedWithHold := ok && h.Err() != nil && errors.Is(context.Cause(ctx), h.Err())
	if endedWithHold {
		return fmt.Errorf(
			"about to queue with the context of an earlier hold, %v; use the context that its Lock was called with", h)
	}
	return errors.New("about to queue")
}

// reenter returns a further hold of the acquisition that ctx carries, if that is of the same lock
// and the lock is reentrant. joined is false if ctx carries no hold of the lock.
//
// Permits of a semaphore are added up instead: see queue.Queue.Held.
//
// Errors:
//   - ErrDeadlock: waiting would never end. The lock is not reentrant, or it is a MultiLock and the
//     hold does not have exactly its paths.
//   - ErrConflict: the hold is of another kind of lock on the same path.
func (l *lock) reenter(ctx context.Context, kind LockKind) (h *Hold, joined bool, err error) {
	if kind == KindSemaphore {
		return nil, false, nil
	}
	for i, dir := range l.dirs {
		a, ok := ctx.Value(l.keys[i]).(*acquisition)
		if !ok || !a.live() {
			continue
		}
		if err := a.mayJoin(l, dir, kind); err != nil {
			return nil, false, err
		}
		if h, joined = a.join(ctx); joined {
			return h, true, nil
		}
	}
	return nil, false, nil
}

// take waits until the lock is ours, and makes the hold.
func (l *lock) take(ctx context.Context, w *waiting) (*Hold, error) {
	for {
		t, err := l.queueUp(ctx, w)
		if err != nil {
			return nil, err
		}
		work := l.c.beginWork(t.Session())
		if work == nil {
			// After the ticket began to hold, the session was lost and replaced: queue again.
			t.Lose(t.Session().Err())
			l.c.giveUp(ctx, t)
			continue
		}
		if !l.c.reserveEnd() { // acquisition.release or finishLost calls ends.Done
			work.end()
			l.c.giveUp(ctx, t)
			return nil, closedError{}
		}
		return l.newHold(t, w, work), nil
	}
}

// queueUp returns a ticket that holds. After an error the ticket may be a nil pointer.
func (l *lock) queueUp(ctx context.Context, w *waiting) (ticket, error) {
	if l.enter != nil {
		return l.enter(ctx, w)
	}
	return l.obtain(ctx, w.info, w)
}

// obtain returns a ticket that holds. If the session ends or the znode is deleted, it queues again,
// in the next session if need be.
func (l *lock) obtain(
	ctx context.Context, call LockInfo, caller queue.Caller,
) (*queue.Ticket, error) {
	var room [1]queue.Queue // enough for all but a MultiLock
	queues := room[:0]
	for _, dir := range l.dirs {
		q := l.queueIn(ctx, dir, call)
		q.Caller = caller
		queues = append(queues, q)
	}
	for {
		s, err := l.c.await(ctx)
		if err != nil {
			return nil, err
		}
		var t *queue.Ticket
		if call.Try {
			t, err = queue.Try(ctx, s, queues...)
		} else {
			t, err = l.enterAndWait(ctx, s, queues)
		}
		switch {
		case err == nil:
			return t, nil
		case errors.Is(err, ErrSessionFull):
			return nil, fmt.Errorf("%w: open another Client for more locks", err)
		case !failure.IsOne(err, ctx.Err(), ErrLost, ErrClosed, queue.ErrGone):
			return nil, err // the ensemble's answer, even if ctx or the session has ended since
		case ctx.Err() != nil, l.c.ctx.Err() != nil, errors.Is(err, ErrAuth):
			// Another attempt would fail too. (An ErrAuth matches ErrLost.)
			return nil, l.c.ended(ctx, err)
		}
		caller.Retried(err)
	}
}

// enterAndWait enters the queues and waits until its ticket holds. A candidate that is outranked
// steps aside and waits again.
func (l *lock) enterAndWait(
	ctx context.Context, s *session.Session, queues []queue.Queue,
) (*queue.Ticket, error) {
	t, err := queue.Enter(ctx, s, queues...)
	if err != nil {
		return nil, err
	}
	err = t.Wait(ctx)
	for errors.Is(err, queue.ErrOutranked) {
		var outranking queue.LineError
		errors.As(err, &outranking)
		t, err = queue.StepAside(ctx, t)
		if err != nil {
			return nil, withLine(ctx, err, outranking)
		}
		err = withLine(ctx, t.Wait(ctx), outranking)
	}
	if err != nil {
		l.c.giveUp(ctx, t)
		return nil, err
	}
	return t, nil
}

// withLine adds line, for which a candidate has stepped aside, to err. It does so if ctx has ended
// before the candidate knew its new place in line, so that err names no contender itself.
func withLine(ctx context.Context, err error, line queue.LineError) error {
	if err == nil || !errors.Is(err, ctx.Err()) || errors.As(err, new(queue.LineError)) {
		return err
	}
	return fmt.Errorf("%w, %w", err, line)
}

// queueIn returns the queue.Queue of dir, one of the lock's directories, for a call. Its Caller is
// not set.
func (l *lock) queueIn(ctx context.Context, dir string, call LockInfo) queue.Queue {
	place := l.place
	place.Dir = dir
	place.Kind = contenderKind(call.Kind)
	place.Permits = call.Permits
	if call.Kind == KindSemaphore {
		place.Held, _ = ctx.Value(permitsKey{l.c, l.path}).(int)
	}
	return place
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

// classify returns the error of the call w, whose wait with ctx has failed with err:
//   - ErrBusy if w is a try that found another contender, or was in line when WithMaxWait's time
//     ended, before its caller's context;
//   - ErrUnreachable if w had taken as long as it may, and had not found out whether the lock is
//     busy;
//   - otherwise err.
//
// Both have the end of ctx as text only: a deadline in it is not the caller's.
func (l *lock) classify(ctx context.Context, w *waiting, err error) error {
	cause := context.Cause(ctx)
	reachedLimit := cause == errWaited || cause == errTried //nolint:errorlint // identity
	var line queue.LineError
	if !errors.As(err, &line) {
		if reachedLimit && errors.Is(err, ctx.Err()) {
			return unanswered(w.limit, err)
		}
		return err
	}
	if errors.Is(err, queue.ErrBusy) {
		return busy(line.Line, err.Error())
	}
	var inTheWay error = line
	if l.c.use.holding(l.dirs, line.Node) {
		inTheWay = fmt.Errorf("%w (this process)", line)
		err = fmt.Errorf("%w (this process)", err)
	}
	if reachedLimit {
		return busy(line.Line, fmt.Sprintf("gave up after %v: %v", w.limit, inTheWay))
	}
	return err
}

// unanswered returns the error of a call that has failed with err because it had taken as long as
// it may, d. Only err's text is kept, and of that what the call was doing: the deadline is not the
// caller's, and the end of a session is not the loss of a lock.
func unanswered(d time.Duration, err error) error {
	doing := bare(err)
	var ended *failure.EndedError
	if errors.As(err, &ended) {
		doing = strings.Replace(doing, bare(ended), bare(ended.What), 1)
	}
	return unansweredError(
		fmt.Sprintf("no answer within %v, so it is not known whether the lock is free: %s", d,
			doing))
}

// unansweredError is ErrUnreachable with a text.
type unansweredError string

func (e unansweredError) Error() string        { return string(e) }
func (e unansweredError) Is(target error) bool { return target == ErrUnreachable }

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
