package simulation_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/zklock/locker/internal/session"
	"github.com/zklock/locker/zklock"
)

// check calls Check on a hold.
func (o *op) check(ctx context.Context) {
	or := o.p.w.oracle
	or.mu.Lock()
	gone := false
	for i := range o.t.nodes {
		gone = gone || or.removedByForce(o.t, i)
	}
	or.mu.Unlock()
	err := o.g.Check(ctx)
	o.p.note("#%d checks %s: %v", o.n, o.t.who, errText{err})
	o.p.within(o.began, o.limit, "check")
	if err == nil && gone {
		o.p.w.violated("Check said that %s holds, after its znode was removed", o.t.who)
	}
	o.used(ctx, "check", err)
}

// used checks the error of a call on a hold.
func (o *op) used(ctx context.Context, what string, err error) {
	switch {
	case err == nil, errors.Is(err, zklock.ErrLost), errors.Is(err, zklock.ErrUnlocked):
	case errors.Is(err, zklock.ErrClosed) && o.p.closedSince(o.t.began):
	case errors.Is(err, zklock.ErrInvalid) && what == "proclaim" && o.p.closedSince(o.t.began):
		// by the next client's election
	case ctx.Err() != nil && errors.Is(err, ctx.Err()):
	case errors.Is(err, zklock.ErrUnknownOutcome) && what != "check":
	case errors.Is(err, session.ErrGarbled) && o.p.w.garbled():
	default:
		o.p.w.violated("%s: %s: unexpected error: %v", o.t.who, what, err)
	}
}

// multi writes the registers of a hold's paths.
func (o *op) multi(ctx context.Context) {
	var writes []session.Op
	for _, p := range o.t.paths {
		writes = append(writes,
			session.OpSet{Path: register(p), Data: []byte(strconv.FormatInt(int64(o.t.token), 10)),
				Version: -1})
	}
	_, err := o.g.Multi(ctx, writes...)
	o.p.note("#%d writes for %s: %v", o.n, o.t.who, errText{err})
	o.p.within(o.began, o.limit, "multi")
	if err == nil {
		o.p.w.oracle.acknowledged(o.t)
	}
	o.used(ctx, "multi", err)
}

// proclaim changes a leader's value.
func (o *op) proclaim(ctx context.Context) {
	err := o.c.Election(o.t.paths[0]).Proclaim(ctx, o.g.Hold,
		[]byte(fmt.Sprintf("%s/%d", o.p.name, o.n)))
	o.p.note("#%d proclaims for %s: %v", o.n, o.t.who, errText{err})
	o.p.within(o.began, o.limit, "proclaim")
	o.used(ctx, "proclaim", err)
}

// reenter takes the lock again under its own hold.
func (o *op) reenter(ctx context.Context) {
	h := o.g.Hold
	inner, done := context.WithCancel(h.Context())
	defer done()
	defer context.AfterFunc(ctx, done)()
	or := o.p.w.oracle
	or.mu.Lock()
	o.t.entering++
	or.mu.Unlock()
	var again *zklock.Hold
	var err error
	switch o.t.kind {
	case "mutex":
		_, again, err = o.c.Mutex(o.t.paths[0], zklock.WithReentrancy()).Lock(inner)
	case "multi":
		_, again, err = o.c.MultiLock(o.t.paths, zklock.WithReentrancy()).Lock(inner)
	case "write":
		_, again, err = o.c.RWMutex(o.t.paths[0], zklock.WithReentrancy()).Lock(inner)
	}
	o.p.note("#%d enters again under %s: %v", o.n, o.t.who, errText{err})
	g := &hold{Hold: again}
	or.mu.Lock()
	if o.t.entering--; err == nil {
		o.t.holds = append(o.t.holds, g)
	}
	or.mu.Unlock()
	o.p.within(o.began, o.limit, "re-entry")
	if err != nil {
		if inner.Err() == nil && !errors.Is(err, zklock.ErrDeadlock) {
			o.used(inner, "re-entry", err)
		}
		return
	}
	if again.Token() != o.t.token {
		o.p.w.violated("%s entered again and got the token %d, not %d", o.t.who, again.Token(),
			o.t.token)
	}
	o.keep(o.t, g)
}
