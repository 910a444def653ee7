package zktest

import (
	"time"

	"github.com/zklock/locker/zktest/fault"
)

// The handshake is the one frame without a header. A client that names a session and the session's
// password resumes it, from any address; nothing else is needed to reconnect. The client's last
// zxid keeps it from going back in time: a member that has seen less does not serve it.

// handshake opens or resumes a session. False ends the connection, after what is queued.
func (c *conn) handshake(b []byte) bool {
	d := &decoder{b: b}
	d.int32() // protocol version: there is only one
	seen, ms, id := d.int64(), d.int32(), d.int64()
	pw := d.buffer()
	if d.err != nil {
		return c.hangUp()
	}
	hasReadOnly := len(d.b) > 0 // clients before 3.4 do not send it, and do not expect it back
	c.s.mu.Lock()
	c.session = id // the client's claim: faults select by it
	c.s.freezeNewLocked(c)
	c.s.mu.Unlock()
	if !c.in.pass(c.done) {
		return false
	}
	struck, f := c.arrive(fault.OpConnect, nil)
	switch f {
	case cutOff:
		return false
	case lost:
		return c.forgetClaim()
	}
	if !c.lockWithLeader(true, false) {
		return false
	}
	s := c.s
	defer s.mu.Unlock()
	defer s.changedLocked()
	c.session = 0
	s.requests[fault.OpConnect]++
	c.lastOp, c.lastAt = fault.OpConnect, time.Now()
	// The client hung up while a fault held its handshake.
	if c.gone {
		return false // no client would learn the session's id
	}
	if seen > c.member.tree.zxid {
		s.log.Info("zktest: client is ahead of us", "conn", c.number)
		return false
	}
	// Negotiated again each time, also when a session is resumed.
	c.timeout = c.member.clampTimeoutLocked(ms)
	if id == 0 {
		ss := s.openSessionLocked(c, c.timeout)
		c.session = ss.id
		c.welcomeLocked(ss.id, hasReadOnly, struck)
		return true
	}
	return c.reattachLocked(id, pw, hasReadOnly, struck)
}

// forgetClaim handles a lost handshake: the client may try again on the same connection.
func (c *conn) forgetClaim() bool {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	c.session = 0
	return true
}

// reattachLocked resumes a session. A connection that the member still has for it is closed before
// the password is checked: in a real server, too, the claim alone is enough for that.
func (c *conn) reattachLocked(id int64, pw []byte, hasReadOnly bool, struck []*Injection) bool {
	s := c.s
	for old := range c.member.conns {
		if old != c && old.session == id {
			old.finishLocked()
		}
	}
	c.session = id
	if !s.passwordIs(id, pw) || !s.touchLocked(id, c.timeout) {
		c.welcomeLocked(0, hasReadOnly, struck)
		return false
	}
	// From here on the session belongs to this connection. A connection of another member learns
	// that with its next write.
	ss := s.sessions[id]
	ss.timeout, ss.owner, ss.conn, ss.latest = c.timeout, c.member, c, c.number
	c.welcomeLocked(id, hasReadOnly, struck)
	return true
}

// welcomeLocked answers the handshake; id 0 says that the session is over.
func (c *conn) welcomeLocked(id int64, hasReadOnly bool, struck []*Injection) {
	e := encoder{}
	e.int32(0)
	if id == 0 {
		e.int32(0)
		e.int64(0)
		e.buffer(make([]byte, 16))
	} else {
		e.int32(int32(c.timeout / time.Millisecond))
		e.int64(id)
		e.buffer(c.s.password(id))
	}
	if hasReadOnly {
		e.bool(false) // this server never serves read-only
	}
	c.postLocked(e.b, struck)
}
