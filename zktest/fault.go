package zktest

import (
	"path"
	"slices"
	"strings"
	"time"
)

// Fault describes something that goes wrong: what happens, to which requests, and how often. It is a value; the
// methods return changed copies, so that one reads like a sentence and may be kept and used again:
//
//	zktest.DropReply().Op(zktest.OpCreate).Path("/locks/*").Nth(3)
//
// Without a selector it strikes every request of every session, every time. It does nothing until Server.Inject.
type Fault struct {
	action   action
	ops      []Op
	paths    []string
	sessions []int64
	members  []*Member
	skip     int
	times    int // 0: no end
	wait     time.Duration
	bytes    int
	code     Code
	alter    func([]byte) []byte
}

type action uint8

const (
	actDropReply action = iota + 1
	actDropRequest
	actDelay
	actDelayReply
	actHold
	actHoldReply
	actCloseBefore
	actCloseAfter
	actExpire
	actAnswer
	actAnswerInside
	actTruncate
	actStall
	actGarble
	actFreeze
	actRefuse
)

// DropReply carries the request out and loses its reply. The connection stays up, and later replies arrive, which
// no real network does within one connection; most clients then hang up. CloseAfter is the usual way to lose one.
func DropReply() Fault { return Fault{action: actDropReply} }

// DropRequest loses the request: it is not carried out, not answered, and is no sign of life of its session.
func DropRequest() Fault { return Fault{action: actDropRequest} }

// Delay lets the request, and what its connection sends behind it, arrive d later.
func Delay(d time.Duration) Fault { return Fault{action: actDelay, wait: d} }

// DelayReply carries the request out at once and lets the reply, and what follows it on its connection, arrive d
// later.
func DelayReply(d time.Duration) Fault { return Fault{action: actDelayReply, wait: d} }

// Hold stops the request before it is carried out, and what its connection sends behind it, until the Injection's
// Release or Remove.
func Hold() Fault { return Fault{action: actHold} }

// HoldReply carries the request out and stops the reply, and what follows it on its connection, until the
// Injection's Release or Remove.
func HoldReply() Fault { return Fault{action: actHoldReply} }

// CloseBefore closes the connection instead of carrying the request out.
func CloseBefore() Fault { return Fault{action: actCloseBefore} }

// CloseAfter carries the request out and closes the connection instead of replying.
func CloseAfter() Fault { return Fault{action: actCloseAfter} }

// ExpireSession ends the session that sent the request before the request is carried out.
func ExpireSession() Fault { return Fault{action: actExpire} }

// Answer replies with a code without carrying the request out. A handshake has no place for a code and is not touched.
func Answer(code Code) Fault { return Fault{action: actAnswer, code: code} }

// AnswerInside replies to a multi with a code as the result of its first operation, under a header that says OK, without
// carrying it out: where a server says that the session has expired or moved while it prepares a multi. Other requests
// are not touched.
func AnswerInside(code Code) Fault { return Fault{action: actAnswerInside, code: code} }

// Truncate carries the request out, sends only the first n bytes of the reply (its length field counts), and closes
// the connection.
func Truncate(n int) Fault { return Fault{action: actTruncate, bytes: n} }

// Stall carries the request out, sends only the first n bytes of the reply, and then nothing ever again on that
// connection, which stays open.
func Stall(n int) Fault { return Fault{action: actStall, bytes: n} }

// Garble carries the request out and sends what f makes of the reply, which is handed to it without its length
// field. f is called on the connection's own goroutine and must not call the server.
func Garble(f func(reply []byte) []byte) Fault { return Fault{action: actGarble, alter: f} }

// Freeze lets nothing through in either direction, not even the end of a connection; what is sent arrives when the
// Injection is removed. Without Op and Path it takes effect at once on all connections selected, those of the future
// included. With them, it begins on a connection with the request that it strikes.
func Freeze() Fault { return Fault{action: actFreeze, bytes: freezeIn | freezeOut} }

// FreezeRequests is Freeze for what clients send: replies and notifications still arrive.
func FreezeRequests() Fault { return Fault{action: actFreeze, bytes: freezeIn} }

// FreezeReplies is Freeze for what the server sends: requests still arrive, are carried out, and keep the session
// alive.
func FreezeReplies() Fault { return Fault{action: actFreeze, bytes: freezeOut} }

// Refuse lets no new connection in. Only Member, Nth, Times, After and Once select; there is no session yet.
func Refuse() Fault { return Fault{action: actRefuse} }

const (
	freezeIn = 1 << iota
	freezeOut
)

// Op selects requests by type; OpNotify stands for notifications on their way out (which know no "before": only what
// happens to replies can happen to them), OpConnect for the handshake. A multi is OpMulti, whatever is in it.
func (f Fault) Op(ops ...Op) Fault {
	f.ops = append(slices.Clone(f.ops), ops...)
	return f
}

// Path selects requests by any of the paths they name, the one a sequential create asks for being without its
// number. A pattern is one of package path ("/locks/*"); "/locks/**" means everything below /locks.
func (f Fault) Path(patterns ...string) Fault {
	f.paths = append(slices.Clone(f.paths), patterns...)
	return f
}

// Session selects by session id. A handshake has the id that the client claims, 0 for a new session.
func (f Fault) Session(ids ...int64) Fault {
	f.sessions = append(slices.Clone(f.sessions), ids...)
	return f
}

// Member selects by the member that the client is connected to.
func (f Fault) Member(ms ...*Member) Fault {
	f.members = append(slices.Clone(f.members), ms...)
	return f
}

// After leaves the first n requests that are selected alone.
func (f Fault) After(n int) Fault { f.skip = n; return f }

// Times lets the fault strike n times and then never again. The default, 0, is without end.
func (f Fault) Times(n int) Fault { f.times = n; return f }

// Once is Times(1).
func (f Fault) Once() Fault { return f.Times(1) }

// Nth strikes the nth of the selected requests only, counted from 1 and from Inject on.
func (f Fault) Nth(n int) Fault { return f.After(n - 1).Once() }

// selects says whether the fault is meant for such a request, its counts aside.
func (f *Fault) selects(c *conn, op Op, paths []string) bool {
	if len(f.ops) > 0 && !slices.Contains(f.ops, op) {
		return false
	}
	// Notifications are nobody's request. Only who asks for them gets them.
	if op == OpNotify && !slices.Contains(f.ops, op) {
		return false
	}
	return f.reaches(c) && f.hasPath(paths)
}

// reaches says whether the connection is one of those selected.
func (f *Fault) reaches(c *conn) bool {
	return (len(f.sessions) == 0 || slices.Contains(f.sessions, c.session)) &&
		(len(f.members) == 0 || slices.Contains(f.members, c.member))
}

func (f *Fault) hasPath(paths []string) bool {
	if len(f.paths) == 0 {
		return true
	}
	for _, pat := range f.paths {
		for _, p := range paths {
			if matchPath(pat, p) {
				return true
			}
		}
	}
	return false
}

func matchPath(pattern, p string) bool {
	if dir, ok := strings.CutSuffix(pattern, "/**"); ok {
		return strings.HasPrefix(p, dir+"/")
	}
	ok, err := path.Match(pattern, p)
	return ok && err == nil // a bad pattern was refused by Inject
}

// standing says whether the fault is about connections, not about requests.
func (f *Fault) standing() bool { return f.action == actFreeze && len(f.ops) == 0 && len(f.paths) == 0 }
