package simulation_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/zklock/locker/internal/session"
	"github.com/zklock/locker/tests/locktest"
	"github.com/zklock/locker/zklock"
	"github.com/zklock/locker/zklock/admin"
)

// op is one operation: the random choices for it, and when it began. An op that acquires a lock
// also holds and releases it.
type op struct {
	p     *player
	c     *zklock.Client
	n     int
	path  string
	t     *acquisition // for operations on a hold
	g     *hold
	limit time.Duration
	began time.Duration

	kind    string
	paths   []string
	permits int
	try     bool
	wait    time.Duration
	maxHold time.Duration
	opts    []zklock.LockOption
	hold    time.Duration
	victim  int  // of breakOne: which contender
	key     int  // of job
	inside  bool // the lock is held while a function runs, and released by the library
	deaf    bool // its work goes on after the lock was lost
}

// draw chooses the lock to acquire, and its options.
func (o *op) draw(k, fam int) {
	rnd := o.p.rnd
	o.paths = []string{o.path}
	switch fam {
	case famMutex:
		o.kind = []string{"mutex", "mutex", "multi", "election"}[rnd.IntN(4)]
		if o.kind == "election" {
			o.permits = rnd.IntN(3) // its rank
		}
		if o.kind == "multi" {
			for i, other := range o.p.w.paths {
				if i != k && o.p.w.fam[i] == famMutex && rnd.IntN(3) > 0 {
					o.paths = append(o.paths, other)
				}
			}
		}
	case famRW:
		o.kind = []string{"read", "read", "write"}[rnd.IntN(3)]
	case famSem:
		o.kind, o.permits = "semaphore", 1+rnd.IntN(3)
	}
	o.deaf = rnd.IntN(4) == 0
	o.try = rnd.IntN(6) == 0
	if rnd.IntN(6) == 0 {
		o.wait = upTo(rnd, 2*time.Second)
		o.opts = append(o.opts, zklock.WithMaxWait(o.wait))
	}
	if rnd.IntN(8) == 0 {
		o.maxHold = time.Millisecond + upTo(rnd, time.Second)
		o.opts = append(o.opts, zklock.WithMaxHold(o.maxHold))
	}
	if rnd.IntN(2) == 0 && o.kind != "semaphore" && o.kind != "election" {
		o.opts = append(o.opts, zklock.WithReentrancy())
	}
	if o.kind == "mutex" && o.p.w.handoff {
		o.opts = append(o.opts, zklock.WithLocalHandoff())
	} else if rnd.IntN(10) == 0 {
		o.opts = append(o.opts, zklock.WithContainer())
	}
	o.hold = upTo(rnd, 400*time.Millisecond)
	switch rnd.IntN(24) {
	case 0, 1, 2:
		o.hold = upTo(rnd, 5*time.Second)
	case 3: // longer than a session without a connection lasts
		o.hold = 4*time.Second + upTo(rnd, 10*time.Second)
	}
}

// ask calls the method of the library that acquires the lock.
func (o *op) ask(ctx context.Context) (context.Context, *zklock.Hold, error) {
	var lock, try func(context.Context) (context.Context, *zklock.Hold, error)
	switch o.kind {
	case "mutex":
		m := o.c.Mutex(o.path, o.opts...)
		lock, try = m.Lock, m.TryLock
	case "multi":
		m := o.c.MultiLock(o.paths, o.opts...)
		lock, try = m.Lock, m.TryLock
	case "read":
		m := o.c.RWMutex(o.path, o.opts...)
		lock, try = m.RLock, m.TryRLock
	case "write":
		m := o.c.RWMutex(o.path, o.opts...)
		lock, try = m.Lock, m.TryLock
	case "semaphore":
		m := o.semaphore()
		lock = func(ctx context.Context) (context.Context, *zklock.Hold, error) {
			return m.Acquire(ctx, o.permits)
		}
		try = func(ctx context.Context) (context.Context, *zklock.Hold, error) {
			return m.TryAcquire(ctx, o.permits)
		}
	case "election":
		return o.c.Election(o.path, o.opts...).WithRank(o.permits).Campaign(ctx, []byte(o.p.name))
	}
	if o.try {
		return try(ctx)
	}
	return lock(ctx)
}

func (o *op) semaphore() *zklock.Semaphore {
	return o.c.Semaphore(o.path, o.p.w.size[slices.Index(o.p.w.paths, o.path)], o.opts...)
}

