package simulation_test

import (
	"encoding/binary"
	"hash/fnv"
	"io"
	"net"
	"os"
	"sync"
	"time"
)

// grain is the distance between the instants at which one source of events may act. Every source
// has a remainder of its own below it, so that no two sources ever act at one instant, and their
// order does not depend on the scheduler.
const grain = 4096 * time.Nanosecond

// Remainders, in nanoseconds, of the sources.
const (
	remWires      = 10 // the first; a player's wires have four
	remChaos      = 800
	remAftermath  = 900
	remClosing    = 901
	remProgress   = 902
	remOperations = 1000 // the first: see player.r
)

// at returns the first instant of the source with remainder r that is at least d after now.
func at(now time.Time, d time.Duration, r int) time.Time {
	ns := now.UnixNano() + int64(max(d, 0))
	ns += (int64(r) - ns%int64(grain) + int64(grain)) % int64(grain)
	if ns <= now.UnixNano() {
		ns += int64(grain)
	}
	return time.Unix(0, ns)
}

// mix is a hash (splitmix64). Numbers are drawn by hashing what they are for, so that the order of
// the draws does not matter.
func mix(words ...uint64) uint64 {
	h := uint64(0)
	for _, w := range words {
		h += w + 0x9e3779b97f4a7c15
		h ^= h >> 30
		h *= 0xbf58476d1ce4e5b9
		h ^= h >> 27
		h *= 0x94d049bb133111eb
		h ^= h >> 31
	}
	return h
}

// A delay is drawn from a message's contents and the number of earlier messages with the same
// contents on the connection, and not from the order of the messages: if several goroutines of a
// client send at one instant, the order of their requests changes nothing else.

// travel returns the delay of one message: usually below 2 ms, one in ten up to 30 ms, one in a
// hundred up to half a second, one in a thousand up to six seconds.
func travel(h uint64) time.Duration {
	share, frac := h%1000, time.Duration(h>>32%1000)
	switch {
	case share < 900:
		return 50*time.Microsecond + frac*2*time.Microsecond
	case share < 990:
		return 2*time.Millisecond + frac*28*time.Microsecond
	case share < 999:
		return 30*time.Millisecond + frac*470*time.Microsecond
	}
	return frac * 6 * time.Millisecond
}

// wire is a client's end of a connection on which every message, in either direction, has a delay
// of its own. Messages stay in order, as on a real connection, and those that were written before
// Close still arrive.
type wire struct {
	net.Conn        // to the server
	key      uint64 // of seed, client and connection
	// remainder of the client's messages; r+1 is that of the server's, r+2 that of slow writes
	r    int
	slow bool // a write takes some time

	mu    sync.Mutex // guards what follows
	queue []message  // on their way to the server
	// how many messages with the same contents were sent, by the hash of the contents
	sent   map[uint64]uint64
	asked  map[int32]uint64 // the hash from which the delay of a request was drawn, by its xid
	last   time.Time        // when the latest message arrives
	closed bool
	wake   chan struct{} // capacity 1: has an element when a message was queued
	over   chan struct{} // closed by Close

	// Used only by the goroutine that reads.
	received map[uint64]uint64 // as sent
	rest     []byte
	err      error
}

// message is on its way to the server until due. The last one has end set, and closes the
// connection.
type message struct {
	due   time.Time
	frame []byte
	end   bool
}

func newWire(conn net.Conn, key uint64, r int) *wire {
	w := &wire{Conn: conn, key: key, r: r, sent: map[uint64]uint64{}, received: map[uint64]uint64{},
		asked: map[int32]uint64{},
		wake:  make(chan struct{}, 1), over: make(chan struct{})}
	go w.carry() // ends after Close, which the client has to call
	return w
}

const opSetWatches = 101

