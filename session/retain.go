package session

import (
	"context"
	"errors"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/locker/internal/trusted"
)

// Retention is one lock's claim that the session's lease is kept: see Session.Retain. Its methods may be called
// concurrently.
type Retention struct {
	s *Session

	// Guarded by Session.mu.
	node     string // as the caller named it
	at       int    // in Session.retained; −1: it is not in there
	released bool
	missing  bool              // the znode was found missing
	tell     func(node string) // of that
}

// Retain makes the session's end a matter of a lock's safety until Release: its lease is confirmed through the leader by
// heartbeats, each of which checks one of the znodes retained, and the session is over, for its holders, when the
// confirmed lease is. It is for the packages of this module alone: whoever could release what he has not retained would
// end the protection of others.
//
// node is an ephemeral znode of the session's. When Retain returns nil, SafeUntil is at least an eighth of the timeout
// ahead. Mostly that is so already and nothing is sent; after a long time without a write it takes one round trip to the
// leader. An error says that the session, or ctx, ended first, or that there is no such znode (zk.ErrNoNode); then there
// is nothing to Release.
func (s *Session) Retain(ctx context.Context, _ trusted.Caller, node string) (*Retention, error) {
	for asked := false; ; asked = true {
		s.mu.Lock()
		if err := s.Err(); err != nil {
			s.mu.Unlock()
			return nil, err
		}
		t := s.lease.timeout
		enough := t / freshPart
		if asked { // but what the next heartbeat will need, where writes take long
			enough = max(t/minPart, min(s.took+t/10, t/2))
		}
		if s.lease.end(true).Sub(s.clock.now()) >= enough {
			r := s.retainLocked(node)
			s.mu.Unlock()
			return r, nil
		}
		l, slow := s.link, s.took > t/minPart
		s.mu.Unlock()
		if asked && slow && l != nil {
			l.fail(errThin)
		} else if asked { // too early for the leader to have heard of us: give the follower time to report
			if err := s.pause(ctx, t/20); err != nil {
				return nil, err
			}
		}
		c, paths := s.checkOf(node)
		if err := s.run(ctx, c); err != nil {
			return nil, err
		}
		if _, err := s.transacted(c, paths); err != nil && !errors.Is(err, zk.ErrNoAuth) {
			return nil, err
		}
	}
}

// pause waits for d, or less when ctx or the session ends.
func (s *Session) pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-s.ctx.Done():
		return s.Err()
	case <-ctx.Done():
		return Waited(ctx, errors.New("waiting for the leader to confirm the session"))
	}
}

// retainLocked counts one more holder. The keeper is not woken when its next look, a twentieth of the timeout away at
// most, is early enough.
func (s *Session) retainLocked(node string) *Retention {
	r := &Retention{s: s, node: node}
	s.enterLocked(r)
	if s.held++; s.held == 1 {
		s.heldSince = s.clock.stamp()
		s.moveDeadlineLocked()
		if s.lease.end(true).Sub(s.heldSince) < s.lease.thin() {
			s.wake()
		}
	}
	return r
}

// enterLocked has heartbeats check the znode of r.
func (s *Session) enterLocked(r *Retention) {
	r.at = len(s.retained)
	s.retained = append(s.retained, r)
}

// removeLocked undoes enterLocked.
func (s *Session) removeLocked(r *Retention) {
	if r.at < 0 {
		return
	}
	last := len(s.retained) - 1
	s.retained[r.at] = s.retained[last]
	s.retained[r.at].at = r.at
	s.retained[last] = nil
	s.retained = s.retained[:last]
	r.at = -1
}

// Release undoes the Retain. It may be called more than once.
func (r *Retention) Release() {
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	if r.released {
		return
	}
	r.released, r.tell = true, nil
	r.s.removeLocked(r)
	if r.s.held--; r.s.held == 0 && r.s.id != 0 {
		r.s.moveDeadlineLocked()
	}
}

// Move makes node the znode that is checked, when another one has taken the place of the first.
func (r *Retention) Move(node string) {
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	if r.released {
		return
	}
	r.node, r.missing = node, false
	if r.at < 0 {
		r.s.enterLocked(r)
	}
}

// OnMissing has fn called, in a goroutine of the session's, should a heartbeat find the znode missing, or have found it so
// already. The next heartbeats check the znodes of others.
func (r *Retention) OnMissing(fn func(node string)) {
	r.s.mu.Lock()
	r.tell = fn
	missing, node := r.missing && !r.released, r.node
	r.s.mu.Unlock()
	if missing {
		r.s.spawn(func() { fn(node) })
	}
}

// found hears from a heartbeat that there is no node.
func (r *Retention) found(node string) {
	r.s.mu.Lock()
	if r.released || r.node != node {
		r.s.mu.Unlock()
		return
	}
	r.missing = true
	r.s.removeLocked(r)
	tell := r.tell
	r.s.mu.Unlock()
	if tell != nil {
		r.s.spawn(func() { tell(node) })
	}
}

// checkOf is the write that confirms the lease: a multi that checks that a znode exists. It changes nothing, and takes a
// majority to say so. A multi without an operation would not do: it is carried out without a look at the session. A
// refusal, because the znode has gone or may not be read by us, confirms as well: the session is looked at first.
func (s *Session) checkOf(node string) (*call, []string) {
	body, path, err := s.appendOp(nil, &zk.CheckVersionRequest{Path: node, Version: -1})
	if err != nil {
		path = node // a name that the ensemble gave us, whatever we would have to say to it
	}
	body = appendMultiHeader(body, -1, true)
	c := newCall(opMulti, "heartbeat", path, func(b []byte) []byte { return append(b, body...) })
	c.read = true // may be repeated
	return c, []string{path}
}

// beatLocked returns the heartbeat that confirms the lease now; nil when no znode is left to check.
func (s *Session) beatLocked(now time.Time) *call {
	if len(s.retained) == 0 {
		return nil
	}
	s.turn = (s.turn + 1) % len(s.retained)
	r := s.retained[s.turn]
	node := r.node
	c, _ := s.checkOf(node)
	c.urgent, c.done = true, nil // nobody waits for it
	c.hook = func(code int32) {
		if code == codeNoNode {
			r.found(node)
		}
	}
	s.beaten = now
	return c
}

// beatDueLocked is when the next heartbeat has to go out: some time after the leader was last asked, or the latest
// heartbeat, which may still be under way, was sent; sooner when the lease is running thin. A hold that has just begun
// waits as long, so that a short one costs none at all.
func (s *Session) beatDueLocked(now time.Time) time.Time {
	last := s.asked
	if s.beaten.After(last) {
		last = s.beaten
	}
	if s.lease.end(true).Sub(now) < s.lease.thin() {
		return last.Add(s.lease.timeout / 20)
	}
	if s.heldSince.After(last) {
		last = s.heldSince
	}
	return last.Add(s.lease.beatEvery())
}
