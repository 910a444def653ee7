package session

import (
	"context"
	"errors"
	"math"
	"slices"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/locker/internal/trusted"
)

// ForLocks returns the methods of the session that only locks use, for the packages of this module.
func (s *Session) ForLocks(trusted.Caller) trusted.Session { return forLocks{s} }

type forLocks struct{ s *Session }

func (f forLocks) Attached(create func() any) any {
	f.s.attaching.Do(func() { f.s.attached = create() })
	return f.s.attached
}

type retention struct {
	s *Session

	// Guarded by Session.mu.
	nodes     []string // as the caller named them; not changed in place; nil: released
	next      int      // index in nodes of the znode that this retention's next heartbeat checks
	at        int      // index in Session.toCheck; −1: not there
	missing   string   // the znode that was found missing; "": none
	onMissing func(node string)
}

func (f forLocks) Retain(ctx context.Context, nodes ...string) (trusted.Retention, error) {
	s := f.s
	for checked := false; ; checked = true {
		if err := s.Err(); err != nil {
			return nil, err
		}
		s.mu.Lock()
		t := s.lease.timeout
		enough := t / freshPart
		if checked { // the leader has just confirmed: an eighth or, if writes are slow, what the next heartbeat needs
			enough = max(t/minPart, min(s.writeTook+t/10, t/2))
		}
		if s.lease.end(true).Sub(s.clock.now()) >= enough {
			r := s.retainLocked(nodes)
			s.mu.Unlock()
			return r, nil
		}
		c, slow := s.conn, s.writeTook > t/minPart
		s.mu.Unlock()
		if checked && slow && c != nil {
			c.fail(errThin)
		} else if checked { // too early: the follower needs time to report this session to the leader
			if !s.rest(ctx, t/20) {
				return nil, s.ended(ctx, errors.New("waiting for the leader to confirm the session"))
			}
		}
		if _, err := one(ctx, s, s.check(nodes[0])); err != nil && !errors.Is(err, zk.ErrNoAuth) {
			return nil, err
		}
	}
}

// retainLocked counts one more holder. A heartbeat that looks soon enough, within a twentieth of the timeout, is not woken.
func (s *Session) retainLocked(nodes []string) *retention {
	r := &retention{s: s, nodes: nodes}
	s.addLocked(r)
	if s.retentions++; s.retentions == 1 {
		s.retainedSince = s.clock.stamp()
		s.moveDeadlineLocked()
		if s.lease.end(true).Sub(s.retainedSince) < s.lease.thin() {
			s.wakeHeartbeat()
		}
	}
	return r
}

func (s *Session) addLocked(r *retention) {
	r.at = len(s.toCheck)
	s.toCheck = append(s.toCheck, r)
}

func (s *Session) dropLocked(r *retention) {
	if r.at < 0 {
		return
	}
	last := len(s.toCheck) - 1
	s.toCheck[r.at] = s.toCheck[last]
	s.toCheck[r.at].at = r.at
	s.toCheck[last] = nil
	s.toCheck = s.toCheck[:last]
	r.at = -1
}

func (r *retention) Release() {
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	if r.nodes == nil {
		return
	}
	r.nodes, r.missing, r.onMissing = nil, "", nil
	r.s.dropLocked(r)
	if r.s.retentions--; r.s.retentions == 0 {
		r.s.moveDeadlineLocked()
	}
}

func (r *retention) OnMissing(fn func(node string)) {
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	r.onMissing = fn
	r.reportLocked()
}

func (r *retention) foundMissing(node string) {
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	if slices.Contains(r.nodes, node) {
		r.missing = node
		r.s.dropLocked(r)
		r.reportLocked()
	}
}

func (r *retention) reportLocked() {
	if missing, fn := r.missing, r.onMissing; missing != "" && fn != nil {
		r.s.spawnLocked(func() { fn(missing) })
	}
}

// check returns the write that confirms the lease: a multi that checks that node exists. It changes nothing, but a majority
// has to acknowledge it. A multi without an operation would not do: servers carry it out without a look at the session. A
// refusal, because the znode is gone or we may not read it, confirms too: the leader checks the session first.
func (s *Session) check(node string) *Result[Transaction] {
	r := newRequest(opMulti, "heartbeat", node)
	// The ensemble gave us this name: it is sent even if CheckPath would refuse it.
	_ = OpCheck{Path: node, Version: -1}.append(s, r)
	r.repeatable = true // it changes nothing
	return s.transaction(r)
}

// beatLocked returns the next heartbeat. toCheck is not empty.
func (s *Session) beatLocked(now time.Time) *request {
	s.nextChecked = (s.nextChecked + 1) % len(s.toCheck)
	r := s.toCheck[s.nextChecked]
	node := r.nodes[r.next]
	r.next = (r.next + 1) % len(r.nodes)
	req := s.check(node).r
	req.urgent, req.done = true, nil // no call waits for it
	req.hook = func(code int32) {
		if code == codeNoNode {
			r.foundMissing(node)
		}
	}
	s.beatAt = now
	return req
}

// beatDueLocked returns the time until the next heartbeat is due: lease.beatEvery after the latest of three instants: the
// latest acknowledged write was sent; the latest heartbeat, perhaps still unanswered, was queued; the first hold began, so
// that a short hold costs no heartbeat. If no more of the lease is left than a write takes beyond lease.thin, only the first
// two count. When the lease runs thin: a twentieth of the timeout after the later of the first two. At once on a connection
// whose handshake no write has confirmed. Never when toCheck is empty: the loss of all that was held has been reported.
func (s *Session) beatDueLocked(now time.Time) time.Duration {
	last, left := later(s.writeSent, s.beatAt), s.lease.end(true).Sub(now)
	switch {
	case len(s.toCheck) == 0:
		return math.MaxInt64
	case last.IsZero():
		return 0
	case left < s.lease.thin():
		return last.Add(s.lease.timeout / 20).Sub(now)
	case left >= s.lease.thin()+s.writeTook:
		last = later(last, s.retainedSince)
	}
	return last.Add(s.lease.beatEvery()).Sub(now)
}
