package session

import (
	"container/heap"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/locker/internal/trusted"
)

// graces are the holders that have to stop some time before the lease is over, each with a grace of its own; the longest
// comes first. When the deadline moves to an earlier instant and watchLease would look too late for the longest, deadline.set
// makes it look at once. watchLease calls the graces that are due, and sleeps until the next one is.
type graces struct {
	mu    sync.Mutex // guards what follows; taken inside Session.mu, and held for O(log n)
	heap  graceHeap
	added int // how many have been added: watchLease sees by it that one came while it was looking
}

// grace has fn called when no more than d of the lease is left.
type grace struct {
	d  time.Duration
	fn func()
	at int // in the heap; −1: not any more
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

// most is the longest grace; 0: there is none.
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

// fire calls and removes each grace that is at least left, which is what is left of the lease. It returns the longest of the
// others, and a number that changes when one is added.
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

// graceHeap implements heap.Interface.
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

func (f forLocks) LeaseLeft() time.Duration {
	return time.Duration(f.s.deadline.at.Load() - int64(f.s.clock.glance().Sub(origin)))
}

func (f forLocks) GraceLimit() time.Duration {
	f.s.mu.Lock()
	defer f.s.mu.Unlock()
	if f.s.id == 0 {
		return time.Duration(none)
	}
	return f.s.lease.steady()
}

func (f forLocks) AwaitGrace(ctx context.Context, d time.Duration, node string) error {
	for asked := false; ; asked = true {
		if err := f.s.Alive(); err != nil {
			return err
		}
		if f.LeaseLeft() >= d+f.s.Timeout()/gracePart {
			return nil
		}
		if asked { // see Retain
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
