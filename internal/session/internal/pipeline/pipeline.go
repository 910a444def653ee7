package pipeline

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/zklock/locker/internal/session/failure"
	"github.com/zklock/locker/internal/session/internal/clock"
	"github.com/zklock/locker/internal/session/internal/wire"
)

// window and windowBytes bound the requests that wait for their replies: their number, and the
// bytes of all but the last. Other requests wait to be written, where a heartbeat can overtake
// them: behind a burst of a thousand requests it would come too late to keep the lease.
const (
	window      = 256
	windowBytes = 1 << 20
)

// Burst is how many requests of one call are added at once, in at most two bursts at a time. That
// is enough to fill the window. The rest waits with its caller, where it delays no other request.
const Burst = window / 2

// maxPiece bounds the bytes that Next returns; a single frame may be longer.
const maxPiece = 64 << 10

// Pipeline has the requests of one connection. Its zero value is not usable: see New.
type Pipeline struct {
	numbers       *Numbers
	juteMaxBuffer int

	queue   requestQueue // to be written
	pending requestQueue // written, in order
	// in how many more groups untried creates keep apart: see Request.untried
	quarantine int
	sizes      replySizes
	lastSent   time.Time
	progressAt time.Time // when bytes of a reply, or of a long request, last passed
}

// New returns the pipeline of a new connection. All connections of a session share numbers.
// juteMaxBuffer is the longest request that the servers accept, in bytes.
func New(numbers *Numbers, juteMaxBuffer int) *Pipeline {
	return &Pipeline{numbers: numbers, juteMaxBuffer: juteMaxBuffer, sizes: replySizes{}}
}

// Numbers gives each request of a session, on whatever connection, a number that no other has had.
// A server takes a committed write for the request that waits there with the same session and
// number, and the write may be one that was sent to another server before. The zero value is ready
// to use, and it is safe for concurrent use.
type Numbers struct{ last atomic.Uint32 }

// NumbersOfNobody returns numbers for a session that another process has had. They begin anywhere,
// so that hardly any request of that process which is still on its way has the same number.
func NumbersOfNobody() *Numbers {
	n := new(Numbers)
	n.last.Store(rand.Uint32N(firstXid))
	return n
}

// firstXid keeps our numbers apart from the driver's, which count up from one.
const firstXid = 0x40000000

// next returns the next number. Numbers come again after a billion requests.
func (n *Numbers) next() int32 { return firstXid + int32(n.last.Add(1)%firstXid) }

// Add puts r behind the requests that wait to be written, or in front of them if it is urgent.
func (p *Pipeline) Add(r *Request) {
	p.number(r)
	if r.Urgent {
		p.queue.pushFront(r)
	} else {
		p.queue.push(r)
	}
}

// number completes the frame of r: its length, and its number, which the driver's requests have
// already.
func (p *Pipeline) number(r *Request) {
	if r.FromDriver {
		return
	}
	r.xid = p.numbers.next()
	if r.Op == wire.OpPing {
		r.xid = wire.XidPing // the server answers every ping with this xid
	}
	wire.SetLength(r.Frame)
	binary.BigEndian.PutUint32(r.Frame[4:], uint32(r.xid))
}

// Withdraw removes those of requests that have not been written. All have been added, and the
// pipeline has not been aborted.
func (p *Pipeline) Withdraw(requests []*Request) {
	for _, r := range requests {
		if r.Sent.IsZero() {
			p.queue.remove(r)
		}
	}
}

// Next returns one piece of what is to be written next, as far as the window allows, in buf, whose
// contents are overwritten. more reports whether there is another piece: a heartbeat that is added
// in between comes first. The requests in the piece count as sent at now, which has to be an
// instant before their first byte leaves. From then on only the server knows what became of them.
func (p *Pipeline) Next(now time.Time, buf []byte) (piece []byte, more bool) {
	piece = buf[:0]
	for p.queue.n > 0 {
		head := p.queue.head
		if p.mustWait(head) {
			return piece, false
		}
		if len(piece) > 0 && len(piece)+len(head.Frame) > maxPiece {
			return piece, true
		}
		piece = p.send(p.takeNext(), now, piece)
	}
	return piece, false
}

// NextAlone is Next for a request that has not been added, and for no other: those that wait to be
// written go on waiting.
func (p *Pipeline) NextAlone(r *Request, now time.Time) (piece []byte) {
	p.number(r)
	return p.send(r, now, nil)
}

