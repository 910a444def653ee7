package session

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// call is one request on its way: encoded once, sent on one link, answered or failed exactly once.
type call struct {
	op    int32
	name  string // of the operation, for errors
	path  string // as the caller named it, for errors
	read  bool   // may be repeated when its reply is lost
	frame []byte // whole, with room for length and xid

	// hook, when set, runs in the link's reader, in the order of the wire, before any later frame is looked at.
	// It must not block and takes no lock but the watch table's.
	hook func(code int32)

	// Guarded by link.mu until done is closed.
	link   *link
	xid    int32
	sent   time.Time // on the session's clock; zero while it waits to be written
	driver bool      // the driver's own: its reply is handed on
	urgent bool      // a heartbeat, or the driver's: does not wait for the window, nor behind others

	// expect is how many bytes the reply to a list or a read will have, as far as is known; see replySizes. It does not change while
	// the call is in a queue.
	expect int

	done  chan struct{} // closed when the fields below are final; nil when nobody waits
	reply []byte        // behind the header
	head  replyHeader
	err   error // no reply came: why

	hopeless bool // the reply came and could not be read: not to be repeated
	skipped  int  // the reply came, of so many bytes, and was too long to be kept

	prev, next *call // in a callQueue

	// What it does to the session's ephemerals; the rest is its caller's and the room's: see ephemerals.
	changes  []change
	reserved int  // bytes
	doubted  bool // nobody waits for it, and it may be carried out

	room [frameRoom]byte // for frame, when it is short
}

// frameRoom is as long as a lock's requests mostly are.
const frameRoom = 256

func newCall(op int32, name, path string, body func([]byte) []byte) *call {
	c := &call{op: op, name: name, path: path, read: !throughLeader(op) || op == opSync, done: make(chan struct{})}
	c.frame = body(appendHeader(c.room[:0], op))
	return c
}

// fail builds the error for c. unknown: it may have been carried out.
func (c *call) fail(err error, unknown bool) error {
	return &OpError{Op: c.name, Path: c.path, Err: err, unknown: unknown && !c.read}
}

// failUnsent builds the error for c, which has never left.
func (c *call) failUnsent(err error) error {
	return &OpError{Op: c.name, Path: c.path, Err: err, unsent: true}
}

// result returns the decoder over the reply's body, or the server's refusal.
func (c *call) result() (*decoder, error) {
	if c.skipped > 0 { // a write says by its code whether it was done, but not what came of it
		return nil, c.fail(&sizeError{"reply", c.skipped, maxFrame}, c.head.code == codeOK)
	}
	if c.head.code != codeOK {
		return nil, c.fail(errOf(c.head.code), false)
	}
	return &decoder{b: c.reply}, nil
}

// burst is how many calls of one caller are put on a link at once, twice at most: enough to fill the window. The rest of
// the calls waits with its caller, where it is in nobody's way and costs nothing to give up.
const burst = window / 2

// run sends calls one behind the other and waits for all replies: back to back on one connection, as far as a burst goes.
// Reads whose reply is lost are sent again on the next connection, together with everything that never left; when a
// write's reply is lost, run returns and that call's error matches ErrUnknownOutcome. It waits for a connection as long
// as ctx and the session last. Calls that servers would refuse for their size are refused here, all of them.
//
// Nil says that every call has a reply; whether it says yes or no is in call.result.
//
// A request that may make ephemeral znodes for which the session has no room does not leave (ErrNoRoom).
func (s *Session) run(ctx context.Context, calls ...*call) error {
	for _, c := range calls {
		if size := len(c.frame) - 4; size > s.cfg.packetLimit { // without the length itself, as the servers count
			return c.failUnsent(&sizeError{"request", size, s.cfg.packetLimit})
		}
	}
	for _, c := range calls {
		if err := s.ephemerals.reserve(c); err != nil {
			return c.failUnsent(err) // the only one that reserves: the others are reads
		}
	}
	err := s.deliver(ctx, calls)
	for _, c := range calls {
		if c.replied() {
			s.ephemerals.answered(c)
		} else {
			s.ephemerals.left(c)
		}
	}
	return err
}

// deliver is run for requests that have their room.
func (s *Session) deliver(ctx context.Context, calls []*call) error {
	for {
		l, err := s.await(ctx)
		if err != nil {
			return calls[0].failUnsent(err)
		}
		sent, err := s.exchange(ctx, l, calls)
		if err != nil {
			return err
		}
		again := make([]*call, 0, len(calls)-sent)
		for _, c := range calls[:sent] {
			<-c.done // by now, but for a link that is just failing them one after the other
			switch {
			case c.err == nil:
			case errors.Is(c.err, ErrNotSent), c.read && !c.hopeless: // never sent, or harmless twice
				c.done, c.err, c.reply, c.sent = make(chan struct{}), nil, nil, time.Time{}
				again = append(again, c)
			default:
				if over := s.Err(); over != nil {
					return c.fail(over, true)
				}
				return c.fail(c.err, true)
			}
		}
		if calls = append(again, calls[sent:]...); len(calls) == 0 {
			return nil
		}
	}
}

// exchange sends calls on l and waits for what becomes of them: of all, or, when the link goes down, of the first sent.
// An error says that ctx or the session ended first.
func (s *Session) exchange(ctx context.Context, l *link, calls []*call) (sent int, err error) {
	for answered := 0; answered < len(calls); {
		for sent < len(calls) && sent < answered+2*burst {
			n := min(burst, len(calls)-sent)
			if !l.enqueue(calls[sent : sent+n]...) {
				return sent, nil
			}
			sent += n
		}
		// Replies come in order: when the last one is there, all are, and one wait wakes once.
		next := min(answered+burst, sent)
		select {
		case <-calls[next-1].done:
			answered = next
			continue
		case <-ctx.Done():
			err = Waited(ctx, errors.New("waiting for the reply of "+l.server))
		case <-s.ctx.Done():
			err = s.Err()
		}
		left := l.abandon(calls[answered:sent])
		c := first(calls)
		if !left && !c.read {
			return sent, c.failUnsent(err)
		}
		return sent, c.fail(err, left)
	}
	return sent, nil
}

// first returns the first of calls that has got no reply, or else the last.
func first(calls []*call) *call {
	for _, c := range calls {
		if !c.replied() {
			return c
		}
	}
	return calls[len(calls)-1]
}

// mayHaveLeft reports whether c may be carried out though run has given up waiting for it.
func (c *call) mayHaveLeft() bool {
	select {
	case <-c.done:
		return !errors.Is(c.err, ErrNotSent)
	default:
	}
	if c.link == nil {
		return false
	}
	c.link.mu.Lock()
	defer c.link.mu.Unlock()
	return !c.sent.IsZero()
}

// garbled gives up the link whose reply to c can't be decoded.
func (s *Session) garbled(c *call, err error) error {
	err = fmt.Errorf("%w: reply to %s: %w", ErrGarbled, c.name, err)
	c.link.fail(err)
	return c.fail(err, true)
}

// replied says whether the call has got its reply. For use after run has returned: then nothing changes it any more,
// unless run gave up waiting, and then it may at most be late by one.
func (c *call) replied() bool {
	select {
	case <-c.done:
		return c.err == nil
	default:
		return false
	}
}
