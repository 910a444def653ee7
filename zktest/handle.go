package zktest

import (
	"time"
)

// A request goes through four stations: the faults that come before it (before), the wait for a leader that a
// cut-off member has not got (waitForLeader), the operation itself (answer), and the faults that its reply meets
// (post). The first two may wait and hold no lock; the last two hold it without a break.

// handleFrame deals with one frame, be it the handshake or a request. False ends the connection.
func (c *conn) handleFrame(b []byte) bool {
	s := c.s
	s.mu.Lock()
	c.received++
	s.received++
	shaken := c.session != 0
	s.mu.Unlock()
	if !shaken {
		return c.handshake(b)
	}
	xid, op, body, err := decodeHeader(b)
	if err != nil {
		return c.hangUp()
	}
	// Decoded first, because faults are selected by path. A body that makes no sense is the operation's affair.
	r := decodeRequest(xid, op, body)
	struck, ok := c.before(op, r.paths())
	switch {
	case !ok:
		return false
	case lost(struck):
		return true
	}
	if !c.waitForLeader(op) {
		return false
	}
	// The lock is held again from here to the reply, so that no notification can slip in between a change and
	// the reply to the one who made it.
	defer s.mu.Unlock()
	return c.answer(r, struck)
}

// hangUp ends the connection without a word, for frames that are no requests at all.
func (c *conn) hangUp() bool {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	c.kill()
	return false
}

// before lets the faults strike that come before a request is carried out. ok is false if one of them ended the
// connection.
func (c *conn) before(op Op, paths []string) (struck []*Injection, ok bool) {
	s := c.s
	s.mu.Lock()
	struck = s.match(c, op, paths)
	// What has to wait is only collected under the lock. Several faults that strike one request add up.
	var waits []func() bool
	for _, in := range struck {
		switch in.f.action {
		case actDelay:
			waits = append(waits, c.sleep(in.f.wait))
		case actHold:
			ch := in.gate // the one of now: Release opens it and makes another for those who come later
			waits = append(waits, func() bool { return c.wait(ch) })
		case actExpire:
			if s.sessions[c.session] != nil {
				s.endSession(s.leader, c.session)
			}
		case actCloseBefore:
			c.kill()
			s.mu.Unlock()
			return nil, false
		case actFreeze:
			in.freeze(c)
			waits = append(waits, func() bool { return c.in.pass(c.done) })
		}
	}
	s.mu.Unlock()
	for _, w := range waits {
		if !w() {
			return nil, false
		}
	}
	return struck, true
}

// lost says whether a fault swallows the request.
func lost(struck []*Injection) bool {
	for _, in := range struck {
		if in.f.action == actDropRequest {
			return true
		}
	}
	return false
}

// wait returns false if the connection is killed first. That the client left does not end the wait: its request is
// on its way and will be carried out.
func (c *conn) wait(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	case <-c.done:
		return false
	}
}

// sleep is wait for a time.
func (c *conn) sleep(d time.Duration) func() bool {
	return func() bool {
		t := time.NewTimer(d)
		defer t.Stop()
		select {
		case <-t.C:
			return true
		case <-c.done:
			return false
		}
	}
}

// waitForLeader takes the server's lock, after waiting for the leader if the operation needs it and the member is
// cut off. What the client sent behind it waits, too. False means that the connection ended, and the lock is free.
func (c *conn) waitForLeader(op Op) bool {
	c.s.mu.Lock()
	// Again and again: it may be cut off anew between the healing and the lock.
	for op.needsLeader() && c.member.isCut() {
		ch := c.member.healed
		c.s.mu.Unlock()
		if !c.wait(ch) {
			return false
		}
		c.s.mu.Lock()
	}
	return true
}

// answer carries out one request and queues its reply. False ends the connection, after what is queued. The
// server's lock is held.
func (c *conn) answer(r *request, struck []*Injection) bool {
	s := c.s
	s.requests[r.op]++
	ss := s.sessions[c.session]
	if ss != nil {
		ss.requests[r.op]++
	}
	defer s.changed()
	c.note(r)
	// The client has come back to this member on another connection. A real one has passed on, or thrown away, all that
	// the old one brought before it lets the new one in: what a fault has held back until now comes too late.
	if ss != nil && ss.owner == c.member && ss.latest != c.number {
		return false
	}
	for _, in := range struck {
		if in.f.action == actAnswer {
			c.reply(r.xid, c.member.tree.zxid, in.f.code, nil, struck)
			return true
		}
		if in.f.action == actAnswerInside && r.op == OpMulti {
			c.reply(r.xid, c.member.tree.zxid, CodeOK, func(e *encoder) { encodeFailure(e, len(r.parts), 0, in.f.code) }, struck)
			return true
		}
	}
	// These two are the connection's affair. They are answered before anybody looks at the session, which is why
	// they are no sign of life.
	switch {
	case r.op == OpAuth:
		return c.authenticate(r, struck)
	case r.op == OpSASL:
		if r.err != nil {
			return false
		}
		// No mechanism is configured, and so the server has nothing to say; clients go on without.
		c.reply(r.xid, 0, CodeOK, func(e *encoder) { e.buffer(nil) }, struck)
		return true
	}
	// A follower asks its leader about sessions only for writes; what it knows itself ends with the transaction
	// that ends the session.
	onLeader := c.member == s.leader
	// Signs of life count only where the leader hears of them.
	if !c.member.isCut() && !s.touch(c.session, c.timeout) && (onLeader || r.op.needsLeader()) {
		return true // of a session that is over: dropped without a word, while the connection is being closed
	}
	if !r.op.served(s.opt.version) { // the session stays: only the connection is lost
		c.reply(r.xid, -1, CodeUnimplemented, nil, struck)
		return false
	}
	// The client may have moved on, and this connection be a leftover. The leader asks at each request, a follower
	// only at those that it passes on.
	if (onLeader || r.op.writes()) && ss.owner != c.member {
		return false
	}
	if r.op.writes() {
		return c.writeOp(r, struck)
	}
	body, code := c.readOp(r)
	xid := r.xid
	if r.op == OpPing {
		xid = -2 // whatever the client put there
	}
	c.reply(xid, c.member.tree.zxid, code, body, struck)
	for _, tell := range c.late {
		tell()
	}
	c.late = nil
	return true
}

// reply queues a reply; body may be nil, and is called whatever the code is if not. The server's lock is held.
func (c *conn) reply(xid int32, zxid int64, code Code, body func(*encoder), struck []*Injection) {
	e := encoder{}
	e.header(xid, zxid, code)
	if body != nil {
		body(&e)
	}
	c.lastZxid = zxid
	c.post(e.b, struck)
}

// note keeps what the four-letter words show.
func (c *conn) note(r *request) {
	c.lastOp, c.lastAt = r.op, time.Now()
	if r.xid >= 0 {
		c.lastXid = r.xid
	}
}

// authenticate adds an identity to the connection. A failure costs the client its connection.
// (A second authentication with the same credentials is none: identities are a set.)
func (c *conn) authenticate(r *request, struck []*Injection) bool {
	if r.err != nil {
		return false
	}
	switch {
	case r.scheme == "digest" && r.auth != nil:
		id := identity{"digest", digestID(string(r.auth))}
		for _, have := range c.ids {
			if have == id {
				id = identity{}
			}
		}
		if id != (identity{}) {
			c.ids = append(c.ids, id)
		}
	case r.scheme == "ip": // it knows that already
	default:
		c.reply(r.xid, 0, CodeAuthFailed, nil, struck)
		return false
	}
	c.reply(r.xid, 0, CodeOK, nil, struck)
	return true
}
