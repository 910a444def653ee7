package zktest

import "time"

// effect is what a fault does, in one function for each step of a request at which it acts. The functions are called
// with the server's lock held.
type effect struct {
	// before acts on a request that has arrived. wait, if it is not nil, is called without the lock and holds the
	// request back; it returns false if the connection ends first.
	before func(in *Injection, c *conn) (wait func() bool, f fate)

	// instead answers a request in the operation's place, if it returns true.
	instead func(c *conn, r *request) (answer, bool)

	// reply acts on the reply, or on a notification.
	reply func(in *Injection, p *parcel)

	// freeze names the directions that are held back: what clients send, what the server sends.
	freeze direction

	// refuse turns new connections away.
	refuse bool
}

// direction is one way through a connection, or both.
type direction uint8

const (
	requests direction = 1 << iota
	replies
)

// none says that no constructor made the fault.
func (e *effect) none() bool {
	return e.before == nil && e.instead == nil && e.reply == nil && e.freeze == 0 && !e.refuse
}

// onReply makes a fault that only changes replies.
func onReply(f func(p *parcel)) Fault {
	return Fault{effect: effect{reply: func(_ *Injection, p *parcel) { f(p) }}}
}

// onArrival makes a fault that ends requests or lets them pass without delay.
func onArrival(f func(c *conn) fate) Fault {
	return Fault{effect: effect{before: func(_ *Injection, c *conn) (func() bool, fate) { return nil, f(c) }}}
}

// DropReply carries the request out and loses its reply. The connection stays up and later replies arrive, which no
// real network does within one connection; most clients then hang up. CloseAfter is the usual way to lose a reply.
func DropReply() Fault { return onReply(func(p *parcel) { p.lost = true }) }

// DropRequest loses the request: it is not carried out, not answered, and is no sign of life of its session.
func DropRequest() Fault { return onArrival(func(*conn) fate { return lost }) }

// Delay delays the arrival of the request, and of what its connection sends after it, by d.
func Delay(d time.Duration) Fault {
	return Fault{effect: effect{before: func(_ *Injection, c *conn) (func() bool, fate) {
		return func() bool { return c.sleep(d) }, carriedOut
	}}}
}

// DelayReply carries the request out at once and delays the reply, and what follows it on its connection, by d.
func DelayReply(d time.Duration) Fault {
	return onReply(func(p *parcel) {
		if at := time.Now().Add(d); at.After(p.after) {
			p.after = at
		}
	})
}

// Hold stops the request, and what its connection sends after it, before the request is carried out, until the
// Injection's Release or Remove.
func Hold() Fault {
	return Fault{effect: effect{before: func(in *Injection, c *conn) (func() bool, fate) {
		ch := in.gate // the current one: Release opens it and makes another for later requests
		return func() bool { return c.wait(ch) }, carriedOut
	}}}
}

// HoldReply carries the request out and stops the reply, and what follows it on its connection, until the
// Injection's Release or Remove.
func HoldReply() Fault {
	return Fault{effect: effect{reply: func(in *Injection, p *parcel) { p.holds = append(p.holds, in.gate) }}}
}

// CloseBefore closes the connection instead of carrying the request out.
func CloseBefore() Fault {
	return onArrival(func(c *conn) fate {
		c.killLocked()
		return cutOff
	})
}

// CloseAfter carries the request out and closes the connection instead of replying. What was queued before the reply is
// still sent, for instance notifications that the request caused.
func CloseAfter() Fault { return onReply(func(p *parcel) { p.lost, p.hangUp = true, true }) }

// ExpireSession ends the session that sent the request before the request is carried out.
func ExpireSession() Fault {
	return onArrival(func(c *conn) fate {
		if c.s.sessions[c.session] != nil {
			c.s.endSessionLocked(c.s.leader, c.session)
		}
		return carriedOut
	})
}

// Answer replies with a code without carrying the request out. A handshake has no place for a code and is not touched.
func Answer(code Code) Fault {
	return Fault{effect: effect{instead: func(c *conn, _ *request) (answer, bool) { return c.result(code, nil), true }}}
}

// AnswerInside replies to a multi with a code as the result of its first operation, under a header that says OK,
// without carrying it out: a server reports a session that expired or moved while it prepares a multi in that place.
// Other requests are not touched.
func AnswerInside(code Code) Fault {
	return Fault{effect: effect{instead: func(c *conn, r *request) (answer, bool) {
		return c.ok(func(e *encoder) { encodeFailure(e, len(r.parts), 0, code) }), r.op == OpMulti
	}}}
}

// Truncate carries the request out, sends only the first n bytes of the reply (including its length field), and closes
// the connection.
func Truncate(n int) Fault { return onReply(func(p *parcel) { p.cut, p.hangUp = max(n, 0), true }) }

// Stall carries the request out, sends only the first n bytes of the reply, and then nothing more on that connection,
// which stays open.
func Stall(n int) Fault { return onReply(func(p *parcel) { p.cut, p.silent = max(n, 0), true }) }

// Garble carries the request out and sends the result of f, which gets the reply without its length field. f is called
// on the connection's own goroutine and must not call the server.
func Garble(f func(reply []byte) []byte) Fault {
	return onReply(func(p *parcel) { p.alter = append(p.alter, f) })
}

// Freeze lets nothing through in either direction, not even the end of a connection; what is sent arrives when the
// Injection is removed. Without Op and Path it takes effect at once on all selected connections, present and future.
// With them, it takes effect on a connection at the first request that it selects.
func Freeze() Fault { return freeze(requests | replies) }

// FreezeRequests is Freeze for what clients send: replies and notifications still arrive.
func FreezeRequests() Fault { return freeze(requests) }

// FreezeReplies is Freeze for what the server sends: requests still arrive, are carried out, and keep the session
// alive.
func FreezeReplies() Fault { return freeze(replies) }

func freeze(d direction) Fault {
	return Fault{effect: effect{freeze: d, before: func(in *Injection, c *conn) (func() bool, fate) {
		in.freezeLocked(c)
		return func() bool { return c.in.pass(c.done) }, carriedOut
	}}}
}

// Refuse refuses new connections. Only Member, Nth, Times, After and Once select; there is no session yet.
func Refuse() Fault { return Fault{effect: effect{refuse: true}} }
