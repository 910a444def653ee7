package zklock

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/locker/internal/handoff"
	"github.com/zklock/locker/internal/text"
	"github.com/zklock/locker/internal/trusted"
	"github.com/zklock/locker/recipe"
	"github.com/zklock/locker/session"
)

// ticket is the znode, or set of znodes, behind a hold: a *recipe.Ticket that holds, or with local handoff a *handoff.Turn
// on one. The contracts are those of recipe.Ticket's methods.
type ticket interface {
	Session() *session.Session
	Nodes() []string
	Czxid() int64
	Guard(lost func(error))          // reports a loss, from now on
	OnSet(func([]byte, zk.Stat))     // reports data that others set; Guard's goroutines do
	Check(ctx context.Context) error // asks whether it is still ours
	SetData(context.Context, []byte) error
	Multi(ctx context.Context, held func() error, ops ...any) ([]zk.MultiResponse, error)
	Downgrade(ctx context.Context) error // makes a writer a reader, in place
	Lose(cause error)                    // the hold has ended otherwise than by its release: no other call gets the ticket
	KeepDelay()                          // the coming Leave counts as a loss for a lock delay
	Leave(ctx context.Context) error
}

// lock is what all kinds of locks are made of: where, with which options, on whose behalf. It stores no ownership.
type lock struct {
	c       *Client
	path    string
	o       lockOptions
	data    []byte        // the contenders'
	err     error         // of the path or the options: reported by every call
	handoff *handoff.Lock // nil without local handoff
}

// newLock makes a lock of a kind that has no local handoff.
func (c *Client) newLock(path string, opts []LockOption) lock {
	l := c.newHandoffLock(path, opts)
	if l.err == nil && l.o.handoff > 0 {
		l.err = fmt.Errorf("%w: local handoff of %d: is for a Mutex, and so for Do and Guard; this is another kind of lock",
			ErrOption, l.o.handoff)
	}
	return l
}

// newHandoffLock makes a lock of a kind that may have local handoff.
func (c *Client) newHandoffLock(path string, opts []LockOption) lock {
	l := lock{c: c, path: path}
	if l.err = checkLockPath(path); l.err == nil {
		if l.o, l.err = newLockOptions(opts); l.err == nil {
			l.data, l.err = l.o.identity()
		}
	}
	if l.err == nil && l.o.handoff > 0 {
		l.handoff = l.handoffLock()
	}
	return l
}

// nameRoom is what a contender's name takes behind the lock's path.
const nameRoom = 80

// checkLook refuses a path that can't be a lock's for anybody. What else others have called theirs may be looked at.
func checkLook(path string) error {
	switch {
	case path == "/":
		return fmt.Errorf("%w %q: is the root, which can't be a lock", ErrPath, path)
	case path == "/zookeeper" || strings.HasPrefix(path, "/zookeeper/"):
		return fmt.Errorf("%w %q: belongs to ZooKeeper itself", ErrPath, text.Foreign(path))
	}
	return nil
}

// checkLockPath is session.CheckPath for a path below which contenders are made.
func checkLockPath(path string) error {
	if err := checkLook(path); err != nil {
		return err
	}
	if err := session.CheckPath(path); err != nil {
		return err
	}
	for name := range strings.SplitSeq(path, "/") {
		if _, contender := recipe.Parse(name); contender {
			return fmt.Errorf("%w %q: %q is what a contender's znode is called: a lock at the path above it would wait for it for ever (see KeyPath)",
				ErrPath, text.Foreign(path), text.Foreign(name))
		}
	}
	if err := session.CheckPath(path + "/" + strings.Repeat("x", nameRoom)); err != nil {
		return fmt.Errorf("%w %q: leaves no room for a contender's name in 4096 bytes", ErrPath, path[:200]+"…")
	}
	return nil
}

// request is one call that wants a lock.
type request struct {
	op     string // for errors
	try    bool
	kind   Kind
	paths  []string       // of a MultiLock; nil for the others
	queues []recipe.Queue // one for each path
}

// queue returns the queue that the options describe.
func (l *lock) queue(kind recipe.Kind) recipe.Queue {
	l.needClient()
	return recipe.Queue{Dir: l.path, Kind: kind, ACL: l.o.acl, VerifyACL: l.o.verifyACL, Container: l.o.container, Data: l.data,
		Delays: l.o.delaySet, Delay: l.o.delay, Describe: describe}
}

// acquire returns a hold: the one that ctx carries, counted up, or a new one. WithWait bounds a call that is no try.
func (l *lock) acquire(ctx context.Context, r request) (*Hold, error) {
	l.need(ctx)
	if l.err != nil {
		return nil, &lockError{r.op, l.path, l.err}
	}
	if ctx.Err() != nil {
		return nil, &lockError{r.op, l.path, session.Waited(ctx, trusted.Caller{}, errors.New("about to queue"))}
	}
	caller := ctx
	if l.o.waitSet && l.o.wait == 0 {
		r.try = true
	} else if l.o.waitSet && !r.try {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, l.o.wait)
		defer cancel()
	}
	info := LockInfo{Call: lastCall.Add(1), Path: l.path, Paths: r.paths, Kind: r.kind, Permits: r.queues[0].Permits,
		Owner: l.o.owner, Try: r.try, Context: context.WithoutCancel(caller)}
	began := time.Now()
	w := l.c.use.asked(l.c, info, began)
	defer l.c.use.returned(w)
	l.c.tellAsked(info)
	h, err := l.reenter(ctx, &r)
	if h != nil {
		l.c.tellAcquired(AcquiredInfo{info, h.Token(), h.Node(), time.Since(began), h.a.info.Call})
	} else if err == nil {
		h, err = l.take(ctx, &r, w)
	}
	if err != nil {
		err = &lockError{r.op, l.path, l.explain(caller, err)}
		l.c.tellFailed(FailedInfo{info, time.Since(began), err})
		return nil, err
	}
	return h, nil
}

