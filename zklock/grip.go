package zklock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/zklock/locker/recipe"
	"github.com/zklock/locker/session"
)

// grip is one acquisition: what its holds share. There is one hold, or with reentrancy several.
//
// It ends once, in one of three ways: released by the last Unlock, lost (end), or held for too long (expire). Its
// context is a child of the session's, so that the session's end reaches every hold in the same instant.
type grip struct {
	c    *Client
	info LockInfo
	from time.Time // when it was acquired

	unhook func() bool // stops the book-keeping at ctx's end

	// writes counts the Multis of its holds that are under way or whose outcome is unknown.
	writes atomic.Int32

	mu      sync.Mutex      // guards what follows
	ctx     context.Context // replaced only by the first join of a shared place's grip
	cancel  context.CancelCauseFunc
	lead    context.CancelCauseFunc // of the first hold, when ctx was replaced: it was that one's until then
	p       place                   // replaced only by demote
	moved   chan struct{}           // not nil while demote replaces p, whose znode then goes by our own hand; closed at the end
	missed  bool                    // meanwhile the znode was heard to have gone
	demoted bool                    // p is a reader's place, and was a writer's
	holds   int                     // of the lock, or of the write lock
	reads   int                     // of the read lock
	over    bool
	cause   error // why, when over; ctx may have been ended by an Unlock that came a moment too late
	timers  []*time.Timer
}

// hold makes the hold of a place that is first in line and whose session is retained.
func (b *base) hold(ctx context.Context, p place, w *waiting) *Hold {
	t, shared := p.(*tenure)
	if shared {
		return b.holdShared(ctx, t, w)
	}
	g := &grip{c: b.c, p: p, info: w.info, from: time.Now()}
	read := g.info.Kind == kindRead
	if read {
		g.reads = 1
	} else {
		g.holds = 1
	}
	g.ctx, g.cancel = context.WithCancelCause(p.Session().Context())
	b.acquired(g, w)
	g.mu.Lock() // a timer may be early
	defer g.mu.Unlock()
	b.limit(g)
	g.unhook = context.AfterFunc(g.ctx, func() { g.end(context.Cause(g.ctx)) })
	g.follow(p)
	return g.newHold(ctx, read)
}

// holdShared is hold for a place with local handoff, which is looked after already, whoever holds. It is made lean: of a
// hold that lasts for a microsecond most of the time would go into a second context.
func (b *base) holdShared(ctx context.Context, t *tenure, w *waiting) *Hold {
	both := &struct {
		g grip
		h Hold
	}{g: grip{c: b.c, p: t, info: w.info, from: time.Now(), holds: 1}}
	g, h := &both.g, &both.h
	h.g = g
	h.ctx, h.cancel = context.WithCancelCause(holdContext{t.s.Context(), ctx, h})
	g.ctx, g.cancel = h.ctx, h.cancel // until somebody joins
	b.acquired(g, w)
	g.mu.Lock()
	b.limit(g)
	g.mu.Unlock()
	t.attach(g)
	return h
}

// acquired tells of g.
func (b *base) acquired(g *grip, w *waiting) {
	b.c.use.acquired(w, g)
	b.c.tellAcquired(AcquiredInfo{g.info, Token(g.p.Czxid()), g.p.Nodes()[0], g.from.Sub(w.since), 0})
}

// limit starts the time of a hold that may only last so long. The caller holds g.mu.
func (b *base) limit(g *grip) {
	if b.o.maxHold > 0 {
		g.timers = append(g.timers, time.AfterFunc(b.o.maxHold, g.expire))
	}
}

// newHold makes a hold with a context of its own; it has been counted.
func (g *grip) newHold(values context.Context, read bool) *Hold {
	h := &Hold{g: g, read: read}
	h.ctx, h.cancel = context.WithCancelCause(holdContext{g.ctx, values, h})
	return h
}

// told is info for those who are told of the grip as it is now.
func (g *grip) told() LockInfo {
	g.mu.Lock()
	defer g.mu.Unlock()
	info := g.info
	if g.demoted {
		info.Kind = kindRead
	}
	return info
}

// place returns what the grip stands on.
func (g *grip) place() place {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.p
}

// follow has the grip end when p's znode is deleted: at once when that costs nothing, else after recipe.Settle, since
// what is over sooner is not worth a read. The caller holds mu.
func (g *grip) follow(p place) {
	watch := func() {
		gone := func() { g.gone(p) }
		p.Session().Go(func(ctx context.Context) {
			if err := p.OnGone(ctx, gone); errors.Is(err, recipe.ErrGone) {
				gone()
			}
		})
	}
	if p.Settled() {
		watch()
		return
	}
	g.timers = append(g.timers, time.AfterFunc(recipe.Settle, watch))
}

