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
	l := lock{c: c, kind: k, path: strings.Join(paths, ","), dirs: paths}
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
		return ctx, nil, l.fail(op, l.c.ended(ctx, aboutToQueue(ctx)))
	}
	w := l.newWaiting(ctx, info)
	h, err := l.wait(ctx, op, w)
	if w.aborted != nil {
		if h != nil {
			_ = h.Unlock() // how the user's function has ended matters more
		}
		w.aborted.resume()
	}
	if err != nil {
		return ctx, nil, err
	}
	return h.work, h, nil
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
	err = w.explain(ctx, err)
	err = l.explain(ctx, w, err)
	err = hide(err, ErrUnknownOutcome) // whatever znode was made is being removed
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

// aboutToQueue is what a call was doing whose context had ended before it began.
func aboutToQueue(ctx context.Context) error {
	if h, ok := ctx.Value(holdKey{}).(*Hold); ok && h.Err() != nil &&
		errors.Is(context.Cause(ctx), h.Err()) {
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
// Errors: ErrDeadlock if waiting would never end, since the lock is not reentrant, or since ctx
// carries a hold of some of a MultiLock's paths, or of others too. ErrConflict if ctx carries a
// hold of another kind of lock on the same path.
func (l *lock) reenter(ctx context.Context, kind LockKind) (h *Hold, joined bool, err error) {
	if kind == KindSemaphore {
		return nil, false, nil
	}
	for _, dir := range l.dirs {
		a, ok := ctx.Value(lockKey{l.c, dir}).(*acquisition)
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
		if work == nil { // the session was lost and replaced since: take another place
			t.Lose(t.Session().Err())
			l.c.giveUp(ctx, t)
			continue
		}
		if !l.c.countEnd() {
			work.end()
			l.c.giveUp(ctx, t)
			return nil, closedError{}
		}
		return l.c.newHold(t, w, l.o, work), nil
	}
}

// queueUp returns a ticket that holds. After an error the ticket may be a nil pointer.
func (l *lock) queueUp(ctx context.Context, w *waiting) (ticket, error) {
	if l.enter != nil {
		return l.enter(ctx, w)
	}
	return l.obtain(ctx, w.info, w)
}

// obtain returns a ticket that holds. If its session ends, it queues again in the next one.
func (l *lock) obtain(
	ctx context.Context, call LockInfo, caller queue.Caller,
) (t *queue.Ticket, err error) {
	// the place of a candidate that steps aside, until it has entered again
	var aside queue.LineError
	var before *queue.Ticket // the ticket of that place
	defer func() {
		l.giveUpBefore(ctx, before)
		if err != nil && aside.Ahead > 0 && errors.Is(err, ctx.Err()) &&
			!errors.As(err, new(queue.LineError)) {
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
		} else {
			t, err = l.enterAndWait(ctx, s, before, queues)
			before = nil
		}
		switch {
		case err == nil:
			return t, nil
		case errors.Is(err, queue.ErrOutranked):
			errors.As(err, &aside)
			before = t
			continue // at the end of the line
		case errors.Is(err, ErrSessionFull):
			return nil, fmt.Errorf("%w: open another Client for more locks", err)
		case !failure.IsOne(err, ctx.Err(), ErrLost, ErrClosed, queue.ErrGone):
			// an answer, whatever has ended since
			return nil, err
		case ctx.Err() != nil, l.c.ctx.Err() != nil, errors.Is(err, ErrAuth):
			// the next session would not do
			return nil, l.c.ended(ctx, err)
		}
		aside = queue.LineError{}
		caller.Retried(err) // our session is over, or our znode is gone: take another place
	}
}

// enterAndWait enters the queues, or steps aside with before, and waits. If the new ticket is
// outranked, enterAndWait returns it with the error. After any other error there is none.
func (l *lock) enterAndWait(
	ctx context.Context, s *session.Session, before *queue.Ticket, queues []queue.Queue,
) (t *queue.Ticket, err error) {
	if before == nil {
		t, err = queue.Enter(ctx, s, queues...)
	} else {
		t, err = queue.StepAside(ctx, before)
	}
	if err != nil {
		return nil, err
	}
	err = t.Wait(ctx)
	if err != nil && !errors.Is(err, queue.ErrOutranked) {
		l.c.giveUp(ctx, t)
		return nil, err
	}
	return t, err
}

// giveUpBefore gives up the old ticket of a candidate that steps aside, if there is one.
func (l *lock) giveUpBefore(ctx context.Context, before *queue.Ticket) {
	if before != nil {
		l.c.giveUp(ctx, before)
	}
}

// queues describes the places in line of a call.
func (l *lock) queues(ctx context.Context, call LockInfo) []queue.Queue {
	permits, _ := ctx.Value(permitsKey{l.c, l.path}).(int)
	place := l.place
	place.Kind = contenderKind(call.Kind)
	place.Permits = call.Permits
	place.Held = permits
	queues := make([]queue.Queue, len(l.dirs))
	for i, dir := range l.dirs {
		queues[i] = place
		queues[i].Dir = dir
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

// explain returns what err says about the call w, whose wait had ctx:
//   - ErrBusy if w is a try that found another contender, or was in line when WithMaxWait's time
//     ended, before its caller's context;
//   - ErrUnreachable if w had taken as long as it may, and had not found out whether the lock is
//     busy;
//   - otherwise err.
//
// Both have the end of ctx as text only, since a deadline in it is not the caller's.
func (l *lock) explain(ctx context.Context, w *waiting, err error) error {
	limited := context.Cause(ctx) == errWaited || context.Cause(ctx) == errTried //nolint:errorlint // identity
	var line queue.LineError
	if !errors.As(err, &line) {
		if limited && errors.Is(err, ctx.Err()) {
			return gaveUp(w.limit, context.Cause(ctx), err)
		}
		return err
	}
	if errors.Is(err, queue.ErrBusy) {
		return busy(line.Line, err.Error())
	}
	var found error = line
	if l.c.use.holding(l.dirs, line.Node) {
		found, err = fmt.Errorf("%w (this process)", line), fmt.Errorf("%w (this process)", err)
	}
	if limited {
		return busy(line.Line, fmt.Sprintf("gave up after %v: %v", w.limit, found))
	}
	return err
}

// gaveUp returns the error of a call that has taken as long as it may, d, and ended with err since
// cause ended its context. Of err only the text is kept, without that end: the deadline is not the
// caller's, and a session's end no lost lock.
func gaveUp(d time.Duration, cause, err error) error {
	end := fmt.Sprintf("%v (%v) while ", context.DeadlineExceeded, cause)
	doing := strings.Replace(bare(err), end, "", 1)
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
