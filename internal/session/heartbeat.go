package session

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/locker/internal/session/internal/link"
	"github.com/zklock/locker/internal/session/internal/pipeline"
	"github.com/zklock/locker/internal/session/internal/wire"
)

// A session has one heartbeat, however many locks it holds. It gives up a conn whose server has
// owed an answer for too long (Keeper.Patience), or on which the lease can't be confirmed in time
// (Keeper.NeedsNewConn). It sends pings, which cost the leader nothing. While the session is
// retained, it also sends the writes that confirm the lease (beatLocked, Keeper.BeatDue): each
// checks a znode of one Retention.

// Beat does what is due on c, which is open, and returns the time until more is due. The conn's
// writer calls it then.
func (c *connection) Beat() time.Duration {
	s := c.s
	s.mu.Lock()
	now := s.clock.Now()
	wait, every := s.lease.Intervals()
	if c.beatDueLocked(now) <= 0 {
		c.Enqueue(c.beatLocked(now))
	}
	next, renew := c.beatDueLocked(now), s.lease.NeedsNewConn(now, c.upAt, c.upAt.Sub(c.began))
	s.mu.Unlock()
	unsent, unheard := c.Quiet(now)
	limit := c.Patience()
	switch {
	case renew:
		c.Fail(errThin)
	case unheard >= limit:
		c.Fail(fmt.Errorf("%w within %v", link.ErrSilent, limit))
	case unsent >= every: // also while a reply is due: the server has to hear of us, however long the reply takes
		c.Enqueue(pipeline.Ping())
		unsent = 0
	}
	return min(wait, limit-unheard, max(next, 0), every-unsent) + time.Millisecond
}

func (c *connection) Patience() time.Duration {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	return c.s.lease.Patience()
}

var errThin = errors.New("writes take too long to confirm the lease on one connection")

// beatLocked returns the next heartbeat. toCheck is not empty.
func (c *connection) beatLocked(now time.Time) *pipeline.Request {
	s := c.s
	first := s.toCheck.Front()
	s.toCheck.MoveToBack(first)
	r := first.Value.(*Retention)
	node := r.nodes[r.next]
	r.next = (r.next + 1) % len(r.nodes)
	req := s.check("heartbeat", node).r
	req.Urgent = true
	req.Detach()
	req.Hook = func(code int32) {
		if code == wire.CodeNoNode {
			r.foundMissing(node)
		}
	}
	c.lastWrite = now
	return req
}

// beatDueLocked returns the time until the next heartbeat on c is due. If toCheck is empty, none
// ever is: the loss of all that was held has been reported.
func (c *connection) beatDueLocked(now time.Time) time.Duration {
	if c.s.toCheck.Len() == 0 {
		return math.MaxInt64
	}
	return c.s.lease.BeatDue(now, c.lastWrite)
}

// Retention is one lock's claim that the session's lease is kept: see Session.Retain. Its methods
// may be called concurrently.
type Retention struct {
	s *Session

	// Guarded by Session.mu.
	nodes     []string      // as the caller named them; not changed in place; nil: released
	next      int           // index in nodes of the znode that this retention's next heartbeat checks
	place     *list.Element // in Session.toCheck
	missing   string        // the znode that was found missing; "": none
	onMissing func(node string)
}

// Retain marks the session as protecting a lock: until Release its lease is confirmed through the
// leader by heartbeats, each of which checks one of the znodes retained, and the session is over,
// for its holders, when the confirmed lease is. Each lock releases only its own Retention; with a
// counter, a second Release would end the protection of another lock.
//
// nodes, one at least, are ephemeral znodes of the session, which exist only together: heartbeats
// check them in turn. When Retain returns nil, SafeUntil is at least an eighth of the timeout
// ahead. Mostly it is already, and nothing is sent; after a long time without a write it takes one
// round trip to the leader. An error says that the session, or ctx, ended first, or that there is
// no such znode (zk.ErrNoNode); then there is nothing to Release.
func (s *Session) Retain(ctx context.Context, nodes ...string) (*Retention, error) {
	for checked := false; ; checked = true {
		if err := s.Err(); err != nil {
			return nil, err
		}
		now := s.clock.Now()
		s.mu.Lock()
		t := s.lease.Timeout()
		if s.lease.EnoughToHold(now, checked) {
			r := s.retainLocked(nodes)
			s.mu.Unlock()
			return r, nil
		}
		c, slow := s.conn, s.lease.WritesAreSlow()
		s.mu.Unlock()
		if checked && slow && c != nil {
			c.Fail(errThin)
		} else if checked { // too early: the follower needs time to report this session to the leader
			if !s.rest(ctx, t/20) {
				return nil, s.ended(ctx, errors.New("waiting for the leader to confirm the session"))
			}
		}
		if _, err := one(ctx, s, s.check("heartbeat", nodes[0])); err != nil && !errors.Is(err, zk.ErrNoAuth) {
			return nil, err
		}
	}
}

func (s *Session) retainLocked(nodes []string) *Retention {
	r := &Retention{s: s, nodes: nodes}
	r.place = s.toCheck.PushBack(r)
	s.lease.Retain()
	return r
}

// Release undoes the Retain. It may be called more than once.
func (r *Retention) Release() {
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	if r.nodes == nil {
		return
	}
	r.nodes, r.missing, r.onMissing = nil, "", nil
	r.s.toCheck.Remove(r.place)
	r.s.lease.Release()
}

// OnMissing has fn called, in a goroutine of the session's, should a heartbeat find one of the
// znodes missing, or have found it so already. The next heartbeats check the znodes of others.
func (r *Retention) OnMissing(fn func(node string)) {
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	r.onMissing = fn
	r.reportLocked()
}

func (r *Retention) foundMissing(node string) {
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	if slices.Contains(r.nodes, node) {
		r.missing = node
		r.s.toCheck.Remove(r.place)
		r.reportLocked()
	}
}

func (r *Retention) reportLocked() {
	if missing, fn := r.missing, r.onMissing; missing != "" && fn != nil {
		r.s.spawnLocked(func() { fn(missing) })
	}
}
