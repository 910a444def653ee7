package link

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/zklock/locker/internal/session/failure"
	"github.com/zklock/locker/internal/session/internal/wire"
)

// Request is one request. It is encoded once, sent on one conn at a time, and answered or failed
// once on each.
type Request struct {
	Op         int32
	Repeatable bool   // may be sent again when its reply is lost
	name       string // of the operation, for errors
	Path       string // as the caller named it, for errors
	Frame      []byte // whole, with room for length and xid

	// Hook, if set, runs in the conn's reader, in the order of the wire, before any later frame
	// is read. It does not run if the answer says "try again". It must not block, and may lock
	// only the watch table's mutex and those inside it (doc.go).
	Hook func(code int32)

	// Guarded by Conn.mu until done is closed.
	conn       *Conn
	xid        int32
	Sent       time.Time // on the session's clock; zero while it waits to be written
	fromDriver bool      // receive returns its reply's header to the driver
	Urgent     bool      // waits neither for the window nor behind others

	// long says that its reply is expected to be longer than longReply. It is set before the
	// request is pending.
	long bool

	done   chan struct{} // closed when the fields below are final; nil if no call waits
	Reply  []byte        // behind the header
	Header wire.ReplyHeader
	err    error // why no reply came

	unreadable error // why the reply that came could not be read; the request is not repeated

	prev, next *Request // in a requestQueue

	// See group.go.
	shares  int                            // how often it may still share a request with others
	gather  func(*Conn, *Request) *Request // if shares > 0: adds those that join it
	members []*Request                     // a group's writes, or a multiRead's lists
	split   splitter                       // if there are members: splits the reply among them

	Touches []Touch // one for each operation of a create, delete or multi

	// Room for its ephemeral znodes: see package ephemeral. Used by the goroutine that runs the
	// request.
	Reserved int // bytes

	room [frameRoom]byte // for a short frame
}

// frameRoom is long enough for most requests of locks.
const frameRoom = 256

// NewRequest returns a request whose frame still lacks its body.
func NewRequest(op int32, name, path string) *Request {
	r := &Request{Op: op, name: name, Path: path, done: make(chan struct{})}
	r.Repeatable = !wire.ThroughLeader(op) || op == wire.OpSync
	r.Frame = wire.AppendHeader(r.room[:0], op)
	return r
}

// Unawaited returns a repeatable request for which no call waits.
func Unawaited(op int32, name, path string, frame []byte) *Request {
	return &Request{Op: op, name: name, Path: path, Repeatable: true, Frame: frame}
}

// OfDriver returns the request for a frame of the driver's, which is urgent.
func OfDriver(frame []byte) *Request {
	return &Request{Op: int32(binary.BigEndian.Uint32(frame[8:])), xid: int32(binary.BigEndian.Uint32(frame[4:])),
		Frame: frame, fromDriver: true, Urgent: true}
}

// Ping returns a ping.
func Ping() *Request {
	r := Unawaited(wire.OpPing, "ping", "", wire.AppendHeader(make([]byte, 0, 12), wire.OpPing))
	r.Urgent = true
	return r
}

// Failed returns err as the error of r. mayBeDone says that r, if it is a write, may have been
// carried out.
func (r *Request) Failed(err error, mayBeDone bool) error {
	known := r.known(mayBeDone, failure.NoReply)
	return &failure.OpError{Op: r.name, Path: r.Path, Err: err, Outcome: known}
}

// Refused returns the error for code, a server's answer to r or to one of its operations.
func (r *Request) Refused(path string, code int32) error {
	known := r.known(!wire.Definite(code), failure.InDoubt)
	return &failure.OpError{Op: r.name, Path: path, Err: failure.Of(code), Outcome: known}
}

// known returns what is known about r, which has failed: doubt, if it is a write and may have been
// carried out, otherwise NotDone.
func (r *Request) known(mayBeDone bool, doubt failure.Outcome) failure.Outcome {
	if mayBeDone && !r.Repeatable {
		return doubt
	}
	return failure.NotDone
}

// Unsent returns err as the error of r, which was never sent.
func (r *Request) Unsent(err error) error {
	return &failure.OpError{Op: r.name, Path: r.Path, Err: err, Outcome: failure.NotSent}
}

// calls returns the requests whose calls wait for the reply to r.
func (r *Request) calls() []*Request {
	if r.members != nil {
		return r.members
	}
	return []*Request{r}
}

func (r *Request) answer(header wire.ReplyHeader, reply []byte) {
	if r.done != nil {
		r.Header, r.Reply = header, reply
		close(r.done)
	}
}

func (r *Request) fail(err error) {
	if r.done != nil {
		r.err = err
		close(r.done)
	}
}

// failForResend fails requests that had no effect. why matches ErrNotSent, so their calls send them
// again (SortOut), and the reads behind them.
func failForResend(requests []*Request, why error) {
	for _, r := range requests {
		r.shares = max(r.shares-1, 0)
		r.fail(why)
	}
}

// Err returns why no reply came to r, which has ended.
func (r *Request) Err() error { return r.err }

// Detach says that no call waits for r.
func (r *Request) Detach() { r.done = nil }

// MayBeDone reports whether r, which its call has given up, may have been carried out, or may still
// be.
func (r *Request) MayBeDone() bool {
	if r.finished() {
		return !errors.Is(r.err, failure.ErrNotSent) && (r.err != nil || r.Header.Code != wire.CodeThrottled)
	}
	if r.conn == nil {
		return false
	}
	r.conn.mu.Lock()
	defer r.conn.mu.Unlock()
	return !r.Sent.IsZero()
}

// Answered reports, after the call that sent r has ended, whether r has its reply. If the call has
// given up waiting, the reply may still come a moment later.
func (r *Request) Answered() bool {
	return r.finished() && r.err == nil && !wire.TryAgain(r.Header.Code)
}

func (r *Request) finished() bool {
	select {
	case <-r.done:
		return true
	default:
		return false
	}
}

// Garbled gives up the conn that sent a reply to r which can't be decoded, and returns r's error.
func (r *Request) Garbled(err error) error {
	err = fmt.Errorf("%w: reply to %s: %w", failure.ErrGarbled, r.name, err)
	r.conn.Fail(err)
	return r.Failed(err, true)
}

// Result gives d the reply's body to decode, or returns the server's refusal.
func (r *Request) Result(d *wire.Decoder) error {
	if r.unreadable != nil { // too long; the code says whether a write was done, but not with what result
		done := r.Header.Code == wire.CodeOK || !wire.Definite(r.Header.Code)
		known := r.known(done, failure.InDoubt)
		return &failure.OpError{Op: r.name, Path: r.Path, Err: r.unreadable, Outcome: known}
	}
	if r.Header.Code != wire.CodeOK {
		return r.Refused(r.Path, r.Header.Code)
	}
	d.B = r.Reply
	return nil
}
