// Package fault has the faults that zktest's server can be told to have, with the operations that
// they select and the codes that they answer with.
package fault

import (
	"slices"
	"time"

	"github.com/zklock/locker/zktest/internal/rule"
)

func init() { rule.Of = func(f any) rule.Rule { return f.(Fault).rule } }

// Fault describes something that goes wrong: what happens, to which requests, and how often. It is
// a value: the methods return changed copies, which read like a sentence and can be kept and
// reused:
//
//	fault.DropReply().Op(fault.OpCreate).Path("/locks/*").Nth(3)
//
// Without a selector it strikes every request of every session, every time. It does nothing until
// zktest.Server.Inject, or Member.Inject for the clients of one member.
type Fault struct{ rule rule.Rule }

// Op selects requests by type; OpNotify stands for outgoing notifications (only effects on replies
// apply to them), OpConnect for the handshake. A multi is OpMulti, whatever is in it.
func (f Fault) Op(ops ...Op) Fault {
	f.rule.Ops = slices.Clone(f.rule.Ops)
	for _, op := range ops {
		f.rule.Ops = append(f.rule.Ops, int32(op))
	}
	return f
}

// Path selects requests by any of the paths they name; that of a sequential create is without its
// number. A pattern is one of package path ("/locks/*"); "/locks/**" means everything below /locks.
func (f Fault) Path(patterns ...string) Fault {
	f.rule.Paths = append(slices.Clone(f.rule.Paths), patterns...)
	return f
}

// Session selects by session id. A handshake has the id that the client claims, 0 for a new
// session.
func (f Fault) Session(ids ...int64) Fault {
	f.rule.Sessions = append(slices.Clone(f.rule.Sessions), ids...)
	return f
}

// After exempts the first n selected requests.
func (f Fault) After(n int) Fault { f.rule.Skip = n; return f }

// Times limits the fault to n strikes. The default, 0, is no limit.
func (f Fault) Times(n int) Fault { f.rule.Times = n; return f }

// Once is Times(1).
func (f Fault) Once() Fault { return f.Times(1) }

// Nth strikes only the nth of the selected requests, counted from 1 since Inject.
func (f Fault) Nth(n int) Fault { return f.After(n - 1).Once() }

// DropReply carries the request out and loses its reply. The connection stays up and later replies
// arrive, which no real network does within one connection; most clients then hang up. CloseAfter
// is the usual way to lose a reply.
func DropReply() Fault { return Fault{rule.Rule{What: rule.DropReply}} }

// DropRequest loses the request: it is not carried out, not answered, and is no sign of life of its
// session.
func DropRequest() Fault { return Fault{rule.Rule{What: rule.DropRequest}} }

// Delay delays the arrival of the request, and of what its connection sends after it, by d.
func Delay(d time.Duration) Fault {
	return Fault{rule.Rule{What: rule.Delay, For: d}}
}

// DelayReply carries the request out at once and delays the reply, and what follows it on its
// connection, by d.
func DelayReply(d time.Duration) Fault {
	return Fault{rule.Rule{What: rule.DelayReply, For: d}}
}

// Hold stops the request, and what its connection sends after it, before the request is carried
// out, until the zktest.Injection's Release or Remove.
func Hold() Fault { return Fault{rule.Rule{What: rule.Hold}} }

// HoldReply carries the request out and stops the reply, and what follows it on its connection,
// until the zktest.Injection's Release or Remove.
func HoldReply() Fault { return Fault{rule.Rule{What: rule.HoldReply}} }

// CloseBefore closes the connection instead of carrying the request out.
func CloseBefore() Fault { return Fault{rule.Rule{What: rule.CloseBefore}} }

// CloseAfter carries the request out and closes the connection instead of replying. What was queued
// before the reply is still sent, for instance notifications that the request caused.
func CloseAfter() Fault { return Fault{rule.Rule{What: rule.CloseAfter}} }

// ExpireSession ends the session that sent the request before the request is carried out.
func ExpireSession() Fault { return Fault{rule.Rule{What: rule.ExpireSession}} }

// Answer replies with a code without carrying the request out. A handshake has no place for a code
// and is not touched.
func Answer(code Code) Fault {
	return Fault{rule.Rule{What: rule.Answer, Code: int32(code)}}
}

// AnswerInside replies to a multi with a code as the result of its first operation, under a header
// that says OK, without carrying it out: a server reports a session that expired or moved while it
// prepares a multi in that place. Other requests are not touched.
func AnswerInside(code Code) Fault {
	return Fault{rule.Rule{What: rule.AnswerInside, Code: int32(code)}}
}

// Truncate carries the request out, sends only the first n bytes of the reply (including its length
// field), and closes the connection.
func Truncate(n int) Fault {
	return Fault{rule.Rule{What: rule.Truncate, Bytes: max(n, 0)}}
}

// Stall carries the request out, sends only the first n bytes of the reply, and then nothing more
// on that connection, which stays open.
func Stall(n int) Fault {
	return Fault{rule.Rule{What: rule.Stall, Bytes: max(n, 0)}}
}

// Freeze lets nothing through in either direction, not even the end of a connection; what is sent
// arrives when the zktest.Injection is removed. Without Op and Path it takes effect at once on all
// selected connections, present and future. With them, it takes effect on a connection at the first
// request that it selects.
func Freeze() Fault { return Fault{rule.Rule{What: rule.Freeze}} }

// FreezeRequests is Freeze for what clients send: replies and notifications still arrive.
func FreezeRequests() Fault { return Fault{rule.Rule{What: rule.FreezeRequests}} }

// FreezeReplies is Freeze for what the server sends: requests still arrive, are carried out, and
// keep the session alive.
func FreezeReplies() Fault { return Fault{rule.Rule{What: rule.FreezeReplies}} }

// Refuse refuses new connections. Only Nth, Times, After and Once select; there is no session yet.
func Refuse() Fault { return Fault{rule.Rule{What: rule.Refuse}} }

// Garble carries the request out and sends the result of f, which gets the reply without its length
// field. f is called on the connection's own goroutine and must not call the server.
func Garble(f func(reply []byte) []byte) Fault {
	return Fault{rule.Rule{What: rule.Garble, Alter: f}}
}
