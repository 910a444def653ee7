package ensemble

import (
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"testing"
	"time"
)

// Direction is the direction of bytes through a Proxy.
type Direction int

// Requests flow from the client to the server, replies (and notifications) back.
const (
	Requests Direction = iota
	Replies
)

func (d Direction) String() string { return [...]string{"request", "reply"}[d] }

// gate decides what happens to the bytes of one direction.
type gate int

const (
	pass gate = iota
	hold      // kept, in order, until the gate opens
	drop      // lost
)

// Proxy forwards TCP connections on a loopback address to one target and can break them in the ways
// that networks do. A change of mode is exact: when Freeze, Hold… or Drop… returns, no further byte
// passes. Modes apply to existing and future connections. All methods may be called concurrently.
//
// When the target cannot be reached the proxy accepts a connection and closes it at once.
type Proxy struct {
	addr   string
	target string
	claim  *claim

	// patience is how long a connection is kept while the target refuses it.
	patience time.Duration

	mu       sync.Mutex // guards the fields below
	changed  *sync.Cond // on mu: a gate, a link's or the proxy's end, a write that finished
	gates    [2]gate
	isFrozen bool
	delay    [2]time.Duration
	listener net.Listener // nil while refusing and after close
	links    map[*link]struct{}
	opening  func(io.Reader) ([]byte, error) // rewrites a connection's first message; nil: none
	closed   bool

	running sync.WaitGroup // the accept loop and every link
}

// NewProxy listens on a free loopback port and forwards to target (host:port). It ends with the
// test: every connection closed, every goroutine joined.
func NewProxy(tb testing.TB, target string) *Proxy {
	tb.Helper()
	p, err := openProxy(target, 0)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := p.close(); err != nil {
			tb.Error(err)
		}
	})
	return p
}

func openProxy(target string, patience time.Duration) (*Proxy, error) {
	c, err := claimPort()
	if err != nil {
		return nil, err
	}
	p := &Proxy{addr: c.addr(), target: target, claim: c, patience: patience,
		links: map[*link]struct{}{}}
	p.changed = sync.NewCond(&p.mu)
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.listen(); err != nil {
		return nil, errors.Join(err, c.release())
	}
	return p, nil
}

// listen needs p.mu.
func (p *Proxy) listen() error {
	l, err := net.Listen("tcp", p.addr)
	if err != nil {
		return fmt.Errorf("ensemble: proxy to %s: %w", p.target, err)
	}
	p.listener = l
	p.running.Go(func() { p.accept(l) }) // ends when l is closed, by Refuse or close
	return nil
}

func (p *Proxy) accept(l net.Listener) {
	for {
		client, err := l.Accept()
		if err != nil {
			return // closed: a loopback listener ends for no other reason
		}
		p.mu.Lock()
		if p.closed {
			p.mu.Unlock()
			discard(client)
			return
		}
		k := &link{p: p, ends: [2]net.Conn{Replies: client}, over: make(chan struct{})}
		p.links[k] = struct{}{}
		p.running.Go(k.run) // ends when either end closes, at Cut, or at close
		p.mu.Unlock()
	}
}

// Addr returns the host:port at which the proxy listens. It does not change.
func (p *Proxy) Addr() string { return p.addr }

// Cut closes every connection that is open now, on both sides, and returns when none of their bytes
// moves any more. Held and delayed bytes are lost. New connections are accepted, unless Refuse.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut(func(*link) bool { return true })
}

// cut ends the links that match and waits for them. It needs p.mu.
func (p *Proxy) cut(match func(*link) bool) {
	var ending []*link
	for k := range p.links {
		if match(k) {
			k.end()
			ending = append(ending, k)
		}
	}
	for _, k := range ending {
		for p.has(k) {
			p.changed.Wait()
		}
	}
}

// has needs p.mu.
func (p *Proxy) has(k *link) bool { _, ok := p.links[k]; return ok }

// Refuse stops or starts accepting new connections: while on, the kernel refuses a dial, as for a
// server that is down. Open connections stay open. It returns an error if the port was lost
// meanwhile.
func (p *Proxy) Refuse(on bool) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.closed:
		return fmt.Errorf("ensemble: proxy to %s is closed", p.target)
	case on && p.listener != nil:
		l := p.listener
		p.listener = nil
		return l.Close()
	case !on && p.listener == nil:
		return p.listen()
	}
	return nil
}

// Freeze holds everything in both directions, as a pulled cable does: no byte, no FIN and no reset
// passes. To the client, open and new connections look established. Thaw ends it.
func (p *Proxy) Freeze() { p.set(true, hold, Requests, Replies) }

// HoldRequests holds what clients send, until Thaw; replies still pass.
func (p *Proxy) HoldRequests() { p.set(false, hold, Requests) }

// HoldReplies holds what the server sends, until Thaw; requests still pass.
func (p *Proxy) HoldReplies() { p.set(false, hold, Replies) }

// DropRequests drops what clients send, until Thaw, which then closes the connections that lost
// something: a stream with a hole is useless.
func (p *Proxy) DropRequests() { p.set(false, drop, Requests) }

// DropReplies drops what the server sends, until Thaw, which then closes the connections that lost
// something.
func (p *Proxy) DropReplies() { p.set(false, drop, Replies) }

// Thaw ends Freeze, Hold… and Drop…: held bytes pass, in order.
func (p *Proxy) Thaw() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut(func(k *link) bool { return k.lossy })
	p.gates, p.isFrozen = [2]gate{}, false
	p.changed.Broadcast()
}

// Delay delays every byte by the given time per direction, as a longer wire would: order is kept,
// and throughput is not limited. Zero ends it; bytes already in transit keep their delay.
func (p *Proxy) Delay(requests, replies time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delay = [2]time.Duration{Requests: requests, Replies: replies}
}

// Open returns how many connections are open through the proxy now.
func (p *Proxy) Open() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.links)
}

// gated reports whether a gate is closed.
func (p *Proxy) gated() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.isFrozen || p.gates != [2]gate{}
}

func (p *Proxy) setOpening(f func(io.Reader) ([]byte, error)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.opening = f
}

// set closes gates and waits for the writes that had passed them; a write blocked by a full socket
// is interrupted by its deadline and keeps the rest of its bytes.
func (p *Proxy) set(freeze bool, g gate, dirs ...Direction) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.isFrozen = p.isFrozen || freeze
	for _, d := range dirs {
		p.gates[d] = g
	}
	p.changed.Broadcast()
	for k := range p.links {
		for _, d := range dirs {
			for p.has(k) && k.writing[d] {
				k.callBack(d)
				p.changed.Wait()
			}
		}
	}
}

func (p *Proxy) close() error {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return nil
	}
	p.closed = true
	var err error
	if p.listener != nil {
		err = p.listener.Close()
		p.listener = nil
	}
	p.cut(func(*link) bool { return true })
	p.mu.Unlock()
	p.running.Wait()
	return errors.Join(err, p.claim.release())
}
