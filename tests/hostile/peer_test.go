package hostile_test

import (
	"encoding/binary"
	"io"
	"net"
	"sync"
	"time"

	"github.com/zklock/locker/zktest"
	"github.com/zklock/locker/zktest/fault"
)

// said is one frame of the server's on its way to the client, and the request that it answers.
type said struct {
	// the number of frames that the client has got before, on all connections, without handshakes
	n    int
	body []byte // after the length: xid, zxid, code, and the rest
	op   fault.Op
	path string // of the request; of the notification
}

// liar decides what the client gets instead of f: raw bytes, lengths included. over ends the
// connection after them; mute lets nothing more through on it.
type liar func(f said) (b []byte, over, mute bool)

// honest passes everything on.
func honest(f said) ([]byte, bool, bool) { return framed(f.body), false, false }

func framed(body []byte) []byte {
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(body))), body...)
}

// peer sits between a client and its server, and changes the server's messages.
type peer struct {
	srv *zktest.Server
	lie liar

	mu    sync.Mutex // guards the fields below
	n     int
	dials int
}

func (p *peer) dial(network, addr string, timeout time.Duration) (net.Conn, error) {
	conn, err := p.srv.Dial(network, addr, timeout)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	p.dials++
	p.mu.Unlock()
	return &between{Conn: conn, p: p, asked: map[int32]said{}, first: true}, nil
}

func (p *peer) connections() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.dials
}

// between is the client's end of one connection.
type between struct {
	net.Conn
	p *peer

	mu    sync.Mutex // guards asked
	asked map[int32]said

	// The reader's own.
	first bool // the next frame is the handshake's
	rest  []byte
	over  bool
	mute  bool
}

// Write records the requests.
func (b *between) Write(p []byte) (int, error) {
	b.mu.Lock()
	for rest := p; len(rest) >= 12; {
		n := min(4+int(binary.BigEndian.Uint32(rest)), len(rest))
		s := said{op: fault.Op(binary.BigEndian.Uint32(rest[8:]))}
		if n >= 16 {
			if end := 16 + int(int32(binary.BigEndian.Uint32(rest[12:]))); end > 16 && end <= n {
				s.path = string(rest[16:end])
			}
		}
		b.asked[int32(binary.BigEndian.Uint32(rest[4:]))] = s
		rest = rest[n:]
	}
	b.mu.Unlock()
	return b.Conn.Write(p)
}

// Read gives the client the liar's version of the server's next frame.
func (b *between) Read(out []byte) (int, error) {
	for len(b.rest) == 0 {
		if b.over {
			return 0, io.EOF
		}
		var head [4]byte
		if _, err := io.ReadFull(b.Conn, head[:]); err != nil {
			return 0, err
		}
		body := make([]byte, binary.BigEndian.Uint32(head[:]))
		if _, err := io.ReadFull(b.Conn, body); err != nil {
			return 0, err
		}
		if b.first {
			b.first, b.rest = false, framed(body)
			continue
		}
		b.rest = b.answer(body)
	}
	n := copy(out, b.rest)
	b.rest = b.rest[n:]
	return n, nil
}

// answer is what the client gets instead of a frame.
func (b *between) answer(body []byte) []byte {
	xid := int32(binary.BigEndian.Uint32(body))
	b.mu.Lock()
	f := b.asked[xid]
	b.mu.Unlock()
	f.body = body
	if xid == -1 && len(body) > 28 {
		f.op, f.path = fault.OpNotify, string(body[28:])
	}
	p := b.p
	p.mu.Lock()
	f.n = p.n
	p.n++
	p.mu.Unlock()
	if b.mute {
		return nil
	}
	bytes, over, mute := p.lie(f)
	b.over, b.mute = over, mute
	return bytes
}
