package link

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/maphash"
	"runtime"
	"time"

	"github.com/zklock/locker/internal/session/failure"
	"github.com/zklock/locker/internal/session/internal/clock"
	"github.com/zklock/locker/internal/session/internal/wire"
)

// window and windowBytes bound the requests that wait for their replies: their number, and the bytes of all but the last.
// Other requests wait in queue, where a heartbeat can overtake them: behind a
// burst of a thousand requests it would come too late to keep the lease.
const (
	window      = 256
	windowBytes = 1 << 20

	maxWrite = 64 << 10 // bytes that flush writes in one piece; a single frame may be longer
	maxKept  = 16 << 10 // bytes of the write buffer that run keeps, and of a chunk of write
)

// Enqueue puts requests on the conn, one behind the other. False: the conn has failed and none of them was taken.
func (c *Conn) Enqueue(requests ...*Request) bool {
	c.mu.Lock()
	if c.state == connFailed {
		c.mu.Unlock()
		return false
	}
	for _, r := range requests {
		c.numberLocked(r)
		if r.Urgent {
			c.queue.pushFront(r)
		} else {
			c.queue.push(r)
		}
	}
	c.mu.Unlock()
	poke(c.wake)
	return true
}

func poke(ch chan<- struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}

// numberLocked gives r a number that no other request of the session has had, on any connection: a server takes a committed
// write for the request that waits there with the same session and number, and the write may be one that was sent to another
// server before.
func (c *Conn) numberLocked(r *Request) {
	if r.conn = c; r.fromDriver {
		return
	}
	r.xid = firstXid + int32(c.Numbered.Add(1)%firstXid) // again after a thousand million requests
	if r.Op == wire.OpPing {
		r.xid = wire.XidPing // the server answers every ping with this xid
	}
	binary.BigEndian.PutUint32(r.Frame, uint32(len(r.Frame)-4))
	binary.BigEndian.PutUint32(r.Frame[4:], uint32(r.xid))
}

// abandon gives up waiting for requests, two bursts at most; those that have not been written never will be. A request whose
// reply the reader has taken gets it first.
func (c *Conn) abandon(requests []*Request) {
	c.handling.Lock()
	defer c.handling.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range requests {
		if r.Sent.IsZero() && c.state != connFailed { // else fail has taken them all
			c.queue.remove(r)
		}
	}
}

// Quiet returns for how long nothing has been sent, and nothing has been heard although a reply is due (0 if none is due).
func (c *Conn) Quiet(now time.Time) (unsent, unheard time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	unsent = now.Sub(c.lastSent)
	if c.pending.n == 0 {
		return unsent, 0
	}
	return unsent, now.Sub(clock.Later(c.pending.head.Sent, c.progressAt))
}

var ErrSilent = errors.New("no reply")

// run opens the conn, after credentials and watches, and writes what is queued until the conn fails. The session joins run.
func (c *Conn) run() {
	if err := c.authenticate(); err != nil {
		c.Fail(err)
		return
	}
	if !c.owner.Up() {
		c.Fail(failure.ErrClosed)
		return
	}
	var out []byte
	beat := time.NewTimer(c.owner.Beat())
	defer beat.Stop()
	for {
		select {
		case <-c.wake:
		case <-beat.C:
			beat.Reset(c.owner.Beat())
			continue
		}
		if c.busy() {
			runtime.Gosched() // let goroutines woken by the latest replies enqueue first: one write then carries them all
		}
		var more bool
		var err error
		if out, more, err = c.flush(nil, out); err != nil {
			c.Fail(err)
			return
		}
		if more {
			poke(c.wake)
		}
	}
}

func (c *Conn) busy() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.pending.n >= 4
}

