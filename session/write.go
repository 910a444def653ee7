package session

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"runtime"
	"time"
)

// enqueue puts calls on the link, next to each other. False: the link is dead and none of them was taken.
func (l *link) enqueue(calls ...*call) bool {
	if !l.line(calls...) {
		return false
	}
	l.poke()
	return true
}

// line is enqueue for calls that may wait until something else is put on the link.
func (l *link) line(calls ...*call) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err != nil {
		return false
	}
	l.numberLocked(calls)
	for _, c := range calls {
		if c.urgent {
			l.queue.pushFront(c)
		} else {
			l.queue.push(c)
		}
	}
	return true
}

// poke makes run look at the queue.
func (l *link) poke() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// numberLocked gives calls of ours their transaction ids.
func (l *link) numberLocked(calls []*call) {
	for _, c := range calls {
		c.link = l
		if c.driver {
			continue
		}
		if l.xid++; l.xid < firstXid { // after a thousand million requests on one connection
			l.xid = firstXid
		}
		if c.xid = l.xid; c.op == opPing {
			c.xid = xidPing // whatever was sent, that is what comes back
		}
		binary.BigEndian.PutUint32(c.frame, uint32(len(c.frame)-4))
		binary.BigEndian.PutUint32(c.frame[4:], uint32(c.xid))
	}
}

// abandon gives up waiting for calls, two bursts at most. Those that have not been written never will be; it reports
// whether a write among them has left already.
func (l *link) abandon(calls []*call) (sent bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range calls {
		if !c.sent.IsZero() {
			sent = sent || !c.read
		} else if l.err == nil { // else fail has taken them all
			l.queue.remove(c)
		}
	}
	return sent
}

// silence returns for how long nothing has been heard although a reply is due; false when none is.
func (l *link) silence(now time.Time) (time.Duration, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.pending.n == 0 {
		return 0, false
	}
	since := l.pending.head.sent
	if l.moved.After(since) {
		since = l.moved
	}
	return now.Sub(since), true
}

// maxKept bounds the write buffer that a link keeps.
const maxKept = 16 << 10

// lastSent returns when something was last sent; the zero time when nothing was yet.
func (l *link) lastSent() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.last
}

// run authenticates, restores the watches, opens the link for everybody and then writes what is queued until the link
// is dead. Owner: the session, which joins it.
func (l *link) run() {
	if err := l.authenticate(); err != nil {
		l.fail(err)
		return
	}
	if !l.s.linkUp(l) {
		l.fail(ErrClosed)
		return
	}
	for {
		select {
		case <-l.wake:
		case <-l.dead:
			return
		}
		if l.busy() {
			runtime.Gosched() // whom the latest replies have woken is about to ask for more: one write for many
		}
		for more := true; more; {
			var err error
			if more, err = l.flush(nil); err != nil {
				l.fail(err)
				return
			}
		}
	}
}

// busy reports whether replies to many requests are outstanding.
func (l *link) busy() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.pending.n >= 4
}

// maxWrite bounds what flush copies and writes in one piece, but for a single frame that is longer.
const maxWrite = 64 << 10

// flush writes first, or else what is queued, as far as the window goes, a piece at a time: more says that there is another
// one, before which a heartbeat may have come. They count as sent from the instant before the first byte leaves; from
// here on their outcome is the server's to tell.
func (l *link) flush(first *call) (more bool, err error) {
	l.mu.Lock()
	if l.err != nil {
		l.mu.Unlock()
		return false, l.err
	}
	if first != nil {
		l.numberLocked([]*call{first})
		l.queue.pushFront(first)
	}
	now := l.s.clock.stamp()
	out := l.out[:0]
	for l.queue.n > 0 && (len(out) == 0 || len(out)+len(l.queue.head.frame) <= maxWrite) {
		if l.full = !l.queue.head.urgent && first == nil && (l.pending.n >= window || l.pending.bytes >= windowBytes); l.full {
			break
		}
		c := l.queue.pop()
		c.sent, l.last = now, now
		c.expect = l.s.sizes.expect(c)
		l.pending.push(c)
		out = append(out, c.frame...) // copied under mu: when the link fails, the frame goes to the next one
		if first != nil {
			break
		}
	}
	more = first == nil && !l.full && l.queue.n > 0
	l.mu.Unlock()
	if cap(out) <= maxKept {
		l.out = out
	}
	return more, l.write(out)
}

// write writes b in steps, each of which has the time of a reply: a long request on a slow line is no silence.
func (l *link) write(b []byte) error {
	for len(b) > 0 {
		if err := l.Conn.SetWriteDeadline(time.Now().Add(l.s.patience())); err != nil {
			return l.readError(err)
		}
		n, err := l.Conn.Write(b[:min(len(b), maxKept)])
		if timeout := net.Error(nil); errors.As(err, &timeout) && timeout.Timeout() {
			return fmt.Errorf("%w: it takes no more of the requests", errSilent)
		} else if err != nil {
			return l.readError(err)
		}
		if b = b[n:]; len(b) > 0 {
			l.progress()
		}
	}
	return nil
}

// authenticate sends the credentials and waits for the verdict, before any other request is let on the link: the
// server answers them out of turn, and refuses what came before them.
func (l *link) authenticate() error {
	for _, a := range l.s.cfg.auth {
		c := newCall(opAuth, "authenticate", a.Scheme, func(b []byte) []byte {
			return appendBytes(appendString(appendInt(b, 0), a.Scheme), a.Credential)
		})
		if _, err := l.flush(c); err != nil {
			return err
		}
		timer := time.NewTimer(l.limit)
		select {
		case <-c.done:
			timer.Stop()
		case <-timer.C:
			return fmt.Errorf("no answer to the %s credentials within %v", a.Scheme, l.limit)
		}
		if c.err != nil {
			return c.err
		}
		if c.head.code != codeOK {
			err := fmt.Errorf("%w: scheme %s at %s", ErrAuth, a.Scheme, l.server)
			l.s.end(err)
			return err
		}
	}
	return nil
}
