package zktest

import (
	"time"

	"github.com/zklock/locker/zktest/fault"
	"github.com/zklock/locker/zktest/internal/rule"
)

// effect is what a fault does, in one function for each step of a request at which it acts. The
// functions are called with the server's lock held.
type effect struct {
	// before acts on a request that has arrived. wait holds the request back, or is nil. It is
	// called without the lock, and returns false if the connection is killed first.
	before func(in *Injection, c *conn) (wait func() bool, f fate)

	// instead answers a request in the operation's place. If it returns false, the operation
	// answers.
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

// onReply returns an effect that only changes replies and notifications.
func onReply(f func(p *parcel)) effect {
	return effect{reply: func(_ *Injection, p *parcel) { f(p) }}
}

// onArrival returns an effect that decides what becomes of a request, without delay.
func onArrival(f func(c *conn) fate) effect {
	return effect{before: func(_ *Injection, c *conn) (func() bool, fate) { return nil, f(c) }}
}

// freeze returns an effect that holds back what goes in a direction.
func freeze(d direction) effect {
	return effect{freeze: d, before: func(in *Injection, c *conn) (func() bool, fate) {
		in.freezeLocked(c)
		return func() bool { return c.in.pass(c.done) }, carriedOut
	}}
}

// effectOf returns the effect of a rule. Package fault says in words what each one does.
func effectOf(r rule.Rule) effect {
	switch r.What {
	case rule.DropReply:
		return onReply(func(p *parcel) { p.lost = true })
	case rule.DropRequest:
		return onArrival(func(*conn) fate { return lost })
	case rule.Delay:
		return effect{before: func(_ *Injection, c *conn) (func() bool, fate) {
			return func() bool { return c.sleep(r.For) }, carriedOut
		}}
	case rule.DelayReply:
		return onReply(func(p *parcel) {
			if at := time.Now().Add(r.For); at.After(p.after) {
				p.after = at
			}
		})
	case rule.Hold:
		return effect{before: func(in *Injection, c *conn) (func() bool, fate) {
			// the current one: Release closes it and makes another for later requests
			ch := in.released
			return func() bool { return c.wait(ch) }, carriedOut
		}}
	case rule.HoldReply:
		return effect{reply: func(in *Injection, p *parcel) {
			p.holds = append(p.holds, in.released)
		}}
	case rule.CloseBefore:
		return onArrival(func(c *conn) fate {
			c.killLocked()
			return cutOff
		})
	case rule.CloseAfter:
		return onReply(func(p *parcel) { p.lost, p.hangUp = true, true })
	case rule.ExpireSession:
		return onArrival(func(c *conn) fate {
			if c.s.sessions[c.session] != nil {
				c.s.endSessionLocked(c.s.leader, c.session)
			}
			return carriedOut
		})
	case rule.Answer:
		return effect{instead: func(c *conn, _ *request) (answer, bool) {
			return c.result(fault.Code(r.Code), nil), true
		}}
	case rule.AnswerInside:
		return effect{instead: func(c *conn, req *request) (answer, bool) {
			return c.ok(func(e *encoder) {
				encodeFailure(e, len(req.parts), 0, fault.Code(r.Code))
			}), req.op == fault.OpMulti
		}}
	case rule.Truncate:
		return onReply(func(p *parcel) { p.cut, p.hangUp = r.Bytes, true })
	case rule.Stall:
		return onReply(func(p *parcel) { p.cut, p.silent = r.Bytes, true })
	case rule.Garble:
		return onReply(func(p *parcel) { p.alter = append(p.alter, r.Alter) })
	case rule.Freeze:
		return freeze(requests | replies)
	case rule.FreezeRequests:
		return freeze(requests)
	case rule.FreezeReplies:
		return freeze(replies)
	case rule.Refuse:
		return effect{refuse: true}
	}
	panic("zktest: a fault without an effect, or the zero Fault")
}
