package session

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// request is one request: encoded once, sent on one conn at a time, answered or failed once on each.
type request struct {
	op         int32
	repeatable bool   // may be sent again when its reply is lost
	name       string // of the operation, for errors
	path       string // as the caller named it, for errors
	frame      []byte // whole, with room for length and xid

	// hook, when set, runs in the conn's reader, in the order of the wire, before any later frame is read; but not if the answer
	// says "try again". It must not block, and locks only the watch table's mutex and those inside it (doc.go).
	hook func(code int32)

	// Guarded by conn.mu until done is closed.
	conn       *conn
	xid        int32
	sent       time.Time // on the session's clock; zero while it waits to be written
	fromDriver bool      // receive returns its reply's header to the driver
	urgent     bool      // waits neither for the window nor behind others

	long bool // its reply is expected to be longer than longReply; set before the request is pending

	done   chan struct{} // closed when the fields below are final; nil when no call waits
	reply  []byte        // behind the header
	header replyHeader
	err    error // why no reply came

	unreadable error // why the reply that came could not be read; the request is not repeated

	prev, next *request // in a requestQueue

	// See group.go.
	shares  int                            // how often it may still be sent together with requests of other calls
	gather  func(*conn, *request) *request // if shares > 0: adds those that join it
	members []*request                     // the writes that this group carries out, or the lists that this multiRead reads
	split   splitter                       // if there are members: gives them their parts of the reply

	touches []touch // one for each operation of a create, delete or multi; else nil

	// Room for its ephemeral znodes: see ephemerals.go. Used by the goroutine that runs the request.
	reserved int // bytes

	room [frameRoom]byte // for a short frame
}

// frameRoom is long enough for most requests of locks.
const frameRoom = 256

// newRequest returns a request whose frame still lacks its body.
func newRequest(op int32, name, path string) *request {
	r := &request{op: op, name: name, path: path, repeatable: !throughLeader(op) || op == opSync, done: make(chan struct{})}
	r.frame = appendHeader(r.room[:0], op)
	return r
}

// opError returns err as the error for r. unknown: r may have been carried out.
func (r *request) opError(err error, unknown bool) error {
	return &OpError{Op: r.name, Path: r.path, Err: err, unknown: unknown && !r.repeatable}
}

// refused returns the error for code, a server's answer to r or to one of its operations.
func (r *request) refused(path string, code int32) error {
	return &OpError{Op: r.name, Path: path, Err: errOf(code), unknown: !definite(code) && !r.repeatable, replied: true}
}

func (r *request) unsentError(err error) error {
	return &OpError{Op: r.name, Path: r.path, Err: err, unsent: true}
}

func (r *request) calls() []*request {
	if r.members != nil {
		return r.members
	}
	return []*request{r}
}

func (r *request) answer(header replyHeader, reply []byte) {
	if r.done != nil {
		r.header, r.reply = header, reply
		close(r.done)
	}
}

func (r *request) fail(err error) {
	if r.done != nil {
		r.err = err
		close(r.done)
	}
}

// sendAgain has the calls of requests, which had no effect, send them again (deliver), and the reads behind them.
func sendAgain(requests []*request, why error) {
	for _, r := range requests {
		r.shares = max(r.shares-1, 0)
		r.fail(why)
	}
}

// burst is how many requests of one caller are put on a conn at once, in at most two bursts at a time: enough to fill the
// window. The rest waits with its caller, where it delays no other request.
const burst = window / 2

// run sends requests back to back on one conn, up to two bursts at a time, and waits for all replies. Repeatable requests
// that lose their reply are sent again on the next conn, with everything that was never sent. If a write's reply is lost,
// run returns, and that request's error matches ErrUnknownOutcome. An answer that says "try again" counts as no reply, and a
// throttled request as not sent; the next attempt comes after a pause. It waits for a connection as long as ctx and the session
// last. If a request is too long, or has no room for its ephemeral znodes, none is sent. Nil: each has a reply, a yes or a
// no (request.result).
func (s *Session) run(ctx context.Context, requests ...*request) error {
	if len(requests) == 0 {
		return nil
	}
	for _, r := range requests {
		err := s.ephemerals.reserve(r)
		if size := len(r.frame) - 4; size > s.cfg.JuteMaxBuffer { // the servers do not count the length field either
			err = tooLarge("request", size, s.cfg.JuteMaxBuffer)
		}
		if err != nil {
			return r.unsentError(err)
		}
	}
	return s.deliver(ctx, requests)
}

