package zklock

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/locker/internal/text"
	"github.com/zklock/locker/internal/trusted"
	"github.com/zklock/locker/recipe"
	"github.com/zklock/locker/session"
)

// place is what a hold stands on: one znode, or several that were made in one transaction.
type place interface {
	Session() *session.Session
	Nodes() []string
	Czxid() int64
	Claim(ctx context.Context, delay time.Duration, try bool) error
	Leave(ctx context.Context) error
	Forfeit()
	OnGone(ctx context.Context, fn func()) error
	Settled() bool
	Gone() bool
}

// base is what all kinds of locks are made of: where, with which options, on whose behalf. It stores no ownership.
type base struct {
	c    *Client
	path string
	o    lockOptions
	data []byte // the contenders'
	err  error  // of the path or the options: reported by every call
	// share tells, with local handoff, whose line its calls stand in.
	share lineKey
}

// newBase is shareable for a lock that has no local handoff.
func (c *Client) newBase(path string, opts []LockOption) base {
	b := c.shareable(path, opts)
	if b.err == nil && b.o.handoff > 0 {
		b.err = fmt.Errorf("%w: local handoff of %d: is for a Mutex, and so for Do and Guard; this is another kind of lock",
			ErrOption, b.o.handoff)
	}
	return b
}

// shareable returns the base of a lock that may have local handoff.
func (c *Client) shareable(path string, opts []LockOption) base {
	b := base{c: c, path: path}
	if b.err = checkLockPath(path); b.err == nil {
		if b.o, b.err = newLockOptions(opts); b.err == nil {
			b.data, b.err = b.o.identity()
		}
	}
	if b.err == nil && b.o.handoff > 0 {
		b.share = b.shareKey()
	}
	return b
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
	if err := session.CheckPath(path + "/" + strings.Repeat("x", nameRoom)); err != nil {
		return fmt.Errorf("%w %q: leaves no room for a contender's name in 4096 bytes", ErrPath, path[:200]+"…")
	}
	return nil
}

// request is one call that wants a lock.
type request struct {
	op    string // for errors
	try   bool
	kind  string // for LockInfo
	paths []string
	outer context.Context // the caller's, when WithWait bounds it further; else nil
	queue recipe.Queue
	// again looks for a hold of the same lock in ctx: nil, nil when there is none.
	again func(ctx context.Context) (*Hold, error)
	// stand takes a place in s's name and waits until it holds. A place that it returns with an error is given up by
	// the caller. Nil: inLine.
	stand func(ctx context.Context, s *session.Session, r *request) (place, error)
}

// queue returns the queue that the options describe.
func (b *base) queue(kind recipe.Kind) recipe.Queue {
	b.needClient()
	return recipe.Queue{Dir: b.path, Kind: kind, ACL: b.o.acl, VerifyACL: b.o.verifyACL, Container: b.o.container, Data: b.data, Heads: b.c.heads}
}

// lock is a call that waits, as WithWait bounds it.
func (b *base) lock(ctx context.Context, r request) (*Hold, error) {
	b.need(ctx)
	if !b.o.waitSet {
		return b.acquire(ctx, r)
	}
	if b.o.wait == 0 {
		r.try = true
		return b.acquire(ctx, r)
	}
	bounded, cancel := context.WithTimeout(ctx, b.o.wait)
	defer cancel()
	r.outer = ctx
	return b.acquire(bounded, r)
}

// busy turns the error of a call into ErrBusy if it says that somebody was in the way: of one that does not wait, or of
// one whose WithWait was over. A call that was out of time before it could queue, for lack of a connection, was not.
func (b *base) busy(r *request, err error) error {
	if errors.Is(err, recipe.ErrBusy) {
		return &busyError{0, err}
	}
	var line recipe.Waiting
	if r.outer != nil && r.outer.Err() == nil && errors.Is(err, context.DeadlineExceeded) && errors.As(err, &line) {
		return &busyError{b.o.wait, line}
	}
	return err
}

// acquire returns a hold: the one that ctx carries, counted up, or a new one.
func (b *base) acquire(ctx context.Context, r request) (*Hold, error) {
	b.need(ctx)
	if b.err != nil {
		return nil, &lockError{r.op, b.path, b.err}
	}
	if ctx.Err() != nil {
		return nil, &lockError{r.op, b.path, session.Waited(ctx, errors.New("about to queue"))}
	}
	info := LockInfo{Call: lastCall.Add(1), Path: b.path, Paths: r.paths, Kind: r.kind, Permits: r.queue.Permits,
		Owner: b.o.owner, Try: r.try, Context: context.WithoutCancel(ctx)}
	began := time.Now()
	w := b.c.use.asked(info, began)
	defer b.c.use.left(w)
	b.c.tellAsked(info)
	var h *Hold
	var err error
	if r.again != nil {
		if h, err = r.again(ctx); h != nil {
			b.c.tellAcquired(AcquiredInfo{info, h.Token(), h.Node(), time.Since(began), h.g.info.Call})
		}
	}
	if h == nil && err == nil {
		h, err = b.wait(ctx, &r, w)
	}
	if err != nil {
		err = &lockError{r.op, b.path, b.busy(&r, err)}
		b.c.tellFailed(FailedInfo{info, time.Since(began), err})
		return nil, err
	}
	return h, nil
}

