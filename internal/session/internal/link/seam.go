package link

import (
	"sync"
	"time"
)

// Seam lets the tests of package session play the server on a conn, frame by frame: on a conn without a socket, on which run does
// not run. Nothing else uses it.
type Seam struct{ c *Conn }

// SeamOf returns c's.
func SeamOf(c *Conn) Seam { return Seam{c} }

// Establish makes the handshake be over.
func (s Seam) Establish() { s.c.state = connEstablished }

// Woken is signalled when requests have been queued, and when the conn has failed.
func (s Seam) Woken() <-chan struct{} { return s.c.wake }

// Locker is the conn's mutex.
func (s Seam) Locker() sync.Locker { return &s.c.mu }

// Waiting returns how many requests wait to be written, how many for their replies, and the number of the first of these.
func (s Seam) Waiting() (queued, pending int, xid int32) {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	if s.c.pending.head != nil {
		xid = s.c.pending.head.xid
	}
	return s.c.queue.n, s.c.pending.n, xid
}

// Flush writes what is queued, as far as the window allows.
func (s Seam) Flush() error {
	for {
		if _, more, err := s.c.flush(nil, nil); !more || err != nil {
			return err
		}
	}
}

// Handle handles a frame of size bytes, of which body was kept, as the reader does after it has read it.
func (s Seam) Handle(body []byte, size int, at time.Time) error {
	_, err := s.c.handle(body, size, at)
	return err
}

// Take takes the first request that waits for its reply.
func (s Seam) Take() *Request {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	return s.c.pending.pop()
}

// First is the first request that waits for its reply.
func (s Seam) First() *Request { return s.c.pending.head }

// FailNext fails the first request that waits for its reply, as the conn does when it fails for err.
func (s Seam) FailNext(err error) { s.c.failCalls(s.c.pending.pop(), err) }

// Together is how many requests of one call are waited for together.
const Together = burst
