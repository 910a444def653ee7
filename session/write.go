package session

import (
	"encoding/binary"
	"fmt"
	"runtime"
	"slices"
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
	l.number(calls)
	if calls[0].urgent {
		l.queue = append(calls, l.queue...)
	} else {
		l.queue = append(l.queue, calls...)
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

// number gives calls of ours their transaction ids. The caller holds mu.
func (l *link) number(calls []*call) {
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

// abandon gives up waiting for calls. Those that have not been written never will be; it reports whether a write among
// them has left already.
func (l *link) abandon(calls []*call) (sent bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range calls {
		if c.sent.IsZero() {
			for i, q := range l.queue {
				if q == c {
					l.queue = append(l.queue[:i], l.queue[i+1:]...)
					break
				}
			}
		} else if !c.read {
			sent = true
		}
	}
	return sent
}

// silence returns for how long nothing has been heard although a reply is due; false when none is.
func (l *link) silence(now time.Time) (time.Duration, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.pending) == 0 {
		return 0, false
	}
	since := l.pending[0].sent
	if l.heard.After(since) {
		since = l.heard
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
		if err := l.flush(nil); err != nil {
			l.fail(err)
			return
		}
	}
}

// busy reports whether replies to many requests are outstanding.
func (l *link) busy() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.pending) >= 4
}

// flush writes first, or else what is queued, as far as the window goes, in one piece. They count as sent from the instant before the
// first byte leaves; from here on their outcome is the server's to tell.
func (l *link) flush(first []*call) error {
	l.mu.Lock()
	if l.err != nil {
		l.mu.Unlock()
		return l.err
	}
	calls := first
	if calls == nil {
		n := max(0, window-len(l.pending))
		for n < len(l.queue) && l.queue[n].urgent {
			n++
		}
		n = min(n, len(l.queue))
		calls = l.queue[:n]
	} else {
		l.number(calls)
	}
	now := l.s.clock.stamp()
	for _, c := range calls {
		c.sent = now
	}
	if len(calls) > 0 {
		l.last = now
	}
	l.pending = append(l.pending, calls...)
	out := l.out[:0]
	for _, c := range calls {
		out = append(out, c.frame...) // copied under mu: when the link fails, the frame goes to the next one
	}
	n := len(calls)
	if first == nil {
		l.queue = slices.Delete(l.queue, 0, n) // the array lasts, unless a burst made it long
		if len(l.queue) == 0 && cap(l.queue) > window {
			l.queue = nil
		}
	}
	l.mu.Unlock()
	if n == 0 {
		return nil
	}
	if cap(out) <= maxKept {
		l.out = out
	}
	if err := l.Conn.SetWriteDeadline(time.Now().Add(patience(l.s.Timeout()))); err != nil {
		return err
	}
	_, err := l.Conn.Write(out)
	return err
}

// authenticate sends the credentials and waits for the verdict, before any other request is let on the link: the
// server answers them out of turn, and refuses what came before them.
func (l *link) authenticate() error {
	for _, a := range l.s.cfg.auth {
		c := newCall(opAuth, "authenticate", a.Scheme, func(b []byte) []byte {
			return appendBytes(appendString(appendInt(b, 0), a.Scheme), a.Credential)
		})
		if err := l.flush([]*call{c}); err != nil {
			return err
		}
		timer := time.NewTimer(attempt(l.s.cfg.timeout))
		select {
		case <-c.done:
			timer.Stop()
		case <-timer.C:
			return fmt.Errorf("no answer to the %s credentials within %v", a.Scheme, attempt(l.s.cfg.timeout))
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
