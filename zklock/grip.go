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
// It ends once (close), for the first cause that comes: released by the last Unlock, lost (end), or held for too long
// (expire). Its context is a child of the session's, so that the session's end reaches every hold in the same instant.
// Its znodes are given up once as well, in one place (leave), by the last Unlock or by WithMaxHold, whichever is first:
// whatever ended it, and whatever else happens at the same time. Only what the ensemble has deleted, or will delete with
// the session, needs nobody for that.
type grip struct {
	c    *Client
	s    *session.Session // of its place, whichever that is
	info LockInfo
	from time.Time // when it was acquired

	keep   *session.Retention // nil for a place with local handoff, which has one of its own
	unhook func() bool        // stops the book-keeping at ctx's end

	// writes counts the Multis of its holds that are under way or whose outcome is unknown.
	writes atomic.Int32

	mu      sync.Mutex      // guards what follows
	ctx     context.Context // replaced only by the first join of a shared place's grip
	cancel  context.CancelCauseFunc
	lead    context.CancelCauseFunc // of the first hold, when ctx was replaced: it was that one's until then
	p       place                   // replaced only by demote
	move    *move                   // not nil while demote replaces p, whose znode then goes by our own hand
	missed  bool                    // meanwhile the znode was heard to have gone
	demoted bool                    // p is a reader's place, and was a writer's
	holds   int                     // of the lock, or of the write lock
	reads   int                     // of the read lock
	over    bool
	cause   error       // why, when over; ctx may have been ended by an Unlock that came a moment too late
	leaving bool        // leave was called
	settle  *time.Timer // until the znode is watched; may be nil
	max     *time.Timer // of WithMaxHold; may be nil
}

// move is a downgrade under way: the writer's znode becomes a reader's.
type move struct {
	h    *Hold         // the hold that is turned into one of the read lock; nil for an Unlock of the write lock
	done chan struct{} // closed when err is set; the grip's move is nil by then
	err  error
}

// hold makes the hold of a place that is first in line and whose session is retained.
func (b *base) hold(ctx context.Context, p place, keep *session.Retention, w *waiting) *Hold {
	t, shared := p.(*tenure)
	if shared {
		return b.holdShared(ctx, t, w)
	}
	g := &grip{c: b.c, s: p.Session(), p: p, keep: keep, info: w.info, from: time.Now()}
	read := g.info.Kind == kindRead
	if read {
		g.reads = 1
	} else {
		g.holds = 1
	}
	g.ctx, g.cancel = context.WithCancelCause(p.Session().Context())
	b.acquired(g, w)
	g.mu.Lock() // a timer may be early
	b.limitLocked(g)
	g.unhook = context.AfterFunc(g.ctx, func() { g.end(context.Cause(g.ctx)) })
	g.followLocked(p)
	g.mu.Unlock()
	keep.OnMissing(g.missing)
	return g.newHold(ctx, read)
}

// holdShared is hold for a place with local handoff, which is looked after already, whoever holds. It is made lean: of a
// hold that lasts for a microsecond most of the time would go into a second context.
func (b *base) holdShared(ctx context.Context, t *tenure, w *waiting) *Hold {
	both := &struct {
		g grip
		h Hold
	}{g: grip{c: b.c, s: t.s, p: t, info: w.info, from: time.Now(), holds: 1}}
	g, h := &both.g, &both.h
	h.g = g
	h.bind(t.s.Context(), ctx, t.s)
	g.ctx, g.cancel = h.ctx.Context, h.cancel // until somebody joins
	b.acquired(g, w)
	g.mu.Lock()
	b.limitLocked(g)
	g.mu.Unlock()
	t.attach(g)
	return h
}

// acquired tells of g.
func (b *base) acquired(g *grip, w *waiting) {
	b.c.use.acquired(w, g)
	b.c.tellAcquired(AcquiredInfo{g.info, Token(g.p.Czxid()), g.p.Nodes()[0], g.from.Sub(w.since), 0})
}

// limitLocked starts the time of a hold that may only last so long.
func (b *base) limitLocked(g *grip) {
	if b.o.maxHold > 0 {
		g.max = time.AfterFunc(b.o.maxHold, g.expire)
	}
}

// newHold makes a hold with a context of its own; it has been counted.
func (g *grip) newHold(values context.Context, read bool) *Hold {
	h := &Hold{g: g, read: read}
	h.bind(g.ctx, values, g.s)
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

// followLocked has the grip end when p's znode is deleted: at once when that costs nothing, else after recipe.Settle,
// since what is over sooner is not worth a read.
func (g *grip) followLocked(p place) {
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
	g.settle = time.AfterFunc(recipe.Settle, watch)
}

// missing hears from a heartbeat that there is no node.
func (g *grip) missing(node string) {
	if p := g.place(); p.Nodes()[0] == node {
		g.gone(p)
	}
}

// gone hears that p's znode was deleted, by somebody else unless p is being, or has been, replaced.
func (g *grip) gone(p place) {
	g.mu.Lock()
	ours := g.move != nil || g.p != p
	g.missed = g.missed || g.move != nil && g.p == p
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
	if g.settle != nil {
		g.settle.Stop()
	}
	if g.max != nil && !g.standsLocked() { // else what still stands has to go at that time
		g.max.Stop()
	}
	g.c.use.ended(g)
	return true
}

// standsLocked reports whether znodes of a grip that is over may stand until somebody gives them up. One that was lost
// with its session has none, nor has one whose only znode was deleted.
func (g *grip) standsLocked() bool {
	if g.leaving || errors.Is(g.cause, ErrNodeDeleted) && len(g.p.Nodes()) == 1 {
		return false
	}
	return errors.Is(g.cause, ErrUnlocked) || g.p.Session().Err() == nil
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
		g.keep.Release()
	}
	g.c.tellLost(LostInfo{g.told(), Token(p.Czxid()), time.Since(g.from), cause})
	return true
}

