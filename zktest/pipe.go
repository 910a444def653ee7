package zktest

import (
	"io"
	"net"
	"os"
	"sync"
	"time"
)

// pipeBuffer is how much one direction of an in-memory connection holds before a write blocks:
// about as much as a loopback socket, so that a server that does not read has the same effect on a
// client.
const pipeBuffer = 256 << 10

// newPipe returns the two ends of an in-memory connection. Unlike net.Pipe it is buffered: a client
// that writes a request from the goroutine that reads the reply must not wait for the server. All
// waits are on channels made by the caller, so they are durably blocking in the synctest bubble
// that created it.
func newPipe(serverAddr string) (client, server net.Conn) {
	up, down := newHalf(), newHalf()
	// The client's port has no meaning, but code that prints or parses addresses expects one.
	ca, sa := pipeAddr("127.0.0.1:1"), pipeAddr(serverAddr)
	return &pipeEnd{in: down, out: up, local: ca, remote: sa},
		&pipeEnd{in: up, out: down, local: sa, remote: ca}
}

// pipeAddr is the address of an end of a pipe; servers match ACLs of the scheme "ip" against it.
type pipeAddr string

func (pipeAddr) Network() string  { return "zktest" }
func (a pipeAddr) String() string { return string(a) }

// half is one direction.
type half struct {
	mu      sync.Mutex // guards the rest; never held while waiting
	buf     []byte
	eof     bool          // the writer closed: what is in buf can still be read
	broken  bool          // the reader closed: nothing can be written
	changed chan struct{} // closed and replaced at each change of the above
}

// newHalf makes an empty direction.
func newHalf() *half { return &half{changed: make(chan struct{})} }

// update changes the state and wakes the waiting calls.
func (h *half) update(f func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	f()
	close(h.changed)
	h.changed = make(chan struct{})
}

// pipeEnd is a net.Conn: the reading side of one half and the writing side of the other.
type pipeEnd struct {
	in, out       *half
	local, remote net.Addr
	closeOnce     sync.Once
	read, write   deadline
}

// Read returns what has arrived, and blocks only if nothing has. One critical section reads the
// state and takes the channel that reports its next change, so that no change is missed.
func (e *pipeEnd) Read(b []byte) (int, error) {
	for {
		expired := e.read.channel()
		if isClosed(expired) {
			return 0, os.ErrDeadlineExceeded
		}
		h := e.in
		h.mu.Lock()
		switch {
		case h.broken: // closed by this end
			h.mu.Unlock()
			return 0, io.ErrClosedPipe
		case len(b) == 0:
			h.mu.Unlock()
			return 0, nil
		case len(h.buf) > 0:
			n := copy(b, h.buf)
			h.buf = h.buf[n:]
			if len(h.buf) == 0 {
				h.buf = nil
			}
			close(h.changed)
			h.changed = make(chan struct{})
			h.mu.Unlock()
			return n, nil
		case h.eof: // after the last byte, not before
			h.mu.Unlock()
			return 0, io.EOF
		}
		ch := h.changed
		h.mu.Unlock()
		select {
		case <-ch:
		case <-expired:
		}
	}
}

// Write blocks while the buffer is full. What it wrote before a deadline or the end stays written,
// as on a socket.
func (e *pipeEnd) Write(b []byte) (n int, err error) {
	for {
		expired := e.write.channel()
		if isClosed(expired) {
			return n, os.ErrDeadlineExceeded
		}
		h := e.out
		h.mu.Lock()
		if h.broken || h.eof {
			h.mu.Unlock()
			return n, io.ErrClosedPipe
		}
		// What fits goes in at once; the rest waits for the reader.
		if room := pipeBuffer - len(h.buf); room > 0 || len(b) == 0 {
			k := min(room, len(b))
			h.buf = append(h.buf, b[:k]...)
			b, n = b[k:], n+k
			close(h.changed)
			h.changed = make(chan struct{})
		}
		ch := h.changed
		h.mu.Unlock()
		if len(b) == 0 {
			return n, nil
		}
		select {
		case <-ch:
		case <-expired:
		}
	}
}

// WritesAtOnce says that a short write into an empty buffer does not block. Sessions ask for it.
func (e *pipeEnd) WritesAtOnce() bool { return true }

// Close lets the other end read what is on its way and then the end of the stream; what the other
// end sent is lost.
func (e *pipeEnd) Close() error {
	// Both ends and both directions are notified, and the timers of deadlines are stopped, so that
	// a bubble can end.
	e.closeOnce.Do(func() {
		e.out.update(func() { e.out.eof = true })
		e.in.update(func() { e.in.broken, e.in.buf = true, nil })
		e.read.set(time.Time{})
		e.write.set(time.Time{})
	})
	return nil
}

func (e *pipeEnd) LocalAddr() net.Addr  { return e.local }
func (e *pipeEnd) RemoteAddr() net.Addr { return e.remote }

// SetDeadline, SetReadDeadline and SetWriteDeadline also apply to a Read or Write that is blocked
// already.
func (e *pipeEnd) SetDeadline(t time.Time) error {
	e.read.set(t)
	e.write.set(t)
	e.wake()
	return nil
}

func (e *pipeEnd) SetReadDeadline(t time.Time) error {
	e.read.set(t)
	e.wake()
	return nil
}

func (e *pipeEnd) SetWriteDeadline(t time.Time) error {
	e.write.set(t)
	e.wake()
	return nil
}

// wake makes blocked calls look at the new deadline.
func (e *pipeEnd) wake() {
	e.in.update(func() {})
	e.out.update(func() {})
}

// deadline closes a channel when it has passed. A new deadline has a new channel.
type deadline struct {
	mu    sync.Mutex // guards the rest
	timer *time.Timer
	ch    chan struct{}
}

// channel is closed when the deadline has passed; without one it never is.
func (d *deadline) channel() <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ch == nil {
		d.ch = make(chan struct{})
	}
	return d.ch
}

func (d *deadline) set(t time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.timer != nil {
		d.timer.Stop()
		d.timer = nil
	}
	// The timer closes its own channel and no other: one that fires late does not affect later
	// deadlines.
	ch := make(chan struct{})
	d.ch = ch
	if t.IsZero() {
		return
	}
	if wait := time.Until(t); wait > 0 {
		d.timer = time.AfterFunc(wait, func() { close(ch) })
	} else {
		close(ch)
	}
}

func isClosed(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}
