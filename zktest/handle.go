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

// handleFrame handles one frame, a handshake or a request. It returns false if the connection ends.
func (c *conn) handleFrame(b []byte) (open bool) {
	if !c.countFrame() {
		return c.handshake(b)
	}
	xid, op, body, err := decodeHeader(b)
	if err != nil {
		c.kill() // what has no header gets no reply
		return false
	}
	// Decoded first, because faults are selected by path. The operation itself answers a malformed
	// body.
	r := decodeRequest(xid, op, body)
	struck, fate := c.arrive(op, r.allPaths())
	switch fate {
	case cutOff:
		return false
	case lost:
		return true
	}
	if !c.lockWithLeader(r.leader, op == fault.OpSync) {
		return false
	}
	defer c.s.mu.Unlock()
	return c.carryOutLocked(r, struck)
}

// countFrame counts a frame that has been received, and reports whether the handshake is done.
func (c *conn) countFrame() (connected bool) {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	c.received++
	c.s.received++
	return c.session != 0
}

// fate is what becomes of a request by the faults that act at its arrival. Of several, the greatest
// counts.
type fate uint8

const (
	carriedOut fate = iota
	lost            // the request has not arrived
	cutOff          // its connection is over
)

// arrive applies the faults that act before a request is carried out, and waits as long as they
// require. It returns the faults that strike the request, which may act on its reply as well.
func (c *conn) arrive(op fault.Op, paths []string) (struck []*Injection, f fate) {
	struck, waits, f := c.strikeArrival(op, paths)
	if f == cutOff {
		return nil, cutOff
	}
	for _, wait := range waits {
		if !wait() {
			return nil, cutOff
		}
	}
	return struck, f
}

// strikeArrival finds the faults that strike a request. The waits that they require are only
// collected: it holds the server's lock.
func (c *conn) strikeArrival(op fault.Op, paths []string) (
	struck []*Injection, waits []func() bool, f fate,
) {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	struck = c.s.matchLocked(c, op, paths)
	for _, in := range struck {
		if in.f.before == nil {
			continue
		}
		wait, its := in.f.before(in, c)
		f = max(f, its)
		if f == cutOff {
			break
		}
		if wait != nil {
			waits = append(waits, wait)
		}
	}
	return struck, waits, f
}

// lockWithLeader takes the server's lock. If the request needs the leader and the member is cut
// off, it waits for Heal first, and so do the client's later requests. A deposed member answers a
// sync by itself.
//
// It returns false if the connection is killed first, and then the lock is free.
func (c *conn) lockWithLeader(needed, sync bool) bool {
	c.s.mu.Lock()
	// In a loop: the member may be cut off again after Heal, before the lock is taken.
	for needed && c.lacksLeaderLocked(sync) {
		healed := c.member.healed
		c.s.mu.Unlock()
		if !c.wait(healed) {
			return false
		}
		c.s.mu.Lock()
	}
	return true
}

// lacksLeaderLocked reports whether a request that needs the leader has to wait.
func (c *conn) lacksLeaderLocked(sync bool) bool {
	switch c.member.link {
	case cut:
		return true
	case deposed:
		return !sync
	}
	return false
}

// answer is the reply to a request, and what then becomes of its connection.
type answer struct {
	zxid   int64
	code   fault.Code
	body   body // independent of the code
	silent bool // there is no reply
	end    bool // the connection ends when the outbox has been sent
}

// ok returns a successful answer. Its zxid is that of the last transaction that the member has
// applied.
func (c *conn) ok(b body) answer { return c.result(fault.CodeOK, b) }

// result is ok for any code.
func (c *conn) result(code fault.Code, b body) answer {
	return answer{zxid: c.member.tree.zxid, code: code, body: b}
}

// carryOutLocked carries out one request and queues its reply. It returns false if the connection
// ends, when the outbox has been sent.
func (c *conn) carryOutLocked(r *request, struck []*Injection) (open bool) {
	s := c.s
	defer s.changedLocked()
	ss := s.sessions[c.session] // nil if the session is over
	c.countLocked(r, ss)
	if ss != nil && c.isOutdatedLocked(ss) {
		return false
	}
	a, replaced := c.answerOfFaultLocked(r, struck)
	if !replaced {
		a = c.answerLocked(r, ss)
	}
	if !a.silent {
		c.replyLocked(r.xid, a, struck)
	}
	return !a.end
}

// countLocked counts a request, and records what the four-letter words show. ss may be nil.
func (c *conn) countLocked(r *request, ss *session) {
	c.s.requests[r.op]++
	if ss != nil {
		ss.requests[r.op]++
	}
	c.lastOp, c.lastAt = r.op, time.Now()
	if r.xid >= 0 {
		c.lastXid = r.xid
	}
}

// isOutdatedLocked reports whether the client has reconnected to this member. What a fault has held
// back on the old connection until then comes too late: a real member has passed on, or discarded,
// all requests of the old connection before it accepts the new one.
func (c *conn) isOutdatedLocked(ss *session) bool {
	return ss.owner == c.member && ss.latest != c.number
}

// replyLocked queues the reply to a request, with what the faults in struck do to it.
func (c *conn) replyLocked(xid int32, a answer, struck []*Injection) {
	e := encoder{}
	e.header(xid, a.zxid, a.code)
	if a.body != nil {
		a.body(&e)
	}
	c.lastZxid = a.zxid
	c.postLocked(e.b, struck)
}

// answerOfFaultLocked returns the answer that a fault gives in the operation's place. ok is false
// if none does.
func (c *conn) answerOfFaultLocked(r *request, struck []*Injection) (a answer, ok bool) {
	for _, in := range struck {
		if in.f.instead == nil {
			continue
		}
		if a, ok = in.f.instead(c, r); ok {
			return a, true
		}
	}
	return answer{}, false
}

// answerLocked checks that the session may request the operation, and serves it. ss is nil if the
// session is over.
func (c *conn) answerLocked(r *request, ss *session) answer {
	if r.sessionless {
		return r.serve(c, r)
	}
	// The leader checks each request's session. A follower asks it only about those that it
	// forwards: its own knowledge of a session ends with the transaction that ends the session.
	onLeader := c.member == c.s.leader
	if c.member.link == linked { // a sign of life counts only where the leader learns of it
		alive := c.s.touchLocked(c.session, c.timeout)
		if !alive && (onLeader || r.leader) {
			return answer{silent: true} // the end of the session has closed the connection
		}
	}
	if !c.s.opt.dialect.serves(r) { // the session stays: only the connection is lost
		return answer{zxid: -1, code: fault.CodeUnimplemented, end: true}
	}
	if (onLeader || r.write) && ss.owner != c.member {
		// The client has moved to another member, and this connection is a leftover.
		return answer{silent: true, end: true}
	}
	return r.serve(c, r)
}

// authenticate adds an identity to the connection. A failure ends the connection.
func (c *conn) authenticate(r *request) answer {
	switch {
	case r.err != nil:
		return answer{silent: true, end: true}
	case r.scheme == schemeDigest && r.auth != nil:
		digest, faithful := digestID(string(r.auth))
		if !faithful {
			c.s.log.Warn("FIPS 140-only mode forbids SHA-1: digests in access lists are SHA-256")
		}
		c.identify(identity{schemeDigest, digest})
	case r.scheme == schemeIP: // the address is known already
	default:
		return answer{code: fault.CodeAuthFailed, end: true}
	}
	return answer{}
}

// identify adds an identity to the connection, unless it has that one already.
func (c *conn) identify(id identity) {
	if !slices.Contains(c.ids, id) {
		c.ids = append(c.ids, id)
	}
}