// expire ends a grip that was held for too long: its context first, then its znodes; also those that it kept when it
// was lost before. The holder did not let go, so for a lock delay it counts as lost.
func (g *grip) expire() {
	if !g.end(ErrMaxHold) && errors.Is(g.why(), ErrUnlocked) {
		return // the release, which came first, gives the znodes up
	}
	g.place().Session().Go(func(ctx context.Context) {
		if err := g.leave(ctx, true); err != nil {
			g.c.unreleased(ctx, g.place(), err)
		}
	})
}

// release gives the lock up.
func (g *grip) release(ctx context.Context) error {
	if !g.close(ErrUnlocked) {
		return g.surrender(ctx, g.why())
	}
	defer g.c.holds.Done()
	t, shared := g.place().(*tenure)
	if shared && g.writes.Load() > 0 {
		t.retire() // a write that is still under way must not be carried out in the next holder's time
	}
	err := g.leave(ctx, false)
	p := g.place()
	if !shared {
		g.keep.Release()
	}
	if errors.Is(err, recipe.ErrGone) {
		err = ErrNodeDeleted
	}
	g.c.tellReleased(ReleasedInfo{g.told(), Token(p.Czxid()), time.Since(g.from), err})
	return err
}

// surrender gives up, for the last Unlock of a grip that was lost, what the loss has left, and returns the loss.
func (g *grip) surrender(ctx context.Context, lost error) error {
	g.end(lost) // it may have been found by a look at the clock only
	if err := g.leave(ctx, false); err != nil {
		g.c.unreleased(ctx, g.place(), err)
	}
	return lost
}

// leave gives up all znodes of a grip that is over. The first call does, and any other returns nil at once; forfeit says
// that they count as lost. When ctx ends first the error is ctx's, and it goes on in the background.
func (g *grip) leave(ctx context.Context, forfeit bool) error {
	g.mu.Lock()
	stands, cause := g.standsLocked(), g.cause
	g.leaving = true
	if g.max != nil {
		g.max.Stop()
	}
	g.mu.Unlock()
	if !stands {
		return nil
	}
	give := func(ctx context.Context, p place) error {
		if t, ok := p.(*tenure); ok && !errors.Is(cause, ErrUnlocked) {
			t.lose(cause) // before Leave, which would hand it on; whoever ended the grip may not have come to that yet
		}
		if forfeit || errors.Is(cause, ErrMaxHold) {
			p.Forfeit()
		}
		return p.Leave(ctx)
	}
	p, ok := g.still(ctx)
	if ok {
		return give(ctx, p)
	}
	p.Session().Go(func(ctx context.Context) {
		if p, ok := g.still(ctx); ok {
			if err := give(ctx, p); err != nil {
				g.c.unreleased(ctx, p, err)
			}
		}
	})
	return session.Waited(ctx, errors.New("waiting for the write lock to become a read lock"))
}

// drop uncounts a hold. last: it was the last of all. A move is returned when it was the last of the write lock, and
// readers remain: with mine, drop has begun it, in one step with the count, so that whoever releases the last read
// waits for it; without, a Downgrade has.
func (g *grip) drop(read bool) (last bool, m *move, mine bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if read {
		g.reads--
	} else {
		g.holds--
	}
	if !read && g.holds == 0 && g.reads > 0 && !g.over && !g.demoted {
		m, mine = g.move, g.move == nil
		if mine {
			m = g.beginLocked(nil)
		}
	}
	return g.holds+g.reads == 0, m, mine
}

// errNoWrite says that a grip can't be joined for writing: it is becoming, or has become, a reader's.
var errNoWrite = fmt.Errorf("%w, for reading", ErrDeadlock)

// join counts one more hold. False: the grip is over or about to be released. errNoWrite: see there.
func (g *grip) join(read bool) (bool, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case g.over || g.holds+g.reads == 0 || g.ctx.Err() != nil:
		return false, nil
	case !read && (g.holds == 0 || g.move != nil):
		return false, errNoWrite
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
	return true, nil
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

// live reports whether the lock is held.
func (g *grip) live() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return !g.over && g.holds+g.reads > 0 && g.ctx.Err() == nil
}

// lockKey finds a grip in a context.
type lockKey struct {
	c    *Client
	path string
}

// held returns the live grip of path that ctx carries, or nil. One of another family of locks can't be joined, nor can
// a place be taken beside it: ErrConflict.
func (c *Client) held(ctx context.Context, path, family string) (*grip, error) {
	g, ok := ctx.Value(lockKey{c, path}).(*grip)
	switch {
	case !ok || !g.live():
		return nil, nil
	case familyOf(g.info.Kind) != family:
		return nil, fmt.Errorf("%w: the caller holds %s as a %s", ErrConflict, path, g.info.Kind)
	}
	return g, nil
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
	g, err := b.c.held(ctx, b.path, familyMutex)
	if g == nil {
		return nil, err
	}
	return b.enter(ctx, g, false)
}

// enter counts one more hold of g. Nil, nil: g is over by now.
func (b *base) enter(ctx context.Context, g *grip, read bool) (*Hold, error) {
	if !b.o.reentrant {
		return nil, ErrDeadlock
	}
	if ok, err := g.join(read); !ok {
		return nil, err
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
	case permitsKey: // of all holds that the context belongs to
		n, _ := c.values.Value(key).(int)
		if c.h.g.covers(lockKey(k)) && c.Err() == nil {
			n += c.h.g.info.Permits
		}
		return n
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
