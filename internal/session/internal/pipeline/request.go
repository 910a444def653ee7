package pipeline

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/zklock/locker/internal/session/failure"
	"github.com/zklock/locker/internal/session/internal/wire"
)

// Request is one request. It is encoded once. It is in one pipeline at a time, and is completed
// once in each: with a reply, or with an error.
type Request struct {
	Op         int32
	Repeatable bool   // may be sent again when its reply is lost
	name       string // of the operation, for errors
	Path       string // as the caller named it, for errors
	Frame      []byte // whole, with room for length and xid
	Urgent     bool   // waits neither for the window nor behind others
	FromDriver bool   // the driver has encoded it, and waits for its reply's header

	// Hook, if set, runs in the connection's reader, in the order of the wire, before any later
	// frame is read. It does not run if the answer says "try again". It must not block, and may
	// lock only the watch table's mutex and those inside it (see package session).
	Hook func(code int32)

	// FailConn fails the connection that carries the request. That connection sets it. It is nil on
	// a request that stands for several, whose reply no call decodes.
	FailConn func(why error)

	// Sent is when the request was sent, on the session's clock; zero while it waits to be written.
	Sent time.Time

	xid        int32
	long       bool     // its reply is expected to be longer than longReply; set when it is written
	prev, next *Request // in a requestQueue

	done   chan struct{} // closed when the fields below are final; nil if no call waits
	Body   string        // of the reply, behind the header
	Header wire.ReplyHeader
	err    error // why no reply came

	unreadable error // why the reply that came could not be read; the request is not repeated

	shares  int        // how often it may still share a request with others: see group.go
	members []*Request // the writes of a group, or the lists of a multiRead; otherwise nil

	Touches   []Touch  // one for each operation of a create, delete or multi; otherwise nil
	touchRoom [1]Touch // for the only one

	// Room for its ephemeral znodes: see package ephemeral. Used by the goroutine that runs the
	// request.
	Reserved int // bytes

	room [frameRoom]byte // for a short frame
}

// frameRoom is long enough for most requests of locks.
const frameRoom = 256

// NewRequest returns a request whose frame still lacks its body.
func NewRequest(op int32, name, path string) *Request {
	r := &Request{}
	r.Init(op, name, path)
	return r
}

// Init is NewRequest for a request that is part of something else. The request must not be copied
// from then on.
func (r *Request) Init(op int32, name, path string) {
	r.Op, r.name, r.Path = op, name, path
	r.done = make(chan struct{})
	r.Repeatable = !wire.ThroughLeader(op) || op == wire.OpSync
	r.Frame = wire.AppendHeader(r.room[:0], op)
}

// AddTouch notes what an operation of the request does to the znode path.
func (r *Request) AddTouch(path string, effect Effect) {
	if r.Touches == nil {
		r.Touches = r.touchRoom[:0]
	}
	r.Touches = append(r.Touches, Touch{Path: path, Effect: effect})
}

// Unawaited returns a repeatable request for which no call waits.
func Unawaited(op int32, name, path string, frame []byte) *Request {
	return &Request{Op: op, name: name, Path: path, Repeatable: true, Frame: frame}
}

// OfDriver returns the request for a frame of the driver's, which is urgent.
func OfDriver(frame []byte) *Request {
	xid, op := int32(binary.BigEndian.Uint32(frame[4:])), int32(binary.BigEndian.Uint32(frame[8:]))
	return &Request{Op: op, xid: xid,
		Frame: frame, FromDriver: true, Urgent: true}
}

// Ping returns a ping.
func Ping() *Request {
	r := Unawaited(wire.OpPing, "ping", "", wire.AppendHeader(make([]byte, 0, 12), wire.OpPing))
	r.Urgent = true
	return r
}

// Failed returns err as the error of r, to which no reply came, or none that can be read. If r is a
// write, it may have been carried out.
func (r *Request) Failed(err error) error {
	known := r.whatIsKnown(true, failure.NoReply)
	return &failure.OpError{Op: r.name, Path: r.Path, Err: err, Outcome: known}
}

