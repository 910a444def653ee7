package zktest

import (
	"slices"
	"time"

	"github.com/zklock/locker/zktest/fault"
)

// A request goes through three steps: the faults before it (arrive), the wait for the leader on a
// member that is cut off (lockWithLeader), and the operation with the faults of its reply
// (carryOutLocked). The first two may block and hold no lock; the last one holds it throughout, so
// that no notification can come between a change and the reply to it.

// handleFrame handles one frame, a handshake or a request. False ends the connection.
func (c *conn) handleFrame(b []byte) bool {
	s := c.s
	s.mu.Lock()
	c.received++
	s.received++
	connected := c.session != 0
	s.mu.Unlock()
	if !connected {
		return c.handshake(b)
	}
	xid, op, body, err := decodeHeader(b)
	if err != nil {
		return c.hangUp()
	}
	// Decoded first, because faults are selected by path. The operation itself answers a malformed
	// body.
	r := decodeRequest(xid, op, body)
	struck, fate := c.arrive(op, r.allPaths())
	if fate != carriedOut {
		return fate == lost
	}
	if !c.lockWithLeader(r.leader, op == fault.OpSync) {
		return false
	}
	defer s.mu.Unlock()
	return c.carryOutLocked(r, struck)
}

// hangUp ends the connection without a reply, for frames that are no requests at all.
func (c *conn) hangUp() bool {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	c.killLocked()
	return false
}

// fate is what remains of a request after the faults at its arrival.
type fate uint8

const (
	carriedOut fate = iota
	lost            // it has not arrived
	cutOff          // its connection is over
)

// arrive applies the faults that act before a request is carried out. Several that strike one
// request add up.
func (c *conn) arrive(op fault.Op, paths []string) (struck []*Injection, f fate) {
	s := c.s
	s.mu.Lock()
	struck = s.matchLocked(c, op, paths)
	// The waits are only collected under the lock.
	var waits []func() bool
	for _, in := range struck {
		if in.f.before == nil {
			continue
		}
		wait, its := in.f.before(in, c)
		if f = max(f, its); f == cutOff {
			break
		}
		if wait != nil {
			waits = append(waits, wait)
		}
	}
	s.mu.Unlock()
	if f == cutOff {
		return nil, cutOff
	}
	for _, w := range waits {
		if !w() {
			return nil, cutOff
		}
	}
	return struck, f
}

// lockWithLeader takes the server's lock, after waiting for the leader if one is needed and the
// member is cut off. Later requests of the client wait, too. A deposed leader answers a sync by
// itself. False means that the connection ended, and the lock is free.
func (c *conn) lockWithLeader(needed, sync bool) bool {
	c.s.mu.Lock()
	// In a loop: the member may be cut off again between Heal and the lock.
	for needed && c.member.isCutLocked() && !(sync && c.member.deposed) {
		ch := c.member.healed
		c.s.mu.Unlock()
		if !c.wait(ch) {
			return false
		}
		c.s.mu.Lock()
	}
	return true
}

// answer is the reply to a request, and what then becomes of its connection.
type answer struct {
	zxid   int64
	code   fault.Code
	body   func(*encoder) // nil for none; independent of the code
	silent bool           // there is no reply
	end    bool           // the connection ends after the queue
}

// ok answers with the zxid that the member has applied last.
func (c *conn) ok(body func(*encoder)) answer { return c.result(fault.CodeOK, body) }

// result is ok for any code.
func (c *conn) result(code fault.Code, body func(*encoder)) answer {
	return answer{zxid: c.member.tree.zxid, code: code, body: body}
}

// carryOutLocked carries out one request and queues its reply. False ends the connection, after
// what is queued.
func (c *conn) carryOutLocked(r *request, struck []*Injection) bool {
	s := c.s
	s.requests[r.op]++
	ss := s.sessions[c.session]
	if ss != nil {
		ss.requests[r.op]++
	}
	defer s.changedLocked()
	c.noteLocked(r)
	// The client has reconnected to this member. A real member has passed on, or discarded, all
	// requests of the old connection before it accepts the new one: what a fault has held back
	// until now comes too late.
	if ss != nil && ss.owner == c.member && ss.latest != c.number {
		return false
	}
	a, replaced := c.answerOfFaultLocked(r, struck)
	if !replaced {
		a = c.answerLocked(r, ss)
	}
	if !a.silent {
		e := encoder{}
		e.header(r.xid, a.zxid, a.code)
		if a.body != nil {
			a.body(&e)
		}
		c.lastZxid = a.zxid
		c.postLocked(e.b, struck)
	}
	return !a.end
}

// answerOfFaultLocked is the answer that a fault gives in the operation's place, if one does.
func (c *conn) answerOfFaultLocked(r *request, struck []*Injection) (a answer, ok bool) {
	for _, in := range struck {
		if in.f.instead == nil {
			continue
		}
		if a, ok = in.f.instead(c, r); ok {
			return a, true
		}
	}
	return a, false
}

// answerLocked checks that the session may request the operation, and serves it. ss is nil if the
// session is over.
func (c *conn) answerLocked(r *request, ss *session) answer {
	s := c.s
	if r.sessionless {
		return r.serve(c, r)
	}
	// A follower asks its leader about sessions only for writes; its own knowledge of a session
	// ends with the transaction that ends the session.
	onLeader := c.member == s.leader
	// Signs of life count only where the leader learns of them.
	if !c.member.isCutLocked() && !s.touchLocked(c.session, c.timeout) && (onLeader || r.leader) {
		// of a session that is over: dropped without a reply while the connection is closed
		return answer{silent: true}
	}
	switch {
	case !s.opt.dialect.serves(r): // the session stays: only the connection is lost
		return answer{zxid: -1, code: fault.CodeUnimplemented, end: true}
	case (onLeader || r.write) && ss.owner != c.member:
		// The client may have moved on, and this connection be a leftover. The leader checks that
		// at each request, a follower only at those that it forwards.
		return answer{silent: true, end: true}
	}
	return r.serve(c, r)
}

// noteLocked records what the four-letter words show.
func (c *conn) noteLocked(r *request) {
	c.lastOp, c.lastAt = r.op, time.Now()
	if r.xid >= 0 {
		c.lastXid = r.xid
	}
}

// authenticate adds an identity to the connection. A failure ends the connection.
// (A second authentication with the same credentials adds nothing: identities are a set.)
func (c *conn) authenticate(r *request) answer {
	switch {
	case r.err != nil:
		return answer{silent: true, end: true}
	case r.scheme == schemeDigest && r.auth != nil:
		digest, faithful := digestID(string(r.auth))
		if !faithful {
			c.s.log.Warn("FIPS 140-only mode forbids SHA-1: digests in access lists are SHA-256")
		}
		id := identity{schemeDigest, digest}
		if !slices.Contains(c.ids, id) {
			c.ids = append(c.ids, id)
		}
	case r.scheme == schemeIP: // the address is known already
	default:
		return answer{code: fault.CodeAuthFailed, end: true}
	}
	return answer{}
}