// explain turns an error that says that another contender was in the way into ErrBusy: that of a call that does not wait,
// or whose WithWait was over before its caller's context. A call that ran out of time before it could queue, for lack of
// a connection, did not find the lock busy.
func (l *lock) explain(caller context.Context, err error) error {
	if errors.Is(err, recipe.ErrBusy) {
		return &busyError{0, err}
	}
	var line recipe.Waiting
	if l.o.waitSet && caller.Err() == nil && errors.Is(err, context.DeadlineExceeded) && errors.As(err, &line) {
		return &busyError{l.o.wait, line}
	}
	return err
}

// take waits until the lock is ours, and makes the hold.
func (l *lock) take(ctx context.Context, r *request, w *waiting) (*Hold, error) {
	if err := l.checkGrace(ctx); err != nil {
		return nil, err
	}
	t, err := l.queueUp(ctx, r, w)
	if err == nil && l.o.grace > 0 {
		t, err = l.withGrace(ctx, t, r, w)
	}
	if err != nil {
		return nil, err
	}
	if !l.c.countHold() {
		l.c.giveUp(ctx, t)
		return nil, closedError{}
	}
	return l.c.newHold(ctx, t, w, l.o), nil
}

// queueUp returns a ticket that holds: a new one, or with local handoff a turn. With an error the result must be neither used
// nor compared with nil.
func (l *lock) queueUp(ctx context.Context, r *request, w *waiting) (ticket, error) {
	switch {
	case l.handoff != nil && r.try:
		return l.c.handoff.TryLock(ctx, l.handoff, w)
	case l.handoff != nil:
		return l.c.handoff.Lock(ctx, l.handoff, w)
	}
	for i := range r.queues {
		r.queues[i].Queued, r.queues[i].Retried = w.Queued, w.Retried
	}
	return l.obtain(ctx, r.queues, r.try)
}

// obtain returns a ticket that holds, and tries in one session after another.
func (l *lock) obtain(ctx context.Context, queues []recipe.Queue, try bool) (*recipe.Ticket, error) {
	room := 0
	for _, q := range queues {
		room += l.c.sessions.room(q.Dir)
	}
	for {
		s, err := l.c.sessions.withRoom(ctx, room)
		if err != nil {
			return nil, err
		}
		t, err := l.enter(ctx, s, queues, try)
		if err == nil {
			return t, nil
		}
		var full *session.RoomError
		switch {
		case l.c.ctx.Err() != nil:
			return nil, closedError{}
		case ctx.Err() != nil && !errors.Is(err, ctx.Err()):
			return nil, session.Waited(ctx, trusted.Caller{}, err)
		case ctx.Err() != nil:
			return nil, err
		case errors.As(err, &full) && full.Need <= full.Limit:
			room = max(room, full.Need) // others were quicker, or the session was about to be closed: take another one
			continue
		case s.Err() == nil && !errors.Is(err, recipe.ErrGone):
			return nil, err
		case errors.Is(s.Err(), session.ErrAuth): // the next session would fare no better
			return nil, s.Err()
		}
		queues[0].Retried(err) // our session is over, or our znode is gone: take another place
	}
}

// enter takes a place in session s, and waits until it holds. After an error it has given up the place.
func (l *lock) enter(ctx context.Context, s *session.Session, queues []recipe.Queue, try bool) (*recipe.Ticket, error) {
	if try {
		return recipe.Try(ctx, s, queues...)
	}
	t, err := recipe.Enter(ctx, s, queues...)
	if err != nil {
		return nil, err
	}
	if err := t.Wait(ctx); err != nil {
		l.c.giveUp(ctx, t)
		return nil, err
	}
	return t, nil
}

// giveUp leaves a place that is not wanted any more. ctx may be over; then the deletion goes on by itself.
func (c *Client) giveUp(ctx context.Context, t ticket) {
	if err := t.Leave(ctx); err != nil {
		c.unreleased(ctx, t, err)
	}
}

// unreleased warns of a place whose Leave has failed, unless its znodes are gone, are being deleted, or go with the
// session.
func (c *Client) unreleased(ctx context.Context, t ticket, err error) {
	if errors.Is(err, recipe.ErrGone) || ctx.Err() != nil || t.Session().Err() != nil {
		return
	}
	c.log.Warn("place in line can't be given up before the session ends", "node", t.Nodes()[0], "error", err)
}

// reenter looks for a hold of the same lock in ctx. With reentrancy it is counted up; without, waiting for it would never
// end: ErrDeadlock, as for a hold of some of a MultiLock's paths, or of others. Nil, nil: there is none. Permits of a
// semaphore are added up instead: see recipe.Size.
func (l *lock) reenter(ctx context.Context, r *request) (*Hold, error) {
	if r.kind == KindSemaphore {
		return nil, nil
	}
	for _, q := range r.queues {
		a, err := l.c.heldIn(ctx, q.Dir, r.kind.family())
		switch {
		case err != nil:
			return nil, err
		case a == nil:
			continue
		case r.paths != nil && !samePaths(a.info.Paths, r.paths):
			return nil, fmt.Errorf("%w: %s", ErrDeadlock, q.Dir)
		}
		if !l.o.reentrant {
			return nil, ErrDeadlock
		}
		return a.join(ctx, r.kind == KindRead)
	}
	return nil, nil
}