// flush writes only first or, if that is nil, one piece of what is queued, as far as the window allows; buf is used for it, and
// returned for the next. more: there is another piece; a heartbeat may come before it. A request counts as sent from the
// instant before its first byte leaves; from then on only the server knows its outcome.
func (c *Conn) flush(first *Request, buf []byte) (out []byte, more bool, err error) {
	c.mu.Lock()
	if c.state == connFailed {
		c.mu.Unlock()
		return nil, false, c.Failure()
	}
	if first != nil {
		c.numberLocked(first)
		c.queue.pushFront(first)
	}
	now := c.Clock.Stamp()
	full := false // the rest waits for replies
	out = buf[:0]
	for c.queue.n > 0 && (len(out) == 0 || len(out)+len(c.queue.head.Frame) <= maxWrite) {
		if full = first == nil && c.fullLocked(c.queue.head); full {
			break
		}
		r := c.nextLocked()
		c.lastSent, r.Sent = now, now
		for _, m := range r.members {
			m.Sent = now
		}
		c.pending.push(r)
		out = append(out, r.Frame...) // copied under mu: when the conn fails, the frame goes to the next one
		if first != nil {
			break
		}
	}
	more = first == nil && !full && c.queue.n > 0
	c.mu.Unlock()
	if err = c.write(out); cap(out) > maxKept {
		out = nil
	}
	return out, more, err
}

// nextLocked takes the first request of c.queue and, if it may share a request with others, those that join it.
func (c *Conn) nextLocked() *Request {
	first := c.queue.pop()
	c.expectLocked(first)
	if first.shares == 0 {
		return first
	}
	return first.gather(c, first)
}

// fullLocked reports whether r has to wait until replies have come.
func (c *Conn) fullLocked(r *Request) bool {
	return !r.Urgent && (c.pending.n >= window || c.pending.bytes >= windowBytes || c.mustWaitLocked(r))
}

// write sends b in chunks, each within one patience: a long request on a slow link is not taken for a dead connection.
func (c *Conn) write(b []byte) error {
	for len(b) > 0 {
		_, unheard := c.Quiet(c.Clock.Stamp()) // meanwhile no heartbeat looks
		if err := c.net.SetWriteDeadline(time.Now().Add(c.owner.Patience() - unheard)); err != nil {
			return c.readError(err)
		}
		n, err := c.net.Write(b[:min(len(b), maxKept)])
		if failure.IsTimeout(err) {
			return fmt.Errorf("%w: it takes no more of the requests", ErrSilent)
		} else if err != nil {
			return c.readError(err)
		}
		if b = b[n:]; len(b) > 0 {
			c.progress()
		}
	}
	return nil
}

// longReply is the length from which the replies to lists and reads are asked for one at a time.
const longReply = 16 << 10

// Other clients determine how long the reply to a list or read is: of a hundred thousand contenders, of names of 1 MB each, of
// data. A burst of calls on such a lock would ask for many such replies at once, and the next heartbeat's reply would come
// behind all of them. So a conn has one list or read in flight whose last reply was longer than longReply, and of a path
// that has not been read on this conn, one until its reply has come.

const (
	repliesKept = 4096 // paths that a conn remembers
	unanswered  = -1   // the first reply has not come
)

type replyKey struct {
	op   int32
	path uint64 // a hash, since other clients determine how long the path is; two paths with one hash only wait for each other
}

var pathSeed = maphash.MakeSeed()

// keyOf returns the key of r in conn.replies, or false if its reply is short.
func keyOf(r *Request) (replyKey, bool) {
	if r.Op != wire.OpGetChildren2 && r.Op != wire.OpGetData {
		return replyKey{}, false
	}
	return replyKey{r.Op, maphash.String(pathSeed, r.Path)}, true
}

// mustWaitLocked reports whether r, which is about to be sent, has to wait for the reply to a list or read in flight.
func (c *Conn) mustWaitLocked(r *Request) bool {
	key, _ := keyOf(r) // the zero key is never in replies
	size, known := c.replies[key]
	return known && (size == unanswered || size > longReply && c.pending.long > 0)
}

// expectLocked notes that r is about to be sent.
func (c *Conn) expectLocked(r *Request) {
	key, ok := keyOf(r)
	size, known := c.replies[key]
	if r.long = size > longReply; known || !ok {
		return
	}
	if len(c.replies) >= repliesKept {
		clear(c.replies)
	}
	c.replies[key] = unanswered
}

// answeredLocked notes that the reply to r has come. After that to a multiRead, each of its lists counts as never read, until
// answerList.
func (c *Conn) answeredLocked(r *Request, size int) {
	if key, ok := keyOf(r); ok {
		c.replies[key] = size
	}
	for _, m := range r.members {
		key, _ := keyOf(m)
		delete(c.replies, key)
	}
}
