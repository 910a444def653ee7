package link

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"runtime"
	"time"

	"github.com/zklock/locker/internal/session/failure"
	"github.com/zklock/locker/internal/session/internal/pipeline"
)

// maxChunk bounds the bytes that are written to the socket at once, and those of the write buffer
// that a conn keeps.
const maxChunk = 16 << 10

// maxByCaller bounds the bytes that a call writes itself. The smallest buffer of a TCP socket has
// room for them: Linux's SOCK_MIN_SNDBUF is 4,608 bytes, with what the kernel itself needs.
const maxByCaller = 2 << 10

// ErrSilent matches the failure of a conn whose server has taken, or answered, nothing for too
// long.
var ErrSilent = errors.New("no reply")

// Enqueue puts requests on the conn, one behind the other, and wakes run to write them. It returns
// false if the conn has failed, and none of them was taken.
func (c *Conn) Enqueue(requests ...*pipeline.Request) bool {
	added := c.Add(requests...)
	poke(c.wake)
	return added
}

// Add is Enqueue without the writing: the caller calls Flush when it holds no mutex.
func (c *Conn) Add(requests ...*pipeline.Request) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state == connFailed {
		return false
	}
	for _, r := range requests {
		r.FailConn = c.failConn
		c.pipe.Add(r)
	}
	return true
}

// Flush sees to it that what Add has queued is written. If no reply is due and nobody is writing,
// Flush writes what is queued itself, which saves the switch to run. Otherwise it wakes run.
//
// The write returns at once, whatever the caller's deadline: the server has read every earlier
// request, since it has answered them all, so the socket's buffer is empty and has room for a few
// more. Only a server that makes up its answers without reading could make the caller wait, for
// Owner.Patience at most: then the write fails, and the conn with it.
func (c *Conn) Flush() {
	c.mu.Lock()
	queued, pending := c.pipe.Waiting()
	if queued == 0 { // somebody else has written it, or the conn has failed
		c.mu.Unlock()
		return
	}
	isIdle := c.writesAtOnce && c.state == connOpen && !c.isWriting && pending == 0
	if !isIdle || c.pipe.QueuedBytes() > maxByCaller {
		c.mu.Unlock()
		poke(c.wake)
		return
	}
	piece, _ := c.takePieceLocked() // not empty: the window is open, since no reply is due
	c.mu.Unlock()
	if err := c.write(piece); err != nil {
		c.Fail(err)
		return
	}
	if c.wrote() {
		poke(c.wake) // run may have found the conn being written to
	}
}

// WritesAtOnce may be implemented by the connections of a session.Dialer. It returns true if a
// short write does not block while no other is under way. On TCP that is so, also below TLS.
type WritesAtOnce interface{ WritesAtOnce() bool }

func writesAtOnce(socket net.Conn) bool {
	if secure, ok := socket.(*tls.Conn); ok {
		socket = secure.NetConn()
	}
	switch s := socket.(type) {
	case *net.TCPConn:
		return true
	case WritesAtOnce:
		return s.WritesAtOnce()
	}
	return false
}

func poke(ch chan<- struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}

// run presents the credentials, has the owner restore the watches and open the conn, and then
// writes what is queued until the conn fails. The session joins it.
func (c *Conn) run() {
	err := errNoWriter
	defer func() { c.Fail(err) }()
	if err = c.authenticate(); err != nil {
		return
	}
	if !c.owner.Up() {
		err = failure.ErrClosed
		return
	}
	err = c.writeLoop()
}

// errNoWriter says that a user's SASL mechanism has ended the goroutine of run.
var errNoWriter = errors.New("the SASL mechanism has ended its goroutine")

// writeLoop writes what is queued, and calls the heartbeat when it is due. It returns why no more
// can be written.
func (c *Conn) writeLoop() error {
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
			// Let goroutines that the latest replies have woken enqueue first: one write then
			// carries all their requests.
			runtime.Gosched()
		}
		piece, more, err := c.nextPiece()
		if err != nil {
			return err
		}
		if len(piece) == 0 {
			continue
		}
		if err := c.write(piece); err != nil {
			return err
		}
		// Flush needs the result of wrote: while a call writes, this loop may have emptied wake and
		// found nothing to do. Here the result is not needed. Who has queued something during this
		// write has filled wake, which only this loop empties, or is about to fill it, by Flush.
		// For what the window holds back, Conn.take fills wake when replies make room.
		c.wrote()
		if more {
			poke(c.wake)
		}
	}
}

// busy reports whether so many replies are due that calls may be about to enqueue more.
func (c *Conn) busy() bool {
	_, pending := c.Waiting()
	return pending >= 4
}

// nextPiece returns the bytes that run is to write next: see pipeline.Pipeline.Next. There are none
// while a call writes, which wakes run when it has written.
func (c *Conn) nextPiece() (piece []byte, more bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state == connFailed {
		return nil, false, c.err
	}
	if c.isWriting {
		return nil, false, nil
	}
	piece, more = c.takePieceLocked()
	return piece, more, nil
}

// takePieceLocked returns the bytes to write next, after which the caller calls wrote.
func (c *Conn) takePieceLocked() (piece []byte, more bool) {
	c.out, more = c.pipe.Next(c.common.Clock.Stamp(), c.out)
	c.isWriting = len(c.out) > 0
	return c.out, more
}

// wrote notes that the piece has been written. It reports whether requests wait to be written.
func (c *Conn) wrote() (isQueued bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.isWriting = false
	if cap(c.out) > maxChunk {
		c.out = nil
	}
	queued, _ := c.pipe.Waiting()
	return queued > 0
}

// write writes b in chunks, and each chunk has its own deadline: so a long request on a slow link
// is not taken for a dead connection.
//
// The deadline is the instant at which the heartbeat would give up the conn for silence. While run
// writes, no heartbeat does so, since run is what calls it. While a call writes, either may be
// first.
func (c *Conn) write(b []byte) error {
	for len(b) > 0 {
		_, unheard := c.Quiet(c.common.Clock.Stamp())
		if err := c.socket.SetWriteDeadline(
			time.Now().Add(c.owner.Patience() - unheard)); err != nil {
			return c.socketError(err)
		}
		n, err := c.socket.Write(b[:min(len(b), maxChunk)])
		if failure.IsTimeout(err) {
			return fmt.Errorf("%w: it takes no more of the requests", ErrSilent)
		}
		if err != nil {
			return c.socketError(err)
		}
		b = b[n:]
		if len(b) > 0 {
			c.progress()
		}
	}
	return nil
}
