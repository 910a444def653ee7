package link

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/zklock/locker/internal/session/failure"
	"github.com/zklock/locker/internal/session/internal/wire"
)

// Request is one request: encoded once, sent on one conn at a time, answered or failed once on each.
type Request struct {
	Op         int32
	Repeatable bool   // may be sent again when its reply is lost
	name       string // of the operation, for errors
	Path       string // as the caller named it, for errors
	Frame      []byte // whole, with room for length and xid

	// hook, when set, runs in the conn's reader, in the order of the wire, before any later frame is read; but not if the answer
	// says "try again". It must not block, and locks only the watch table's mutex and those inside it (doc.go).
	Hook func(code int32)

	// Guarded by Conn.mu until done is closed.
	conn       *Conn
	xid        int32
	Sent       time.Time // on the session's clock; zero while it waits to be written
	fromDriver bool      // receive returns its reply's header to the driver
	Urgent     bool      // waits neither for the window nor behind others

	long bool // its reply is expected to be longer than longReply; set before the request is pending

	done   chan struct{} // closed when the fields below are final; nil when no call waits
	Reply  []byte        // behind the header
	Header wire.ReplyHeader
	err    error // why no reply came

	unreadable error // why the reply that came could not be read; the request is not repeated

	prev, next *Request // in a requestQueue

	// See group.go.
	shares  int                            // how often it may still be sent together with requests of other calls
	gather  func(*Conn, *Request) *Request // if shares > 0: adds those that join it
	members []*Request                     // the writes that this group carries out, or the lists that this multiRead reads
	split   splitter                       // if there are members: gives them their parts of the reply

	Touches []Touch // one for each operation of a create, delete or multi; else nil

	// Room for its ephemeral znodes: see ephemerals.go. Used by the goroutine that runs the request.
	Reserved int // bytes

	room [frameRoom]byte // for a short frame
}

// frameRoom is long enough for most requests of locks.
const frameRoom = 256

// NewRequest returns a request whose frame still lacks its body.
func NewRequest(op int32, name, path string) *Request {
	r := &Request{Op: op, name: name, Path: path, Repeatable: !wire.ThroughLeader(op) || op == wire.OpSync, done: make(chan struct{})}
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

// Failed returns err as the error for r. unknown: r may have been carried out.
func (r *Request) Failed(err error, unknown bool) error {
	return &failure.OpError{Op: r.name, Path: r.Path, Err: err, Outcome: r.outcome(unknown, failure.NoReply)}
}

// Refused returns the error for code, a server's answer to r or to one of its operations.
func (r *Request) Refused(path string, code int32) error {
	return &failure.OpError{Op: r.name, Path: path, Err: failure.Of(code), Outcome: r.outcome(!wire.Definite(code), failure.InDoubt)}
}

// outcome is doubt if r may have been carried out, and that matters.
func (r *Request) outcome(unknown bool, doubt failure.Outcome) failure.Outcome {
	if unknown && !r.Repeatable {
		return doubt
	}
	return failure.NotDone
}

func (r *Request) Unsent(err error) error {
	return &failure.OpError{Op: r.name, Path: r.Path, Err: err, Outcome: failure.NotSent}
}

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

// sendAgain has the calls of requests, which had no effect, send them again (deliver), and the reads behind them.
func sendAgain(requests []*Request, why error) {
	for _, r := range requests {
		r.shares = max(r.shares-1, 0)
		r.fail(why)
	}
}

// fate says what is to be done about a request that was sent.
type fate uint8

const (
	settled  fate = iota // nothing: it has its answer
	ToRepeat             // it has to be sent again, and is ready for that
	Lost                 // its outcome is unknown, or its reply unreadable
)

// Fate waits for the end of r, which has been sent, with behind behind it, on a conn that has answered or failed them all, or will
// soon. early: a write in front of r is sent again, which r, if it can be repeated, has to see. busy is a server's answer that says: try again.
func (r *Request) Fate(behind []*Request, early bool) (f fate, busy error) {
	<-r.done
	if r.err == nil && wire.TryAgain(r.Header.Code) {
		busy = failure.Of(r.Header.Code)
		if r.err = busy; r.Header.Code == wire.CodeThrottled {
			r.err = fmt.Errorf("%w: %w", failure.ErrNotSent, busy)
		}
	}
	early = early && r.Repeatable
	switch {
	case r.err == nil && !early, r.refusedBy(behind):
		return settled, busy
	case early, errors.Is(r.err, failure.ErrNotSent), r.Repeatable && r.unreadable == nil: // never sent, or harmless twice
		r.done, r.err, r.unreadable, r.Reply, r.Sent, r.long = make(chan struct{}), nil, nil, nil, time.Time{}, false
		return ToRepeat, busy
	}
	return Lost, busy
}

// Err returns why no reply came to r, which has ended.
func (r *Request) Err() error { return r.err }

// Detach says that no call waits for r.
func (r *Request) Detach() { r.done = nil }

// MayBeDone reports whether r, which run has given up, may have been carried out, or may still be.
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

// Answered reports, after run has returned, whether r has its reply; if run gave up waiting, that may still come a moment
// later.
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

// Garbled gives up the conn, since its reply to r can't be decoded.
func (r *Request) Garbled(err error) error {
	err = fmt.Errorf("%w: reply to %s: %w", failure.ErrGarbled, r.name, err)
	r.conn.Fail(err)
	return r.Failed(err, true)
}

// Result gives d the reply's body to decode, or returns the server's refusal.
func (r *Request) Result(d *wire.Decoder) error {
	if r.unreadable != nil { // too long; the code says whether a write was done, but not with what result
		done := r.Header.Code == wire.CodeOK || !wire.Definite(r.Header.Code)
		return &failure.OpError{Op: r.name, Path: r.Path, Err: r.unreadable, Outcome: r.outcome(done, failure.InDoubt)}
	}
	if r.Header.Code != wire.CodeOK {
		return r.Refused(r.Path, r.Header.Code)
	}
	d.B = r.Reply
	return nil
}
