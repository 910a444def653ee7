package ensemble

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"time"
)

// link is one connection through a proxy: the client's end, the server's end, and a pump for each
// direction. A pump is a reader and a writer with a queue between them: the reader stamps each
// chunk with the time at which it may pass, so that a delay does not limit throughput.
type link struct {
	p    *Proxy
	over chan struct{} // closed by end

	// guarded by p.mu
	ends    [2]net.Conn // by the direction that writes to it: Requests → server, Replies → client
	ended   bool
	lossy   bool // bytes were dropped
	writing [2]bool
}

// chunk is the result of one read. err ends the direction once the bytes have passed.
type chunk struct {
	b   []byte
	due time.Time
	err error
}

// queued chunks per direction: enough for some 40,000 small frames a second at a delay of 100 ms.
const queueLen = 4096

const dialBound = 5 * time.Second

// run lasts as long as the link, joined by the proxy's close.
func (k *link) run() {
	if k.connect() {
		var pumps sync.WaitGroup // each pump ends with the link at the latest
		for _, d := range []Direction{Requests, Replies} {
			queue := make(chan chunk, queueLen)
			pumps.Go(func() { k.read(d, queue) })
			pumps.Go(func() { k.write(d, queue) })
		}
		pumps.Wait()
	}
	p := k.p
	p.mu.Lock()
	defer p.mu.Unlock()
	k.end()
	delete(p.links, k)
	p.changed.Broadcast()
}

// connect dials the target, after the thaw if the proxy is frozen: a frozen network does not pass a
// SYN either.
func (k *link) connect() bool {
	p := k.p
	p.mu.Lock()
	for p.isFrozen && !k.ended {
		p.changed.Wait()
	}
	p.mu.Unlock()

	server, err := k.dial()
	for until := time.Now().Add(p.patience); err != nil && time.Now().Before(until); {
		if !k.sleepUntil(time.Now().Add(pollEvery)) {
			return false
		}
		server, err = k.dial()
	}
	if err != nil {
		return false // the client's connection closes, as with any dead backend
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if k.ended {
		discard(server)
		return false
	}
	k.ends[Requests] = server
	return true
}

// dial connects to the target and stops when the link ends.
func (k *link) dial() (net.Conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), dialBound)
	var watching sync.WaitGroup
	watching.Go(func() { // ends with ctx
		select {
		case <-k.over:
			cancel()
		case <-ctx.Done():
		}
	})
	defer watching.Wait()
	defer cancel()
	return new(net.Dialer).DialContext(ctx, "tcp", k.p.target)
}

// read moves bytes from one end into the queue. While its gate holds it does not read, so that a
// full socket blocks the sender as a real network does.
func (k *link) read(d Direction, queue chan<- chunk) {
	p := k.p
	p.mu.Lock()
	src, opening := k.ends[1-d], p.opening
	p.mu.Unlock()
	send := func(b []byte, err error) bool {
		p.mu.Lock()
		due := time.Now().Add(p.delay[d])
		p.mu.Unlock()
		select {
		case queue <- chunk{b, due, err}:
			return err == nil
		case <-k.over:
			return false
		}
	}
	if opening != nil && d == Requests && !send(opening(src)) {
		return
	}
	buf := make([]byte, 64<<10)
	for k.mayPass(d, false) != hold {
		n, err := src.Read(buf)
		if !send(append([]byte(nil), buf[:n]...), err) {
			return
		}
	}
}

// write moves chunks from the queue to the other end, each when it is due and its gate is open.
func (k *link) write(d Direction, queue <-chan chunk) {
	for {
		var c chunk
		select {
		case c = <-queue:
		case <-k.over:
			return
		}
		if !k.sleepUntil(c.due) || !k.forward(d, c.b) {
			return
		}
		if c.err != nil {
			k.finish(d, c.err)
			return
		}
	}
}

func (k *link) sleepUntil(due time.Time) bool {
	wait := time.Until(due)
	if wait <= 0 {
		return true
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-k.over:
		return false
	}
}

// forward writes b to the other end and reports whether the direction may go on.
func (k *link) forward(d Direction, b []byte) bool {
	for len(b) > 0 {
		switch k.mayPass(d, true) {
		case hold:
			return false // the link is over
		case drop:
			return true
		}
		n, err := k.ends[d].Write(b)
		b = b[n:]
		k.p.mu.Lock()
		k.writing[d] = false
		k.p.changed.Broadcast()
		if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			k.end()
		}
		k.p.mu.Unlock()
	}
	return true
}

// mayPass waits while the gate of this direction holds, and returns what happens to the bytes: pass
// or drop; hold when the link is over. With toWrite it registers a write that passes, for set to
// wait for, or a loss.
func (k *link) mayPass(d Direction, toWrite bool) gate {
	p := k.p
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.gates[d] == hold && !k.ended {
		p.changed.Wait()
	}
	if k.ended {
		return hold
	}
	g := p.gates[d]
	switch {
	case !toWrite:
	case g == drop:
		k.lossy = true
	default:
		if err := k.ends[d].SetWriteDeadline(time.Time{}); err != nil {
			k.end()
			return hold
		}
		k.writing[d] = true
	}
	return g
}

// finish passes the end of a stream on: a FIN as a FIN, any other end as the end of both ends. A
// gate that holds or drops keeps it back.
func (k *link) finish(d Direction, err error) {
	p := k.p
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.gates[d] != pass && !k.ended {
		p.changed.Wait()
	}
	if k.ended {
		return
	}
	fin, ok := k.ends[d].(interface{ CloseWrite() error })
	if !ok || !errors.Is(err, io.EOF) || fin.CloseWrite() != nil {
		k.end()
	}
}

// callBack interrupts a write in progress. It needs p.mu.
func (k *link) callBack(d Direction) {
	if err := k.ends[d].SetWriteDeadline(time.Unix(1, 0)); err != nil {
		k.end() // closed already: the write returns by itself
	}
}

// end closes both ends and wakes the pumps. It needs p.mu.
func (k *link) end() {
	if k.ended {
		return
	}
	k.ended = true
	close(k.over)
	for _, c := range k.ends {
		if c != nil {
			discard(c)
		}
	}
	k.p.changed.Broadcast()
}

// discard closes a connection that is no longer needed: the peer may have closed it first, which is
// all that Close could report.
func discard(c io.Closer) { _ = c.Close() }
