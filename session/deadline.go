package session

import (
	"container/heap"
	"context"
	"errors"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/locker/internal/trusted"
)

// deadline is the instant at which the session is over unless its lease is extended before. It is read and written without a
// mutex, and has its own timer. Each change of the lease, under Session.mu, stores the new instant (moveDeadlineLocked);
// Alive and watchLease compare it with the clock.
type deadline struct {
	at    atomic.Int64 // nanoseconds after origin, on the session's clock; none: no session yet
	every atomic.Int64 // nanoseconds: the longest time between two runs of the timer
	clock *clock
	timer *time.Timer
	looks atomic.Int64 // when the timer runs at the latest: nanoseconds after origin, by time.Now
}

const none = math.MaxInt64

// newDeadline returns a deadline that calls look when the instant may have come.
func newDeadline(c *clock, look func()) *deadline {
	d := &deadline{clock: c, timer: time.AfterFunc(math.MaxInt64, look)}
	d.at.Store(none)
	d.looks.Store(none)
	return d
}

// set moves the deadline. The timer stands still while the machine sleeps, and the session's clock does not, so the timer's
// function looks at that clock every so often. That is usually soon enough for an earlier end too, and the timer is not
// touched: each hold that is the session's only one makes the deadline earlier. grace is the longest grace of a holder: the
// timer has to run that long before the end.
func (d *deadline) set(end time.Time, grace, every time.Duration) {
	d.every.Store(int64(every))
	at := int64(end.Sub(origin))
	if before := d.at.Swap(at); at < before && int64(time.Since(origin)+end.Sub(d.clock.glance())-grace) < d.looks.Load() {
		d.timer.Reset(0) // it would run too late
	}
}

// left returns the time until the deadline; zero or less: it has come.
func (d *deadline) left(now time.Time) time.Duration {
	return time.Duration(d.at.Load()) - now.Sub(origin)
}

// watchLease is the timer's function. It ends the session without a mutex; to call the graces it takes only graces.mu.
func (s *Session) watchLease() {
	if s.Err() != nil {
		return
	}
	d, now := s.deadline, s.clock.now()
	left := d.left(now)
	if left <= 0 {
		s.end(ErrLeaseOver)
		return
	}
	most, added := s.graces.fire(left)
	wait := max(0, min(left-most, time.Duration(d.every.Load())))
	d.looks.Store(int64(time.Since(origin) + wait))
	d.timer.Reset(wait)
	if _, late := s.graces.fire(left); late != added || d.left(now) < left {
		d.timer.Reset(0) // a grace was added, or the deadline moved closer, and our Reset undid theirs: look again
	}
}

// Alive returns Err after a look at the clock, without waiting for a timer to notice that the lease is over: after a stop of
// the whole process that may take a moment. It takes no mutex and allocates nothing.
func (s *Session) Alive() error {
	if s.ctx.Err() == nil {
		if s.deadline.left(s.clock.glance()) > 0 {
			return nil
		}
		s.end(ErrLeaseOver)
	}
	return s.Err()
}

// graces are the holders that have to stop some time before the lease is over, the one with the longest grace first.
// watchLease calls those that are due, and sleeps until the next one is.
type graces struct {
	mu    sync.Mutex // guards what follows; taken inside Session.mu, and held for O(log n)
	heap  graceHeap
	added int // how many have been added: tells watchLease that one came meanwhile
}

// grace is a call of fn when no more than d of the lease is left.
type grace struct {
	d  time.Duration
	fn func()
	at int // index in the heap; −1: removed
}

func (gs *graces) add(g *grace) {
	gs.mu.Lock()
	defer gs.mu.Unlock()
	gs.added++
	heap.Push(&gs.heap, g)
}

func (gs *graces) remove(g *grace) {
	gs.mu.Lock()
	defer gs.mu.Unlock()
	if g.at >= 0 {
		heap.Remove(&gs.heap, g.at)
	}
}

func (gs *graces) most() time.Duration {
	gs.mu.Lock()
	defer gs.mu.Unlock()
	return gs.mostLocked()
}

func (gs *graces) mostLocked() time.Duration {
	if len(gs.heap) == 0 {
		return 0
	}
	return gs.heap[0].d
}

// fire calls and removes each grace of at least left, the rest of the lease. It returns the longest of the others, and a
// number that changes when a grace is added.
func (gs *graces) fire(left time.Duration) (most time.Duration, added int) {
	for {
		gs.mu.Lock()
		most, added = gs.mostLocked(), gs.added
		if most < left || most == 0 {
			gs.mu.Unlock()
			return most, added
		}
		g := heap.Pop(&gs.heap).(*grace) //nolint:forcetypeassert // nothing else is pushed
		gs.mu.Unlock()
		g.fn()
	}
}

type graceHeap []*grace

func (h graceHeap) Len() int           { return len(h) }
func (h graceHeap) Less(i, j int) bool { return h[i].d > h[j].d }
func (h graceHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i]; h[i].at, h[j].at = i, j }
func (h *graceHeap) Push(g any)        { n := g.(*grace); n.at = len(*h); *h = append(*h, n) } //nolint:forcetypeassert // see fire
func (h *graceHeap) Pop() any {
	last := len(*h) - 1
	g := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	g.at = -1
	return g
}

func (f forLocks) LeaseLeft() time.Duration { return f.s.deadline.left(f.s.clock.glance()) }

func (f forLocks) GraceLimit() time.Duration {
	f.s.mu.Lock()
	defer f.s.mu.Unlock()
	if f.s.id == 0 {
		return time.Duration(none)
	}
	return f.s.lease.steady()
}

func (f forLocks) AwaitGrace(ctx context.Context, d time.Duration, node string) error {
	for checked := false; ; checked = true {
		if err := f.s.Alive(); err != nil {
			return err
		}
		if f.LeaseLeft() >= d+f.s.Timeout()/gracePart {
			return nil
		}
		if checked { // see Retain
			if err := f.s.pause(ctx, f.s.Timeout()/20); err != nil {
				return err
			}
		}
		if _, err := one(ctx, f.s, f.s.check(node)); err != nil && !errors.Is(err, zk.ErrNoAuth) {
			return err
		}
	}
}

func (f forLocks) OnGrace(d time.Duration, fn func()) (stop func()) {
	g := &grace{d: d, fn: fn}
	f.s.graces.add(g)
	f.s.deadline.timer.Reset(0)
	return func() { f.s.graces.remove(g) }
}

var _ trusted.Session = forLocks{}
