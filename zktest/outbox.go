package zktest

import (
	"sync"
	"time"
)

// An outbox and two gates lie between a connection and its socket. They have locks of their own,
// below the server's: no other lock is taken while one of these is held.

// outbox is the queue of frames on their way to one client. It has no bound: the client's own
// requests and watches fill it, and a server that waited for a slow reader with its lock held would
// stop all clients.
type outbox struct {
	mu    sync.Mutex // guards queue and last
	queue []parcel
	last  bool          // nothing will follow; hang up after the queue
	ready chan struct{} // holds one
}

// parcel is a frame and the effects of faults on it.
type parcel struct {
	frame  []byte
	after  time.Time             // not before this moment
	holds  []<-chan struct{}     // not before these are closed
	alter  []func([]byte) []byte // applied to the payload in order
	cut    int                   // send only so many bytes; -1 for all
	hangUp bool                  // close the connection after it
	silent bool                  // send nothing more after it
	lost   bool                  // send nothing of it
}

func newOutbox() *outbox { return &outbox{ready: make(chan struct{}, 1)} }

// put queues a frame and returns at once. After the end nothing is queued any more.
func (o *outbox) put(p parcel) {
	o.mu.Lock()
	if !o.last {
		o.queue = append(o.queue, p)
	}
	o.mu.Unlock()
	o.signal()
}

// finish hangs up once the queue has been sent.
func (o *outbox) finish() {
	o.mu.Lock()
	o.last = true
	o.mu.Unlock()
	o.signal()
}

// signal wakes the writer. One signal is enough for any number of frames: it takes all there are.
func (o *outbox) signal() {
	select {
	case o.ready <- struct{}{}:
	default:
	}
}

// take returns the queue, and whether the end follows it.
func (o *outbox) take() (ps []parcel, last bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	ps, o.queue = o.queue, nil
	return ps, o.last
}

// len is the number of frames that wait, without those that the writer has taken.
func (o *outbox) len() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.queue)
}

// gate holds one direction of a connection back as long as a fault requires it.
type gate struct {
	mu     sync.Mutex // guards the rest
	shut   int
	opened chan struct{} // closed when shut returns to 0
}

// close shuts the gate once more. It must be opened as often.
func (g *gate) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.shut == 0 {
		g.opened = make(chan struct{})
	}
	g.shut++
}

// open undoes one close.
func (g *gate) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.shut--; g.shut == 0 {
		close(g.opened)
	}
}

// pass waits until the gate is open; false means that done came first.
func (g *gate) pass(done <-chan struct{}) bool {
	for {
		g.mu.Lock()
		ch := g.opened
		free := g.shut == 0
		g.mu.Unlock()
		if free {
			return true
		}
		select {
		case <-ch:
		case <-done:
			return false
		}
	}
}