// send queues a message with its delay. The caller holds mu.
func (w *wire) send(frame []byte, end bool) {
	now := time.Now()
	h := w.key
	// The first message is the handshake. It says nothing but the session's id, which must not
	// count: its delay depends on the connection alone.
	if len(w.sent) > 0 {
		to := 25
		if len(frame) >= 12 && frame[11] == opSetWatches {
			// setWatches has a zxid and lengths before its first path
			to = 37
		}
		h = mix(h, says(frame, 8, to)) // the operation, and the beginning of the path
	}
	w.sent[h]++
	h = mix(h, w.sent[h])
	if len(frame) >= 8 {
		w.asked[int32(binary.BigEndian.Uint32(frame[4:]))] = h
	}
	due := at(now, max(travel(h), w.last.Sub(now)), w.r)
	if !due.After(w.last) {
		due = w.last.Add(grain)
	}
	w.last = due
	w.queue = append(w.queue, message{due, frame, end})
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// carry delivers the client's messages.
func (w *wire) carry() {
	for {
		w.mu.Lock()
		queue := w.queue
		w.queue = nil
		w.mu.Unlock()
		for _, m := range queue {
			time.Sleep(time.Until(m.due))
			if m.end {
				_ = w.Conn.Close()
				return
			}
			_, _ = w.Conn.Write(m.frame) // the server may have closed the connection
		}
		if len(queue) == 0 {
			<-w.wake
		}
	}
}

// Write sends the frames in b, one message each.
func (w *wire) Write(b []byte) (int, error) {
	if w.slow {
		now := time.Now()
		time.Sleep(at(now,
			time.Duration(mix(w.key,
				uint64(now.UnixNano()))%uint64(2*time.Millisecond)), w.r+2).Sub(now))
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return 0, net.ErrClosed
	}
	for rest := b; len(rest) > 0; {
		n := len(rest)
		if n >= 4 {
			n = min(n, 4+int(binary.BigEndian.Uint32(rest)))
		}
		w.send(append([]byte(nil), rest[:n]...), false)
		rest = rest[n:]
	}
	return len(b), nil
}

// WritesAtOnce says whether Write returns at once: see package link.
func (w *wire) WritesAtOnce() bool { return !w.slow }

// Read returns the next message once it has arrived.
func (w *wire) Read(b []byte) (int, error) {
	if len(w.rest) == 0 && w.err == nil {
		w.receive()
	}
	select {
	case <-w.over:
		return 0, net.ErrClosed
	default:
	}
	if len(w.rest) == 0 {
		return 0, w.err
	}
	n := copy(b, w.rest)
	w.rest = w.rest[n:]
	return n, nil
}

// receive waits for a message of the server and its delay. If the connection ends within a message,
// it returns the part before.
func (w *wire) receive() {
	head := make([]byte, 4, 256)
	n, err := io.ReadFull(w.Conn, head)
	if w.err = err; err != nil {
		w.rest = head[:n]
		return
	}
	size := int(binary.BigEndian.Uint32(head))
	w.rest = append(head, make([]byte, min(size, 1<<20))...)
	n, w.err = io.ReadFull(w.Conn, w.rest[4:])
	w.rest = w.rest[:4+n]
	now := time.Now()
	t := time.NewTimer(at(now, travel(w.draw(w.rest)), w.r+1).Sub(now))
	defer t.Stop()
	select {
	case <-t.C:
	case <-w.over:
	}
}

// draw returns the hash from which the delay of a server's message is drawn: of the request that it
// answers, or of the notification.
func (w *wire) draw(frame []byte) uint64 {
	if len(frame) >= 8 {
		w.mu.Lock()
		defer w.mu.Unlock()
		if h, ok := w.asked[int32(binary.BigEndian.Uint32(frame[4:]))]; ok {
			return mix(h, 1)
		}
	}
	h := mix(w.key, says(frame, 20, 41), 1) // the event, and the beginning of the path
	w.received[h]++
	return mix(h, w.received[h])
}

// says returns a hash of the bytes of a message that are the same in every run of a seed. They
// exclude numbers that depend on earlier messages, ids, and the name of this process.
func says(frame []byte, from, to int) uint64 {
	h := fnv.New64a()
	_, _ = h.Write(frame[min(from, len(frame)):min(to, len(frame))])
	return h.Sum64()
}

// Close closes the client's end at once, and the server's after the last message.
func (w *wire) Close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return nil
	}
	w.closed = true
	close(w.over)
	w.send(nil, true)
	return w.Conn.SetReadDeadline(time.Unix(1, 0)) // wakes the reader
}

// SetDeadline sets the deadline of reads: writes do not block.
func (w *wire) SetDeadline(t time.Time) error { return w.SetReadDeadline(t) }

// SetWriteDeadline does nothing.
func (w *wire) SetWriteDeadline(time.Time) error { return nil }

// SetReadDeadline bounds the wait of Read.
func (w *wire) SetReadDeadline(t time.Time) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return os.ErrClosed
	}
	return w.Conn.SetReadDeadline(t)
}
