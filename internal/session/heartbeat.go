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
// retained, it also sends the writes that confirm the lease (nextBeatLocked, Keeper.BeatDue): each
// checks a znode of one Retention.

// Beat does what is due on c, which is open: it sends a heartbeat or a ping, or gives up c. It
// returns the time until more may be due. The conn's writer calls it then.
func (c *connection) Beat() time.Duration {
	s := c.s
	s.mu.Lock()
	now := s.clock.Now()
	runInterval, pingInterval := s.lease.Intervals()
	if c.beatDueLocked(now) <= 0 {
		c.Enqueue(c.nextBeatLocked(now))
	}
	untilBeat := c.beatDueLocked(now)
	handshakeTook := c.upAt.Sub(c.began)
	needsNewConn := s.lease.NeedsNewConn(now, c.upAt, handshakeTook)
	s.mu.Unlock()

	unsent, unheard := c.Quiet(now)
	patience := c.Patience()
	switch {
	case needsNewConn:
		c.Fail(errSlowWrites)
	case unheard >= patience:
		c.Fail(fmt.Errorf("%w within %v", link.ErrSilent, patience))
	case unsent >= pingInterval:
		// Also while a reply is due: the server has to hear of us, however long the reply takes.
		c.Enqueue(pipeline.Ping())
		unsent = 0
	}
	next := min(runInterval, max(untilBeat, 0), patience-unheard, pingInterval-unsent)
	return next + time.Millisecond // so that what is due then is certainly due
}

// Patience implements link.Owner.
func (c *connection) Patience() time.Duration {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	return c.s.lease.Patience()
}

var errSlowWrites = errors.New("writes take too long to confirm the lease on one connection")

// nextBeatLocked returns the next heartbeat, which the caller sends at now. Retentions take turns,
// and so do the znodes of each. toCheck must not be empty.
func (c *connection) nextBeatLocked(now time.Time) *pipeline.Request {
	s := c.s
	turn := s.toCheck.Front()
	s.toCheck.MoveToBack(turn)
	r := turn.Value.(*Retention)
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

// beatDueLocked returns the time until the next heartbeat on c is due. If toCheck is empty, none is
// ever due: nothing is retained, or heartbeats have found missing what each Retention names.
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
	nodes   []string      // as the caller named them, not changed in place; nil after Release
	next    int           // index in nodes of the znode that its next heartbeat checks
	place   *list.Element // in Session.toCheck
	missing string        // the znode that was found missing, or ""
	holder  Holder        // nil before ReportTo, and after Release
}

// Holder is told when a znode of its Retention is gone.
type Holder interface {
	// Missing says that node, one of the Retention's znodes, does not exist.
	Missing(node string)
}

// Retain marks the session as protecting a lock. Until Release, heartbeats confirm its lease
// through the leader, and each of them checks one of nodes. The session is over for its holders
// when the confirmed lease ends. Each lock releases only its own Retention; with a counter, a
// second Release would end the protection of another lock.
//
// nodes, one at least, are ephemeral znodes of the session, which exist only together: heartbeats
// check them in turn.
//
// When Retain returns, SafeUntil is at least an eighth of the timeout ahead. Usually it is that far
// ahead already, and nothing is sent. After a long time without a write, Retain takes one round
// trip to the leader.
//
// The error says that the session, or ctx, has ended, or that there is no such znode
// (zk.ErrNoNode). Then there is nothing to Release.
func (s *Session) Retain(ctx context.Context, nodes ...string) (*Retention, error) {
	r, isRetained, err := s.tryRetain(nodes, false)
	if isRetained || err != nil {
		return r, err
	}
	for {
		if err := s.confirmLease(ctx, nodes[0]); err != nil {
			return nil, err
		}
		r, isRetained, err := s.tryRetain(nodes, true)
		if isRetained || err != nil {
			return r, err
		}
		if err := s.prepareNextConfirm(ctx); err != nil {
			return nil, err
		}
	}
}

// tryRetain is Retain without I/O. isRetained is false if too little of the lease is left for a
// hold to begin; then there is no Retention. isConfirmed says that the leader has just confirmed
// the lease.
func (s *Session) tryRetain(
	nodes []string, isConfirmed bool,
) (r *Retention, isRetained bool, err error) {
	if err := s.Err(); err != nil {
		return nil, false, err
	}
	now := s.clock.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.lease.EnoughToHold(now, isConfirmed) {
		return nil, false, nil
	}
	return s.retainLocked(nodes), true, nil
}

// confirmLease confirms the lease by a write, a check of node.
func (s *Session) confirmLease(ctx context.Context, node string) error {
	_, err := one(ctx, s, s.check("heartbeat", node))
	if errors.Is(err, zk.ErrNoAuth) {
		return nil // a refusal confirms the lease too: see check
	}
	return err
}

// prepareNextConfirm follows a write that has not confirmed enough of the lease for a hold to
// begin. It sees to it that another write confirms more:
//
//   - If writes are slow, it gives up the conn. The first write on the next one confirms the
//     handshake.
//   - Otherwise it pauses: the follower needs time to report this session to the leader.
func (s *Session) prepareNextConfirm(ctx context.Context) error {
	s.mu.Lock()
	c := s.conn
	writesAreSlow := s.lease.WritesAreSlow()
	pause := s.lease.Timeout() / 20
	s.mu.Unlock()
	if writesAreSlow && c != nil {
		c.Fail(errSlowWrites)
		return nil
	}
	if !s.rest(ctx, pause) {
		return s.ended(ctx, errors.New("waiting for the leader to confirm the session"))
	}
	return nil
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
	r.nodes, r.missing, r.holder = nil, "", nil
	r.s.toCheck.Remove(r.place)
	r.s.lease.Release()
}

// ReportTo has the session call h.Missing, in a goroutine of its own, when a heartbeat finds one of
// the znodes missing, or at once if that has happened. After such a find, heartbeats check only the
// znodes of other Retentions.
func (r *Retention) ReportTo(h Holder) {
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	r.holder = h
	r.reportLocked()
}

// foundMissing notes that node does not exist. It does nothing after Release, or if one of the
// znodes was found missing before: two heartbeats may be under way at once.
func (r *Retention) foundMissing(node string) {
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	if r.missing == "" && slices.Contains(r.nodes, node) {
		r.missing = node
		r.s.toCheck.Remove(r.place)
		r.reportLocked()
	}
}

func (r *Retention) reportLocked() {
	if missing, holder := r.missing, r.holder; missing != "" && holder != nil {
		r.s.spawnLocked(func() { holder.Missing(missing) })
	}
}