// mustWait reports whether r, the next request to be written, has to wait until replies have come.
func (p *Pipeline) mustWait(r *Request) bool {
	if r.Urgent {
		return false
	}
	full := p.pending.n >= window || p.pending.bytes >= windowBytes
	return full || p.sizes.mustWait(r, p.pending.long > 0)
}

// takeNext takes the first request that is to be written. If that may share a request with others,
// takeNext returns the request that it shares with those that join it.
func (p *Pipeline) takeNext() *Request {
	first := p.queue.pop()
	p.sizes.expect(first)
	switch {
	case first.shares == 0:
		return first
	case first.isList():
		return p.gatherLists(first)
	default:
		return p.gatherWrites(first)
	}
}

// send moves r, which is about to be written, to the requests that wait for their replies, and
// appends its frame to piece. The frame is copied: if the connection fails, r goes to the next one.
func (p *Pipeline) send(r *Request, now time.Time, piece []byte) []byte {
	p.lastSent, r.Sent = now, now
	for _, m := range r.members {
		m.Sent = now
	}
	p.pending.push(r)
	return append(piece, r.Frame...)
}

// Take removes and returns the request that a reply of size bytes answers, which had arrived by at.
// xid is the number in the reply's header. It returns an error that matches failure.ErrGarbled if
// no reply with that number is due.
func (p *Pipeline) Take(xid int32, size int, at time.Time) (*Request, error) {
	r := p.pending.head
	if r == nil || r.xid != xid {
		return nil,
			p.Blame(fmt.Errorf("%w: reply to request %d out of order", failure.ErrGarbled, xid))
	}
	p.pending.remove(r)
	p.sizes.answered(r, size)
	p.progressAt = at
	return r, nil
}

// Expects reports whether the reply with number xid is due.
func (p *Pipeline) Expects(xid int32) bool {
	return p.pending.head != nil && p.pending.head.xid == xid
}

// Blame notes that err came in place of the reply that is due, and returns err. The request that
// waits for that reply fails with err, whatever gives up the connection first: on the next
// connection its reply would be unreadable too.
func (p *Pipeline) Blame(err error) error {
	if r := p.pending.head; r != nil {
		r.unreadable = err
	}
	return err
}

// CanRefill reports whether requests wait to be written, and so many replies have come that it is
// worth writing some.
func (p *Pipeline) CanRefill() bool {
	return p.queue.n > 0 && p.pending.n <= window/2 && p.pending.bytes <= windowBytes/2
}

// Waiting returns how many requests wait to be written, and how many wait for their replies.
func (p *Pipeline) Waiting() (queued, pending int) { return p.queue.n, p.pending.n }

// QueuedBytes returns how long the requests are that wait to be written.
func (p *Pipeline) QueuedBytes() int { return p.queue.bytes }

// Progress notes that bytes of a long frame have passed at now, in either direction.
func (p *Pipeline) Progress(now time.Time) { p.progressAt = now }

// Moved reports whether bytes of a reply, or of a long request, have ever passed.
func (p *Pipeline) Moved() bool { return !p.progressAt.IsZero() }

// Quiet returns for how long nothing has been sent, and for how long nothing has been heard
// although a reply is due (0 if none is due).
func (p *Pipeline) Quiet(now time.Time) (unsent, unheard time.Duration) {
	unsent = now.Sub(p.lastSent)
	if p.pending.n == 0 {
		return unsent, 0
	}
	return unsent, now.Sub(clock.Later(p.pending.head.Sent, p.progressAt))
}

// Abort empties the pipeline, whose connection has failed, and returns what was in it. Nothing may
// be added after that, withdrawn or written. But the reader, which may not know of the failure yet,
// still calls Take, Expects, Blame and Moved, and others call Quiet and Waiting. These find empty
// queues, so no request is completed by Aborted and by the reader too.
func (p *Pipeline) Abort() *Aborted {
	a := &Aborted{unsent: p.queue, unanswered: p.pending}
	p.queue, p.pending = requestQueue{}, requestQueue{}
	return a
}

// Aborted has the requests of a connection that has failed.
type Aborted struct{ unsent, unanswered requestQueue }

// Complete completes all requests, the unsent ones first. why is the reason why the connection to
// server has failed.
func (a *Aborted) Complete(server string, why error) {
	for r := a.unsent.pop(); r != nil; r = a.unsent.pop() {
		r.fail(failure.ErrNotSent)
	}
	for a.CompleteNext(server, why) {
	}
}

// CompleteNext completes the first request without a reply. It returns false if there is none.
func (a *Aborted) CompleteNext(server string, why error) bool {
	r := a.unanswered.pop()
	if r == nil {
		return false
	}
	r.Lose(server, why)
	return true
}