// wait takes a place in line, waits, and makes the hold.
func (b *base) wait(ctx context.Context, r *request, w *waiting) (*Hold, error) {
	if b.o.handoff > 0 {
		return b.shared(ctx, r, w)
	}
	b.report(r, w)
	p, keep, err := b.obtain(ctx, r)
	if err != nil {
		return nil, err
	}
	return b.take(ctx, p, keep, w)
}

// report has the steps of r told of as w's.
func (b *base) report(r *request, w *waiting) {
	r.queue.Queued = func(l recipe.Line) { b.queued(w, l) }
	r.queue.Retried = func(err error) { b.retried(w, err) }
}

func (b *base) queued(w *waiting, l recipe.Line) {
	b.c.use.queued(w, l)
	b.c.tellQueued(QueuedInfo{w.info, l.Ahead, l.Holder, l.Who})
}

func (b *base) retried(w *waiting, err error) {
	b.c.use.queued(w, recipe.Line{})
	b.c.tellRetried(RetriedInfo{w.info, err})
}

// take makes the hold of a place that is first in line and whose session is retained: by keep, or, when that is nil, by
// the tenure that the place is.
func (b *base) take(ctx context.Context, p place, keep *session.Retention, w *waiting) (*Hold, error) {
	if !b.c.enter() {
		if keep != nil {
			keep.Release()
		}
		b.c.giveUp(ctx, p)
		return nil, closedError{}
	}
	return b.hold(ctx, p, keep, w), nil
}

// obtain takes a place in line and waits until it is first and its session is retained, in one session after another.
func (b *base) obtain(ctx context.Context, r *request) (place, *session.Retention, error) {
	stand := r.stand
	if stand == nil {
		stand = inLine
	}
	paths := r.paths
	if paths == nil {
		paths = []string{b.path}
	}
	room := b.c.sessions.room(paths...)
	for {
		s, err := b.c.sessions.withRoom(ctx, room)
		if err != nil {
			return nil, nil, err
		}
		var keep *session.Retention
		p, err := stand(ctx, s, r)
		if err == nil {
			keep, err = b.settle(ctx, p, r.try)
		}
		if err == nil {
			return p, keep, nil
		}
		if p != nil {
			b.c.giveUp(ctx, p)
		}
		var full *session.RoomError
		switch {
		case b.c.ctx.Err() != nil:
			return nil, nil, closedError{}
		case ctx.Err() != nil && !errors.Is(err, ctx.Err()):
			return nil, nil, session.Waited(ctx, err)
		case ctx.Err() != nil:
			return nil, nil, err
		case errors.As(err, &full) && full.Need <= full.Limit:
			room = max(room, full.Need) // others were quicker, or the session was about to be closed: take another one
			continue
		case s.Err() == nil && !errors.Is(err, recipe.ErrGone):
			return nil, nil, err
		}
		r.queue.Retried(err) // our session is over, or our znode is gone: take another place
	}
}

// inLine is the ordinary way to stand: one znode in one queue.
func inLine(ctx context.Context, s *session.Session, r *request) (place, error) {
	if r.try {
		t, err := r.queue.Try(ctx, s)
		if err != nil {
			return nil, err
		}
		return t, nil
	}
	t, err := r.queue.Enter(ctx, s)
	if err != nil {
		return nil, err
	}
	return t, t.Wait(ctx)
}

// settle does what is left to do before a place that is first in line may be used: to wait out the delay of holders
// that were lost, and to have the session's lease confirmed.
func (b *base) settle(ctx context.Context, p place, try bool) (*session.Retention, error) {
	if b.o.delaySet {
		if err := p.Claim(ctx, b.o.delay, try); err != nil {
			return nil, err
		}
	}
	keep, err := p.Session().Retain(ctx, trusted.Caller{}, p.Nodes()[0])
	if errors.Is(err, zk.ErrNoNode) {
		err = fmt.Errorf("%w: %w", recipe.ErrGone, err)
	}
	if err == nil && p.Gone() { // meanwhile
		keep.Release()
		return nil, recipe.ErrGone
	}
	return keep, err
}

// giveUp leaves a place that is not wanted any more. ctx may be over; then the deletion goes on by itself.
func (c *Client) giveUp(ctx context.Context, p place) {
	if err := p.Leave(ctx); err != nil {
		c.unreleased(ctx, p, err)
	}
}

// unreleased warns of a place whose Leave has failed, unless it is gone, going, or going with the session.
func (c *Client) unreleased(ctx context.Context, p place, err error) {
	if errors.Is(err, recipe.ErrGone) || ctx.Err() != nil || p.Session().Err() != nil {
		return
	}
	c.log.Warn("place in line can't be given up before the session ends", "node", p.Nodes()[0], "error", err)
}