// gone hears that p's znode was deleted, by somebody else unless p is being, or has been, replaced.
func (g *grip) gone(p place) {
	g.mu.Lock()
	ours := g.moved != nil || g.p != p
	g.missed = g.missed || g.moved != nil && g.p == p
	g.mu.Unlock()
	if !ours {
		g.end(ErrNodeDeleted)
	}
}

// close ends the grip's context with cause; false when the grip was over before.
func (g *grip) close(cause error) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.over {
		return false
	}
	g.over, g.cause = true, cause
	if g.unhook != nil {
		g.unhook() // first: else the context's end would start a goroutine that finds nothing to do
	}
	g.cancel(cause) // under mu: whoever finds the grip over finds the cause
	if g.lead != nil {
		g.lead(cause)
	}
	for _, t := range g.timers {
		t.Stop()
	}
	g.c.use.ended(g)
	return true
}

// end loses the lock for cause. False: it had ended before.
func (g *grip) end(cause error) bool {
	if !g.close(cause) {
		return false
	}
	defer g.c.holds.Done()
	p := g.place()
	if t, ok := p.(*tenure); ok {
		t.lose(cause) // never handed on
	} else {
		p.Session().Release()
	}
	g.c.tellLost(LostInfo{g.told(), Token(p.Czxid()), time.Since(g.from), cause})
	return true
}

// expire ends a grip that was held for too long: its context first, then its znode. The holder did not let go, so for
// a lock delay it counts as lost.
func (g *grip) expire() {
	if !g.end(ErrMaxHold) {
		return
	}
	g.place().Session().Go(func(ctx context.Context) {
		if p, ok := g.still(ctx); ok {
			p.Forfeit()
			g.c.giveUp(ctx, p)
		}
	})
}

// release gives the lock up.
func (g *grip) release(ctx context.Context) error {
	if !g.close(ErrUnlocked) {
		return g.why()
	}
	defer g.c.holds.Done()
	p, ok := g.still(ctx)
	t, shared := p.(*tenure)
	if shared && g.writes.Load() > 0 {
		t.retire() // a write that is still under way must not be carried out in the next holder's time
	}
	var err error
	if ok {
		err = p.Leave(ctx)
	} else { // as Leave does when ctx ends first
		err = session.Waited(ctx, errors.New("waiting for the write lock to become a read lock"))
		p.Session().Go(func(ctx context.Context) {
			if p, ok := g.still(ctx); ok {
				g.c.giveUp(ctx, p)
			}
		})
	}
	if !shared {
		p.Session().Release()
	}
	if errors.Is(err, recipe.ErrGone) {
		err = ErrNodeDeleted
	}
	g.c.tellReleased(ReleasedInfo{g.told(), Token(p.Czxid()), time.Since(g.from), err})
	return err
}

// drop uncounts a hold. last: it was the last of all; demote: it was the last of the write lock, and readers remain.
func (g *grip) drop(read bool) (last, demote bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if read {
		g.reads--
	} else {
		g.holds--
	}
	return g.holds+g.reads == 0, !read && g.holds == 0 && g.reads > 0
}

// join counts one more hold, unless the grip is over or about to be released.
func (g *grip) join(read bool) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.over || g.holds+g.reads == 0 || g.ctx.Err() != nil {
		return false
	}
	if t, ok := g.p.(*tenure); ok && g.lead == nil { // from here on the first hold's end is not the grip's
		g.lead = g.cancel
		g.ctx, g.cancel = context.WithCancelCause(t.s.Context())
	}
	if read {
		g.reads++
	} else {
		g.holds++
	}
	return true
}

// why is the cause of the grip's end, when it is over.
func (g *grip) why() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.over {
		return g.cause
	}
	return context.Cause(g.ctx)
}

// live reports whether the lock is held, and whether with a right to write.
func (g *grip) live() (held, write bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return !g.over && g.holds+g.reads > 0 && g.ctx.Err() == nil, g.holds > 0
}

// downgrader is a place that can become a reader's.
type downgrader interface {
	Downgrade(ctx context.Context) (*recipe.Ticket, error)
}