// Established waits for the session's first connection, as long as ctx and the session last. Nil: ID and Timeout are the
// ensemble's; the session may be Disconnected again.
func (s *Session) Established(ctx context.Context) error {
	if s.State() == Disconnected {
		return nil
	}
	_, err := s.await(ctx)
	return err
}

// await returns the conn that carries requests; it waits for one as long as ctx and the session last.
func (s *Session) await(ctx context.Context) (*conn, error) {
	if err := s.Err(); err != nil && ctx.Err() == nil {
		return nil, err // it has waited for nothing
	}
	for {
		s.mu.Lock()
		c, ready := s.conn, s.ready
		s.mu.Unlock()
		switch {
		case ctx.Err() != nil || s.Err() != nil:
			return nil, s.ended(ctx, s.waitingFor("about to send"))
		case c != nil:
			return c, nil
		}
		until(ctx, s, ready)
	}
}

// waitingFor says what a call waits for: a connection, or what if there is one.
func (s *Session) waitingFor(what string) error {
	s.mu.Lock()
	connected := s.conn != nil
	s.mu.Unlock()
	if connected {
		return errors.New(what)
	}
	return fmt.Errorf("waiting for a connection: %w", s.dialer.report())
}

func (s *Session) deliver(ctx context.Context, requests []*request) error {
	for {
		c, err := s.await(ctx)
		if err != nil {
			return requests[0].unsentError(err)
		}
		sent, err := s.exchange(ctx, c, requests)
		if err != nil {
			return err
		}
		again := make([]*request, 0, len(requests)-sent)
		var trouble error // a server's answer that says: try again
		write := false    // one of again
		for i, r := range requests[:sent] {
			// Closed already, or soon: the conn fails them one after the other.
			<-r.done
			if r.err == nil && tryAgain(r.header.code) {
				trouble = errOf(r.header.code)
				if r.err = trouble; r.header.code == codeThrottled {
					r.err = fmt.Errorf("%w: %w", ErrNotSent, trouble)
				}
			}
			early := write && r.repeatable // a write in front of it is sent again, which it has to see
			switch {
			case r.err == nil && !early, r.refusedBy(requests[i+1 : sent]):
			case early, errors.Is(r.err, ErrNotSent), r.repeatable && r.unreadable == nil: // never sent, or harmless twice
				write = write || !r.repeatable
				r.done, r.err, r.unreadable, r.reply, r.sent, r.long = make(chan struct{}), nil, nil, nil, time.Time{}, false
				again = append(again, r)
			default:
				if trouble != nil {
					s.rest(ctx, s.nextRest()) // the caller may repeat the write at once, when it has found out what became of it
				}
				return r.opError(s.ended(ctx, r.err), true)
			}
		}
		if requests = append(again, requests[sent:]...); len(requests) == 0 {
			return nil
		}
		if trouble != nil && !s.rest(ctx, s.nextRest()) {
			return requests[0].unsentError(s.ended(ctx, trouble))
		}
	}
}

// Pauses before a request is sent again to a server that has answered: try again.
const (
	firstRest = 50 * time.Millisecond
	lastRest  = time.Second
)

// backoff is the latest of these pauses.
type backoff struct {
	d  time.Duration
	at time.Time
}

// nextRest returns the next pause: twice the last one, unless there was no trouble for a while. All calls share it.
func (s *Session) nextRest() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if now.Sub(s.backoff.at) > 2*lastRest {
		s.backoff.d = 0
	}
	s.backoff = backoff{max(firstRest, min(2*s.backoff.d, lastRest)), now}
	return s.backoff.d
}

// rest waits for d. False: ctx or the session ended first.
func (s *Session) rest(ctx context.Context, d time.Duration) bool {
	return until(ctx, s, time.After(d))
}

