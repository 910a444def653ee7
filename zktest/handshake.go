package zktest

import (
	"time"

	"github.com/zklock/locker/zktest/fault"
)

// The handshake is the one frame without a header. A client that names a session and the session's
// password resumes it, from any address; nothing else is needed to reconnect. The client's last
// zxid keeps it from going back in time: a member that has seen less does not serve it.

// hello is a client's handshake, decoded.
type hello struct {
	seen        int64 // the zxid of the last transaction that the client knows of
	timeout     int32 // that the client asks for, in milliseconds
	session     int64 // the one to resume, or 0 for a new one
	password    []byte
	hasReadOnly bool // clients before 3.4 do not send that field, and do not expect it back
}

// decodeHello reads a handshake.
func decodeHello(b []byte) (h hello, err error) {
	d := &decoder{b: b}
	d.int32() // protocol version: there is only one
	h.seen = d.int64()
	h.timeout = d.int32()
	h.session = d.int64()
	h.password = d.buffer()
	h.hasReadOnly = len(d.b) > 0
	return h, d.err
}

// handshake opens or resumes a session. It returns false if the connection ends, when the outbox
// has been sent.
func (c *conn) handshake(b []byte) (open bool) {
	h, err := decodeHello(b)
	if err != nil {
		c.kill() // what is no handshake gets no reply
		return false
	}
	c.claim(h.session)
	if !c.in.pass(c.done) {
		return false
	}
	struck, fate := c.arrive(fault.OpConnect, nil)
	switch fate {
	case cutOff:
		return false
	case lost:
		c.forgetClaim()
		return true
	}
	if !c.lockWithLeader(true, false) {
		return false
	}
	defer c.s.mu.Unlock()
	return c.connectLocked(h, struck)
}

// claim notes the session that the client names, for the faults that select by session. Whether the
// client may have that session is decided later.
func (c *conn) claim(session int64) {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	c.session = session
	c.s.freezeNewLocked(c)
}

// forgetClaim undoes claim, for a handshake that a fault has lost. The client may try again on the
// same connection.
func (c *conn) forgetClaim() {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	c.session = 0
}

// connectLocked carries out a handshake. It returns false if the connection ends.
func (c *conn) connectLocked(h hello, struck []*Injection) (open bool) {
	s := c.s
	defer s.changedLocked()
	c.session = 0
	s.requests[fault.OpConnect]++
	c.lastOp, c.lastAt = fault.OpConnect, time.Now()
	if c.gone {
		return false // no client would learn the session's id
	}
	if h.seen > c.member.tree.zxid {
		s.log.Info("zktest: client is ahead of us", "conn", c.number)
		return false
	}
	c.timeout = c.member.clampTimeoutLocked(h.timeout) // also of a session that is resumed
	if h.session != 0 {
		return c.resumeLocked(h, struck)
	}
	c.session = s.openSessionLocked(c, c.timeout).id
	c.welcomeLocked(c.session, h.hasReadOnly, struck)
	return true
}

// resumeLocked gives an existing session to this connection. It returns false if the session is
// over, or the password is wrong.
//
// A connection that the member still has for the session ends before the password is checked: in a
// real server, too, the claim alone is enough for that. A connection of another member learns with
// its next write that it has lost the session.
func (c *conn) resumeLocked(h hello, struck []*Injection) (open bool) {
	s := c.s
	for old := range c.member.conns {
		if old != c && old.session == h.session {
			old.finishLocked()
		}
	}
	c.session = h.session
	if !s.passwordIs(h.session, h.password) || !s.touchLocked(h.session, c.timeout) {
		c.welcomeLocked(noSession, h.hasReadOnly, struck)
		return false
	}
	ss := s.sessions[h.session]
	ss.timeout = c.timeout
	ss.owner = c.member
	ss.conn = c
	ss.latest = c.number
	c.welcomeLocked(h.session, h.hasReadOnly, struck)
	return true
}

// noSession is the id in a reply that says that the session is over.
const noSession = 0

// welcomeLocked answers the handshake with the id of the client's session, or noSession.
func (c *conn) welcomeLocked(id int64, hasReadOnly bool, struck []*Injection) {
	e := encoder{}
	e.int32(0) // protocol version
	if id == noSession {
		e.int32(0)
		e.int64(noSession)
		e.buffer(make([]byte, passwordSize))
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