// demote turns a writer's grip into a reader's, at the same place in line. When it fails the grip is what it was,
// unless it was lost, or the outcome is unknown: then it is given up. Whoever ends the grip meanwhile waits for the end
// of the move, and gives up what there is then.
func (g *grip) demote(ctx context.Context) error {
	g.mu.Lock()
	p, ok := g.p.(downgrader)
	if !ok || g.over || g.moved != nil {
		g.mu.Unlock()
		return ErrNotHeld
	}
	g.moved, g.missed = make(chan struct{}), false
	g.mu.Unlock()
	r, err := p.Downgrade(ctx)
	g.mu.Lock()
	close(g.moved)
	g.moved = nil
	over, missed := g.over, g.missed
	if err == nil {
		g.p, g.demoted = r, true
		if !over {
			g.follow(r)
		}
	}
	g.mu.Unlock()
	switch {
	case err == nil:
		if !over {
			g.c.tellDowngraded(DowngradedInfo{g.told(), Token(r.Czxid()), r.Node(), time.Since(g.from)})
		}
		return nil
	case errors.Is(err, recipe.ErrGone):
		g.end(ErrNodeDeleted)
		return ErrNodeDeleted
	case over:
		return fmt.Errorf("%w; %w", err, g.why())
	case errors.Is(err, ErrUnknownOutcome):
		return fmt.Errorf("%w; the lock is given up", errors.Join(err, g.release(ctx)))
	case missed:
		g.end(ErrNodeDeleted)
		return fmt.Errorf("%w; %w", err, ErrNodeDeleted)
	}
	return err
}

// demoteFor is demote for an Unlock, which has released the write lock whatever becomes of ctx: it goes on in the
// background when ctx ends.
func (g *grip) demoteFor(ctx context.Context) error {
	s := g.place().Session()
	done := make(chan error, 1)
	if !s.Go(func(ctx context.Context) { done <- g.demote(ctx) }) {
		return s.Err()
	}
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return session.Waited(ctx, errors.New("waiting for the write lock to become a read lock"))
	}
}

// still returns what the grip stands on once no move is under way, or false when ctx ends first.
func (g *grip) still(ctx context.Context) (place, bool) {
	g.mu.Lock()
	p, moved := g.p, g.moved
	g.mu.Unlock()
	if moved == nil {
		return p, true
	}
	select {
	case <-moved:
		return g.place(), true
	case <-ctx.Done():
		return p, false
	}
}

// lockKey finds a grip in a context.
type lockKey struct {
	c    *Client
	path string
}

// held returns the live grip of path that ctx carries, or nil. One of another family of locks can't be joined, nor can
// a place be taken beside it: ErrConflict.
func (c *Client) held(ctx context.Context, path, family string) (g *grip, write bool, err error) {
	g, ok := ctx.Value(lockKey{c, path}).(*grip)
	if !ok {
		return nil, false, nil
	}
	live, write := g.live()
	switch {
	case !live:
		return nil, false, nil
	case familyOf(g.info.Kind) != family:
		return nil, false, fmt.Errorf("%w: the caller holds %s as a %s", ErrConflict, path, g.info.Kind)
	}
	return g, write, nil
}

// familyOf tells which kinds of locks stand in the same lines.
func familyOf(kind string) string {
	switch kind {
	case kindRead, kindWrite:
		return familyRW
	case "mutex", "multi", "election":
		return familyMutex
	}
	return kind
}

const (
	familyMutex = "mutex"
	familyRW    = "read/write lock"
)

// reenter looks for a hold of the same lock in ctx. With reentrancy it is counted up; without, waiting for it would
// never end. Nil, nil: there is none.
func (b *base) reenter(ctx context.Context) (*Hold, error) {
	g, _, err := b.c.held(ctx, b.path, familyMutex)
	if g == nil {
		return nil, err
	}
	return b.enter(ctx, g, false)
}

// enter counts one more hold of g.
func (b *base) enter(ctx context.Context, g *grip, read bool) (*Hold, error) {
	switch {
	case !b.o.reentrant:
		return nil, ErrDeadlock
	case !g.join(read):
		return nil, nil
	}
	return g.newHold(ctx, read), nil
}

// holdContext ends with the grip and has the values of the context that Lock was called with.
type holdContext struct {
	context.Context // the grip's
	values          context.Context
	h               *Hold
}

// holdKey finds the innermost hold in a context.
type holdKey struct{}

// HoldFrom returns the hold that ctx belongs to: the innermost one whose Context it is, or is derived from. It is for
// functions that run inside Do or Guard and want the token, SafeUntil or Multi.
func HoldFrom(ctx context.Context) (*Hold, bool) {
	h, ok := ctx.Value(holdKey{}).(*Hold)
	return h, ok
}

// Value finds the grip, for a Lock under this hold, before it looks further.
func (c holdContext) Value(key any) any {
	switch k := key.(type) {
	case holdKey:
		return c.h
	case lockKey:
		if c.h.g.covers(k) {
			return c.h.g
		}
	}
	// The grip's context has no values but the one that lets package context cancel its children without a goroutine.
	if v := c.Context.Value(key); v != nil {
		return v
	}
	return c.values.Value(key)
}

// covers reports whether the grip holds the path of k.
func (g *grip) covers(k lockKey) bool {
	if k.c != g.c {
		return false
	}
	if g.info.Paths == nil {
		return k.path == g.info.Path
	}
	for _, p := range g.info.Paths {
		if k.path == p {
			return true
		}
	}
	return false
}