// Refused returns the error for code, a server's answer to r or to one of its operations.
func (r *Request) Refused(path string, code int32) error {
	known := r.whatIsKnown(!wire.Definite(code), failure.InDoubt)
	return &failure.OpError{Op: r.name, Path: path, Err: failure.Of(code), Outcome: known}
}

// whatIsKnown returns what is known about r, which has failed: doubt, if it is a write and may have
// been carried out, otherwise NotDone.
func (r *Request) whatIsKnown(mayBeDone bool, doubt failure.Outcome) failure.Outcome {
	if mayBeDone && !r.Repeatable {
		return doubt
	}
	return failure.NotDone
}

// Unsent returns err as the error of r, which was never sent.
func (r *Request) Unsent(err error) error {
	return &failure.OpError{Op: r.name, Path: r.Path, Err: err, Outcome: failure.NotSent}
}

// isList reports whether r lists the children of a znode.
func (r *Request) isList() bool { return r.Op == wire.OpGetChildren2 }

// StandsForSeveral reports whether r stands for several requests: its reply has to be split among
// them.
func (r *Request) StandsForSeveral() bool { return r.members != nil }

// calls returns the requests whose calls wait for the reply to r.
func (r *Request) calls() []*Request {
	if r.members != nil {
		return r.members
	}
	return []*Request{r}
}

// Err returns why no reply came to r, which has ended.
func (r *Request) Err() error { return r.err }

// Detach says that no call waits for r.
func (r *Request) Detach() { r.done = nil }

// MayBeDone reports whether r, which its call has given up, may have been carried out, or may still
// be. It may be called only when nothing can send r any more:
//
//   - after Pipeline.Withdraw;
//   - after Pipeline.Abort;
//   - when all requests of the call have ended.
func (r *Request) MayBeDone() bool {
	if !r.Ended() {
		return !r.Sent.IsZero()
	}
	if errors.Is(r.err, failure.ErrNotSent) {
		return false
	}
	// a throttled request is dropped unread
	return r.err != nil || r.Header.Code != wire.CodeThrottled
}

// HasReply reports, after the call that sent r has ended, whether r has a reply that counts: an
// answer "try again" does not. If the call has given up waiting, the reply may still come a moment
// later.
func (r *Request) HasReply() bool {
	return r.Ended() && r.err == nil && !wire.TryAgain(r.Header.Code)
}

// IsUnreadable reports whether a reply to r came that could not be read. Result says why.
func (r *Request) IsUnreadable() bool { return r.unreadable != nil }

// Name returns the name of r's operation.
func (r *Request) Name() string { return r.name }

// ReliedOn reports whether the session relies on r, and no call waits for it and would send it
// again.
func (r *Request) ReliedOn() bool { return r.done == nil && wire.SetsUp(r.Op) }

// Done returns a channel that is closed when r has been completed.
func (r *Request) Done() <-chan struct{} { return r.done }

// Ended reports whether r has been completed.
func (r *Request) Ended() bool {
	select {
	case <-r.done:
		return true
	default:
		return false
	}
}

// Garbled fails the connection that sent a reply to r which can't be decoded, and returns r's
// error.
func (r *Request) Garbled(err error) error {
	err = fmt.Errorf("%w: reply to %s: %w", failure.ErrGarbled, r.name, err)
	r.FailConn(err)
	return r.Failed(err)
}

// Result gives d the reply's body to decode, or returns the server's refusal.
func (r *Request) Result(d *wire.Decoder) error {
	if r.unreadable != nil {
		// It is too long. Its code says whether a write was done, but not with what result.
		done := r.Header.Code == wire.CodeOK || !wire.Definite(r.Header.Code)
		known := r.whatIsKnown(done, failure.InDoubt)
		return &failure.OpError{Op: r.name, Path: r.Path, Err: r.unreadable, Outcome: known}
	}
	if r.Header.Code != wire.CodeOK {
		return r.Refused(r.Path, r.Header.Code)
	}
	d.B = r.Body
	return nil
}