// acquire requests a lock, holds it for a while, and releases it.
func (o *op) acquire(ctx context.Context) {
	o.p.note("#%d requests: %s %s x%d try %v wait %v max %v, deadline %v", o.n, o.kind, o.paths,
		o.permits, o.try, o.wait, o.maxHold, o.limit)
	_, h, err := o.ask(ctx)
	limit := o.limit
	if slices.ContainsFunc(o.opts, func(zklock.LockOption) bool { return o.wait > 0 }) && !o.try {
		limit = min(limit, o.wait)
	}
	o.p.within(o.began, limit, o.kind)
	if err != nil {
		o.p.note("#%d %v", o.n, errText{err})
		o.refused(ctx, err)
		return
	}
	first := &hold{Hold: h}
	t := o.enter(first)
	o.p.note("#%d holds %s, token %d", o.n, short(h.Node()), h.Token())
	o.keep(t, first) // others may have joined t by now
}

// enter reports a new acquisition to the oracle.
func (o *op) enter(h *hold) *acquisition {
	t := &acquisition{who: fmt.Sprintf("%s#%d", o.p.name, o.n), p: o.p, kind: o.kind,
		paths: o.paths, permits: o.permits,
		began: o.began, maxHold: o.maxHold, token: h.Token(), nodes: h.Nodes(),
		read: o.kind == "read", do: o.inside}
	t.holds = []*hold{h}
	for _, node := range t.nodes { // one of several may have been removed already
		if n, ok := o.p.w.srv.Node(node); ok {
			t.session = n.Stat.EphemeralOwner
		}
	}
	o.p.w.oracle.acquired(t)
	o.p.mu.Lock()
	o.p.held = append(o.p.held, t)
	o.p.mu.Unlock()
	return t
}

// keep holds g for the time that was drawn, and then releases it.
func (o *op) keep(t *acquisition, g *hold) {
	o.rests(g)
	if o.release(t, g) {
		o.let(t, g)
	}
}

// rests lets the time pass for which g is held, or until it is lost, unless the work is deaf.
func (o *op) rests(g *hold) {
	ctx := g.Context()
	if o.deaf {
		ctx = context.WithoutCancel(ctx)
	}
	pause(ctx, o.hold, o.p.r(o.n, 2))
}

// release reports whether the caller is the one to release g: true for the first call only.
func (o *op) release(t *acquisition, g *hold) bool {
	or := o.p.w.oracle
	or.mu.Lock()
	defer or.mu.Unlock()
	if g.released {
		return false
	}
	g.released = true
	return true
}

// let calls Unlock on g, and checks what it returns. That nothing is left behind is checked at the
// end.
func (o *op) let(t *acquisition, g *hold) {
	began := o.p.w.now()
	err := g.Unlock()
	o.p.note("#%d unlocks %s: %v", o.n, t.who, errText{err})
	o.p.within(began, o.p.unlocks(), "unlock")
	o.p.w.oracle.ended(t, g)
	switch {
	case err == nil, errors.Is(err, zklock.ErrLost), errors.Is(err, zklock.ErrClosed) &&
		o.p.closedSince(t.began):
	default:
		o.p.w.violated("%s: unlock: %v", t.who, err)
	}
}

// unlock releases a hold before the time that was drawn.
func (o *op) unlock(context.Context) {
	if o.release(o.t, o.g) {
		o.let(o.t, o.g)
	}
}

// refused checks the error of a call that has not acquired its lock.
func (o *op) refused(ctx context.Context, err error) {
	switch {
	case ctx.Err() != nil && errors.Is(err, ctx.Err()):
	case errors.Is(err, zklock.ErrBusy) && (o.try || o.wait > 0):
	case errors.Is(err, zklock.ErrUnreachable) && !errors.Is(err, context.DeadlineExceeded) &&
		(o.try || o.wait > 0):
	case errors.Is(err, zklock.ErrClosed) && o.p.closedSince(o.began):
	case errors.Is(err, zklock.ErrConflict) && o.kind == "semaphore":
	case errors.Is(err, zklock.ErrInvalid) && o.kind == "semaphore":
	case errors.Is(err, session.ErrGarbled) && o.p.w.garbled():
	default:
		o.p.w.violated("%s#%d: %s: unexpected error: %v", o.p.name, o.n, o.kind, err)
	}
}

