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

// half is one direction of a pipe.
type half struct {
	mu      sync.Mutex // guards the rest; never held while waiting
	buf     []byte     // what has been written and not yet read
	end     halfEnd
	changed chan struct{} // closed and replaced at each change of the above, and to wake calls
}

// halfEnd says which end of a direction has been closed. It only advances.
type halfEnd uint8

const (
	neither halfEnd = iota
	writer          // what is in buf can still be read, and then the stream ends
	reader          // nothing can be read or written
)

// newHalf returns an empty direction.
func newHalf() *half { return &half{changed: make(chan struct{})} }

// read moves what has arrived to b. If nothing has, and nothing can be said about the end either,
// it returns a channel that is closed when the caller should try again.
func (h *half) read(b []byte) (n int, retry <-chan struct{}, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.end == reader:
		return 0, nil, io.ErrClosedPipe
	case len(b) == 0:
		return 0, nil, nil
	case len(h.buf) > 0:
		n := copy(b, h.buf)
		h.buf = h.buf[n:]
		if len(h.buf) == 0 {
			h.buf = nil
		}
		h.wakeLocked()
		return n, nil, nil
	case h.end == writer:
		return 0, nil, io.EOF
	}
	return 0, h.changed, nil
}

// write appends as much of b as has room. If that is not all, it returns a channel that is closed
// when the caller should try again with the rest.
func (h *half) write(b []byte) (n int, retry <-chan struct{}, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.end != neither {
		return 0, nil, io.ErrClosedPipe
	}
	if n = min(len(b), pipeBuffer-len(h.buf)); n > 0 {
		h.buf = append(h.buf, b[:n]...)
		h.wakeLocked()
	}
	if n < len(b) {
		retry = h.changed
	}
	return n, retry, nil
}

// close closes one end. What is in the buffer when its reader closes is lost.
func (h *half) close(end halfEnd) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.end = max(h.end, end)
	if end == reader {
		h.buf = nil
	}
	h.wakeLocked()
}

// wake makes the waiting calls try again.
func (h *half) wake() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.wakeLocked()
}

// wakeLocked is wake for a caller that holds h.mu.
func (h *half) wakeLocked() {
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

// Read returns what has arrived, and blocks only if nothing has.
func (e *pipeEnd) Read(b []byte) (int, error) {
	for {
		expired := e.read.channel()
		if isClosed(expired) {
			return 0, os.ErrDeadlineExceeded
		}
		n, retry, err := e.in.read(b)
		if retry == nil {
			return n, err
		}
		select {
		case <-retry:
		case <-expired:
		}
	}
}

// Write blocks while the buffer is full. What it wrote before a deadline or the end stays written,
// as on a socket.
func (e *pipeEnd) Write(b []byte) (written int, err error) {
	for {
		expired := e.write.channel()
		if isClosed(expired) {
			return written, os.ErrDeadlineExceeded
		}
		n, retry, err := e.out.write(b[written:])
		written += n
		if retry == nil {
			return written, err
		}
		select {
		case <-retry:
		case <-expired:
		}
	}
}

// WritesAtOnce reports that a short write into an empty buffer does not block. Sessions ask for it.
func (e *pipeEnd) WritesAtOnce() bool { return true }

// Close lets the other end read what is on its way and then the end of the stream; what the other
// end sent is lost.
func (e *pipeEnd) Close() error {
	// Both ends and both directions are notified, and the timers of deadlines are stopped, so that
	// a bubble can end.
	e.closeOnce.Do(func() {
		e.out.close(writer)
		e.in.close(reader)
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

// wake makes blocked calls check the new deadline.
func (e *pipeEnd) wake() {
	e.in.wake()
	e.out.wake()
}

// deadline closes a channel when it has passed. The zero deadline has no time and never passes.
type deadline struct {
	mu    sync.Mutex // guards the rest
	timer *time.Timer
	ch    chan struct{}
}

// channel returns a channel that is closed when the deadline passes. After set there is a new one.
func (d *deadline) channel() <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ch == nil {
		d.ch = make(chan struct{})
	}
	return d.ch
}

// set moves the deadline to t. A zero t removes it.
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

// isClosed reports whether a channel that carries no values is closed.
func isClosed(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}
