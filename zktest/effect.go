package zktest

import "time"

// effect is what a fault does to what it strikes, in one function for each step of a request at which it does anything.
// The functions are called with the server's lock held.
type effect struct {
	// before meets a request that has arrived. wait, if it is not nil, is called without the lock and holds the request
	// back; it returns false if the connection ends first.
	before func(in *Injection, c *conn) (wait func() bool, f fate)

	// instead answers a request in the operation's place, if it returns true.
	instead func(c *conn, r *request) (answer, bool)

	// reply meets the reply, or a notification.
	reply func(in *Injection, p *parcel)

	// freeze is what connections are kept from: what clients send, what the server sends.
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

// none says that the fault was made by no constructor.
func (e *effect) none() bool {
	return e.before == nil && e.instead == nil && e.reply == nil && e.freeze == 0 && !e.refuse
}

// onReply makes a fault that only changes replies.
func onReply(f func(p *parcel)) Fault {
	return Fault{effect: effect{reply: func(_ *Injection, p *parcel) { f(p) }}}
}

// onArrival makes a fault that ends requests or lets them pass, at once.
func onArrival(f func(c *conn) fate) Fault {
	return Fault{effect: effect{before: func(_ *Injection, c *conn) (func() bool, fate) { return nil, f(c) }}}
}

// DropReply carries the request out and loses its reply. The connection stays up, and later replies arrive, which
// no real network does within one connection; most clients then hang up. CloseAfter is the usual way to lose one.
func DropReply() Fault { return onReply(func(p *parcel) { p.lost = true }) }

// DropRequest loses the request: it is not carried out, not answered, and is no sign of life of its session.
func DropRequest() Fault { return onArrival(func(*conn) fate { return lost }) }

// Delay lets the request, and what its connection sends behind it, arrive d later.
func Delay(d time.Duration) Fault {
	return Fault{effect: effect{before: func(_ *Injection, c *conn) (func() bool, fate) {
		return func() bool { return c.sleep(d) }, carriedOut
	}}}
}

// DelayReply carries the request out at once and lets the reply, and what follows it on its connection, arrive d
// later.
func DelayReply(d time.Duration) Fault {
	return onReply(func(p *parcel) {
		if at := time.Now().Add(d); at.After(p.after) {
			p.after = at
		}
	})
}

// Hold stops the request before it is carried out, and what its connection sends behind it, until the Injection's
// Release or Remove.
func Hold() Fault {
	return Fault{effect: effect{before: func(in *Injection, c *conn) (func() bool, fate) {
		ch := in.gate // the one of now: Release opens it and makes another for those who come later
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

// CloseAfter carries the request out and closes the connection instead of replying. What was queued before it still
// goes out: notifications that it caused, for one.
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

// AnswerInside replies to a multi with a code as the result of its first operation, under a header that says OK, without
// carrying it out: where a server says that the session has expired or moved while it prepares a multi. Other requests
// are not touched.
func AnswerInside(code Code) Fault {
	return Fault{effect: effect{instead: func(c *conn, r *request) (answer, bool) {
		return c.ok(func(e *encoder) { encodeFailure(e, len(r.parts), 0, code) }), r.op == OpMulti
	}}}
}

// Truncate carries the request out, sends only the first n bytes of the reply (its length field counts), and closes
// the connection.
func Truncate(n int) Fault { return onReply(func(p *parcel) { p.cut, p.hangUp = max(n, 0), true }) }

// Stall carries the request out, sends only the first n bytes of the reply, and then nothing ever again on that
// connection, which stays open.
func Stall(n int) Fault { return onReply(func(p *parcel) { p.cut, p.silent = max(n, 0), true }) }

// Garble carries the request out and sends what f makes of the reply, which is handed to it without its length
// field. f is called on the connection's own goroutine and must not call the server.
func Garble(f func(reply []byte) []byte) Fault {
	return onReply(func(p *parcel) { p.alter = append(p.alter, f) })
}

// Freeze lets nothing through in either direction, not even the end of a connection; what is sent arrives when the
// Injection is removed. Without Op and Path it takes effect at once on all connections selected, those of the future
// included. With them, it begins on a connection with the request that it strikes.
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

// Refuse lets no new connection in. Only Member, Nth, Times, After and Once select; there is no session yet.
func Refuse() Fault { return Fault{effect: effect{refuse: true}} }
