package zktest

import (
	"sync"
	"time"
)

// An outbox and two gates lie between a connection and its socket. They have locks of their own,
// below the server's: no other lock is taken while one of these is held.

// outbox is the queue of frames on their way to one client. It has no bound. The client's own
// requests and watches fill it, and a server that waited for a slow reader with its lock held would
// stop all clients.
type outbox struct {
	mu    sync.Mutex // guards queue and last
	queue []parcel
	last  bool          // nothing will follow; hang up after the queue
	ready chan struct{} // wakes the writer; holds one
}

// parcel is a frame and what the faults that strike it do to it. Each effect is independent of the
// others, and several may add up.
type parcel struct {
	frame  []byte
	after  time.Time             // not before this moment
	holds  []<-chan struct{}     // not before these are closed
	alter  []func([]byte) []byte // applied to the payload in order
	cut    int                   // send only so many bytes; all if negative
	hangUp bool                  // close the connection after it
	silent bool                  // send nothing more after it
	lost   bool                  // send nothing of it
}

// newParcel returns a parcel that no fault has struck.
func newParcel(frame []byte) parcel { return parcel{frame: frame, cut: -1} }

// bytes returns the frame as faults have altered and cut it.
func (p *parcel) bytes() []byte {
	b := p.frame
	for _, f := range p.alter {
		b = frame(f(b[lengthSize:]))
	}
	if p.cut >= 0 && p.cut < len(b) {
		b = b[:p.cut]
	}
	return b
}

func newOutbox() *outbox { return &outbox{ready: make(chan struct{}, 1)} }

// put queues a frame and returns at once. After finish it does nothing.
func (o *outbox) put(p parcel) {
	o.mu.Lock()
	if !o.last {
		o.queue = append(o.queue, p)
	}
	o.mu.Unlock()
	o.signal()
}

// finish makes what is queued the last that is sent.
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

// take empties the queue and returns it, and whether it was the last one.
func (o *outbox) take() (ps []parcel, last bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	ps, o.queue = o.queue, nil
	return ps, o.last
}

// len returns the number of frames that wait, without those that the writer has taken.
func (o *outbox) len() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.queue)
}

// gate holds one direction of a connection back as long as any fault requires it. The zero gate is
// open.
type gate struct {
	mu     sync.Mutex    // guards the rest
	shut   int           // how many faults hold the direction back
	opened chan struct{} // closed when shut returns to 0
}

// close shuts the gate for one fault, which owes it one open.
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

// pass waits until the gate is open. It returns false if done is closed first.
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