// queue lists the contenders of a lock.
func (o *op) queue(ctx context.Context) {
	sure := o.p.w.oracle.certain(o.path)
	line, err := locktest.Queue(ctx, o.c, o.path)
	o.p.note("#%d sees %d in line: %v", o.n, len(line), errText{err})
	o.p.within(o.began, o.limit, "queue")
	o.looked(ctx, "queue", err)
	if err != nil {
		return
	}
	for i := 1; i < len(line); i++ {
		if line[i-1].Node == line[i].Node {
			o.p.w.violated("queue of %s: it has %s twice", o.path, line[i].Node)
		}
	}
	for _, t := range o.p.w.oracle.still(o.path, sure) {
		if o.p.w.oracle.resized(t.acquisition) {
			continue // a list does not tell contenders that hold beyond a lowered size from waiters
		}
		if i := slices.IndexFunc(line, func(k admin.Contender) bool {
			return k.Session == t.session && k.Holds
		}); i >= 0 {
			continue
		}
		o.p.w.violated("queue of %s does not show the holder %s: %+v", o.path, t.who, line)
	}
}

// breakOne breaks the lock of one contender.
func (o *op) breakOne(ctx context.Context) {
	line, err := locktest.Queue(ctx, o.c, o.path)
	o.looked(ctx, "queue", err)
	if err != nil || len(line) == 0 {
		return
	}
	k := line[o.victim%len(line)]
	o.p.w.oracle.noteForced(k.Node)
	err = admin.Evict(ctx, o.c, o.path, k.Token)
	o.p.note("#%d breaks %s: %v", o.n, short(k.Node), errText{err})
	o.p.within(o.began, o.limit, "break")
	if _, stands := o.p.w.srv.Node(k.Node); stands && err == nil {
		o.p.w.violated("%s was broken, and still exists", k.Node)
	}
	if !errors.Is(err, zk.ErrNoNode) && !errors.Is(err, zklock.ErrUnknownOutcome) {
		o.looked(ctx, "break", err)
	}
}

// resize changes a semaphore's size.
func (o *op) resize(ctx context.Context) {
	err := o.c.Semaphore(o.path, 1).Resize(ctx, o.permits)
	o.p.note("#%d resizes %s to %d: %v", o.n, o.path, o.permits, errText{err})
	o.p.within(o.began, o.limit, "resize")
	if !errors.Is(err, zklock.ErrUnknownOutcome) {
		o.looked(ctx, "resize", err)
	}
}

// looked checks the error of a call that needs no hold.
func (o *op) looked(ctx context.Context, what string, err error) {
	switch {
	case err == nil:
	case ctx.Err() != nil && errors.Is(err, ctx.Err()):
	case errors.Is(err, zklock.ErrClosed) && o.p.closedSince(o.began):
	case errors.Is(err, session.ErrGarbled) && o.p.w.garbled():
	case errors.Is(err, session.ErrLost): // the session ended during the call
	default:
		o.p.w.violated("%s#%d: %s: unexpected error: %v", o.p.name, o.n, what, err)
	}
}

// leader calls Leader, and compares its answer with the oracle.
func (o *op) leader(ctx context.Context) {
	sure := o.p.w.oracle.certain(o.path)
	l, err := o.c.Election(o.path).Leader(ctx)
	o.p.note("#%d sees the leader %d: %v", o.n, l.Token, errText{err})
	o.p.within(o.began, o.limit, "leader")
	for _, t := range o.p.w.oracle.still(o.path, sure) {
		if err == nil && l.Token != t.token || errors.Is(err, zklock.ErrNoLeader) {
			o.p.w.violated("the leader of %s is %s, token %d, and Leader returned token %d, %v",
				o.path, t.who, t.token, l.Token, err)
		}
	}
	if !errors.Is(err, zklock.ErrNoLeader) {
		o.looked(ctx, "leader", err)
	}
}

// observe follows the leaders until its deadline.
func (o *op) observe(ctx context.Context) {
	var last zklock.Token
	var was string
	for l, err := range o.c.Election(o.path).Observe(ctx) {
		switch {
		case errors.Is(err, zklock.ErrNoLeader):
			if was == "none" {
				o.p.w.violated("%s#%d observes twice in succession that there is no leader",
					o.p.name, o.n)
			}
			was = "none"
		case err != nil:
			o.looked(ctx, "observe", err)
		default:
			if was != "" && was != "none" && was != l.Node {
				o.p.w.violated("%s#%d observes %s right after %s", o.p.name, o.n, l.Node, was)
			}
			if l.Token < last {
				o.p.w.violated("%s#%d observes the leader %d after %d", o.p.name, o.n, l.Token,
					last)
			}
			was, last = l.Node, l.Token
		}
	}
	o.p.note("#%d observed until %d", o.n, last)
	o.p.within(o.began, o.limit, "observe")
}