// until waits for ch. False: ctx or the session ended first.
func until[T any](ctx context.Context, s *Session, ch <-chan T) bool {
	select {
	case <-ch:
		return true
	case <-ctx.Done():
	case <-s.ctx.Done():
	}
	return false
}

// exchange sends requests on c and waits until all have a reply or, if the conn fails, returns how many were sent. An error:
// ctx or the session ended first. An answer that the reader has taken counts, even if the end wakes the call before it.
func (s *Session) exchange(ctx context.Context, c *conn, requests []*request) (sent int, err error) {
	for answered := 0; answered < len(requests); {
		for sent < len(requests) && sent < answered+2*burst {
			n := min(burst, len(requests)-sent)
			if !c.enqueue(requests[sent : sent+n]...) {
				return sent, nil
			}
			sent += n
		}
		// Replies come in order, except those to members of groups: so waiting for the last one wakes the caller only once.
		next := min(answered+burst, sent)
		last := lastWaiting(requests[answered:next])
		if last == nil {
			answered = next
			continue
		}
		if until(ctx, s, last.done) {
			continue
		}
		if c.abandon(requests[answered:sent]); lastWaiting(requests[:sent]) == nil {
			return sent, nil
		}
		err = s.ended(ctx, errors.New("waiting for the reply of "+c.server))
		for _, r := range requests[:sent] { // also those before, which have ended: one may have failed with the conn
			if !r.repeatable && !r.replied() && r.outcomeUnknown() {
				return sent, r.opError(err, true)
			}
		}
		r := requests[max(0, slices.IndexFunc(requests, func(r *request) bool { return !r.replied() }))]
		if r.repeatable {
			return sent, r.opError(err, false)
		}
		return sent, r.unsentError(err)
	}
	return sent, nil
}

func lastWaiting(requests []*request) *request {
	for _, r := range slices.Backward(requests) {
		if !r.finished() {
			return r
		}
	}
	return nil
}

// outcomeUnknown reports whether r, which run has given up, may have been carried out, or may still be.
func (r *request) outcomeUnknown() bool {
	if r.finished() {
		return !errors.Is(r.err, ErrNotSent)
	}
	if r.conn == nil {
		return false
	}
	r.conn.mu.Lock()
	defer r.conn.mu.Unlock()
	return !r.sent.IsZero()
}

// garbled gives up the conn, since its reply to r can't be decoded.
func (s *Session) garbled(r *request, err error) error {
	err = fmt.Errorf("%w: reply to %s: %w", ErrGarbled, r.name, err)
	r.conn.fail(err)
	return r.opError(err, true)
}

// replied reports, after run has returned, whether r has its reply; if run gave up waiting, that may still come a moment
// later.
func (r *request) replied() bool { return r.finished() && r.err == nil }

func (r *request) finished() bool {
	select {
	case <-r.done:
		return true
	default:
		return false
	}
}

// requestQueue is a linked list of requests: under its owner's mutex a request that is given up is removed from the middle,
// and a heartbeat put in front, in constant time. A request is in one queue at a time.
type requestQueue struct {
	head, tail *request
	n          int // requests
	bytes      int // of their frames
	long       int // those with a long reply
}

func (q *requestQueue) push(r *request)      { q.link(q.tail, r, nil) }
func (q *requestQueue) pushFront(r *request) { q.link(nil, r, q.head) }

// link puts r between two neighbours; nil: none on that side.
func (q *requestQueue) link(prev, r, next *request) {
	if r.prev, r.next = prev, next; prev != nil {
		prev.next = r
	} else {
		q.head = r
	}
	if next != nil {
		next.prev = r
	} else {
		q.tail = r
	}
	q.n++
	q.bytes += len(r.frame)
	if r.long {
		q.long++
	}
}

func (q *requestQueue) pop() *request {
	r := q.head
	if r != nil {
		q.remove(r)
	}
	return r
}

func (q *requestQueue) remove(r *request) {
	if r.prev != nil {
		r.prev.next = r.next
	} else {
		q.head = r.next
	}
	if r.next != nil {
		r.next.prev = r.prev
	} else {
		q.tail = r.prev
	}
	r.prev, r.next = nil, nil
	q.n--
	q.bytes -= len(r.frame)
	if r.long {
		q.long--
	}
}
