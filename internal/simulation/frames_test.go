package simulation_test

import (
	"encoding/binary"
	"net"
	"sync"

	"github.com/zklock/locker/zktest"
)

// request is the part of a request that the model knows.
type request struct {
	op    zktest.Op
	paths []string
	parts []request // of a multi or multiRead
}

// listener reads the frames that pass over a connection, in the order in which the client sends and receives them.
type listener struct {
	net.Conn
	c *conn

	mu      sync.Mutex // guards what follows
	sent    bool       // the handshake was sent
	waiting map[int32]request

	// Used only by the goroutine that reads.
	in      []byte
	greeted bool // the handshake was answered
}

func listen(to net.Conn, c *conn) *listener {
	return &listener{Conn: to, c: c, waiting: map[int32]request{}}
}

// Write sends whole frames: all of b or nothing.
func (l *listener) Write(b []byte) (int, error) {
	l.mu.Lock()
	var asked []request
	for rest := b; len(rest) >= 4; {
		n := 4 + int(binary.BigEndian.Uint32(rest))
		if n > len(rest) {
			break
		}
		if l.sent {
			asked = append(asked, l.ask(rest[4:n]))
		}
		l.sent = true
		rest = rest[n:]
	}
	l.mu.Unlock()
	n, err := l.Conn.Write(b)
	if err != nil {
		for _, r := range asked {
			l.c.answered(r) // the client need not look for a znode of a create that was not sent
		}
	}
	return n, err
}

func (l *listener) ask(frame []byte) request {
	d := &reader{b: frame}
	xid := d.int32()
	r := request{op: zktest.Op(d.int32())}
	switch r.op {
	case zktest.OpCreate, zktest.OpCreate2, zktest.OpDelete, zktest.OpGetChildren, zktest.OpGetChildren2, zktest.OpSync:
		r.paths = []string{d.string()}
	case zktest.OpExists:
		node := d.string()
		if d.byte() != 0 {
			r.paths = []string{node}
		}
	case zktest.OpMulti, zktest.OpMultiRead:
		r.parts = d.multi()
	case zktest.OpSetWatches:
		d.take(8)
		for range 3 {
			r.paths = append(r.paths, d.strings()...)
		}
	}
	l.waiting[xid] = r
	l.c.asked(r)
	return r
}

// Read passes each frame to receive before the client gets its last byte.
func (l *listener) Read(b []byte) (int, error) {
	n, err := l.Conn.Read(b)
	l.in = append(l.in, b[:n]...)
	for len(l.in) >= 4 {
		size := 4 + int(binary.BigEndian.Uint32(l.in))
		if size > len(l.in) {
			break
		}
		if l.greeted {
			l.receive(l.in[4:size])
		}
		l.greeted = true
		l.in = l.in[size:]
	}
	return n, err
}

const (
	notification = -1
	created      = 1
	deleted      = 2
)

func (l *listener) receive(frame []byte) {
	d := &reader{b: frame}
	xid := d.int32()
	zxid := d.int64()
	code := d.int32()
	if xid == notification {
		kind := d.int32()
		d.int32()
		switch node := d.string(); kind {
		case created:
			l.c.created(node, zxid)
		case deleted:
			l.c.deleted(node, zxid)
		}
		return
	}
	l.mu.Lock()
	r := l.waiting[xid]
	delete(l.waiting, xid)
	l.mu.Unlock()
	l.c.answered(r)
	lists := r.op == zktest.OpGetChildren || r.op == zktest.OpGetChildren2
	switch {
	case lists && code == int32(zktest.CodeNoNode):
		l.c.listed(r.paths[0], nil)
	case code != 0:
	case r.op == zktest.OpSync:
		l.c.synced(r.paths[0])
	case lists:
		l.c.listed(r.paths[0], d.strings())
	case r.op == zktest.OpMultiRead:
		for _, part := range r.parts {
			if result := d.int32(); result == int32(part.op) {
				d.take(5)
				l.c.listed(part.paths[0], d.strings())
			} else {
				d.take(9)
			}
		}
	case r.op == zktest.OpMulti:
		if paths, ok := d.made(len(r.parts)); ok {
			l.c.madeTogether(r.parts, paths)
		}
	case r.op == zktest.OpSetWatches:
		l.c.watchesSet(r.paths)
	}
}

// reader decodes a frame. Missing bytes count as zeros.
type reader struct{ b []byte }

func (d *reader) take(n int) []byte {
	if n < 0 || n > len(d.b) {
		n = len(d.b)
	}
	p := d.b[:n]
	d.b = d.b[n:]
	return p
}

func (d *reader) byte() byte {
	if p := d.take(1); len(p) == 1 {
		return p[0]
	}
	return 0
}

func (d *reader) int32() int32 {
	if p := d.take(4); len(p) == 4 {
		return int32(binary.BigEndian.Uint32(p))
	}
	return 0
}

func (d *reader) int64() int64 { return int64(d.int32())<<32 | int64(uint32(d.int32())) }

// multi decodes the operations of a multi: creates, deletes, checks, setData and lists.
func (d *reader) multi() (parts []request) {
	for {
		op, done := zktest.Op(d.int32()), d.byte() != 0
		d.int32()
		if done || len(d.b) == 0 {
			return parts
		}
		parts = append(parts, request{op: op, paths: []string{d.string()}})
		switch op {
		case zktest.OpCreate, zktest.OpCreateContainer:
			d.take(max(0, int(d.int32())))
			for range d.int32() {
				d.int32()
				d.take(int(d.int32()))
				d.take(int(d.int32()))
			}
		case zktest.OpSetData:
			d.take(max(0, int(d.int32())))
		}
		if op == zktest.OpGetChildren {
			d.byte() // no watch
		} else {
			d.int32() // flags, or version
		}
	}
}

// statLen is the length of a Stat in a reply.
const statLen = 68

// made decodes the reply to a multi of n operations: the path of each create, "" of the others. False: it was refused, or has
// results of other operations.
func (d *reader) made(n int) (paths []string, ok bool) {
	for range n {
		op := zktest.Op(d.int32())
		d.take(5)
		switch op {
		case zktest.OpCreate:
			paths = append(paths, d.string())
		case zktest.OpCreate2: // of a container
			paths = append(paths, d.string())
			d.take(statLen)
		case zktest.OpDelete, zktest.OpCheck:
			paths = append(paths, "")
		default:
			return nil, false
		}
	}
	return paths, true
}

func (d *reader) string() string { return string(d.take(int(d.int32()))) }

func (d *reader) strings() (all []string) {
	for n := d.int32(); n > 0 && len(d.b) > 0; n-- {
		all = append(all, d.string())
	}
	return all
}
