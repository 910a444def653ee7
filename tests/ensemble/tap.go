package ensemble

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"sync"
)

// Frame is one ZooKeeper message that passed through a proxy.
type Frame struct {
	Conn int // the connection's number, from 1
	Dir  Direction
	Xid  int32  // -1: notification, -4: auth, -8: set watches
	Op   int32  // the request's opcode; of a reply, that of the request it answers; 0 of a notification
	Path string // of a request with a single path, and of a notification; of setWatches the last znode watched
	Err  int32  // of a reply: ZooKeeper's error code, 0 for none
	Zxid int64  // of a reply
}

// String returns a line for a test's message, for example "#1 request create /lock/x xid=3".
func (f Frame) String() string {
	s := fmt.Sprintf("#%d %s %s", f.Conn, f.Dir, OpName(f.Op))
	if f.Xid == xidNotification {
		s = fmt.Sprintf("#%d notification", f.Conn)
	}
	if f.Path != "" {
		s += " " + f.Path
	}
	s += fmt.Sprintf(" xid=%d", f.Xid)
	if f.Err != 0 {
		s += fmt.Sprintf(" err=%d", f.Err)
	}
	return s
}

// mostFrames bounds the log; a frame takes about 100 bytes and its path.
const mostFrames = 1 << 16

// Tap observes the ZooKeeper messages that pass through a Proxy: held and dropped ones are not logged, and a message
// is logged before its receiver can act on it. Pings and handshakes are not logged; streams that are not ZooKeeper's
// (four-letter words, TLS) are ignored. All methods may be called concurrently.
type Tap struct {
	mu     sync.Mutex // guards frames
	frames []Frame
}

// Frames returns requests, replies and notifications in the order in which they passed: the first 65,536 since Reset.
func (t *Tap) Frames() []Frame { t.mu.Lock(); defer t.mu.Unlock(); return slices.Clone(t.frames) }

// Reset forgets everything logged so far.
func (t *Tap) Reset() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.frames = nil
}

// String lists the frames, one a line, for a test's message.
func (t *Tap) String() string {
	var b strings.Builder
	for _, f := range t.Frames() {
		fmt.Fprintln(&b, f)
	}
	return b.String()
}

// conversation follows one connection. The pump of each direction calls pass; the tap's mutex guards what both use.
type conversation struct {
	tap     *Tap
	id      int
	streams [2]stream
	asked   map[int32]int32 // opcode by xid of requests without a reply yet
}

func (t *Tap) conversation(id int) *conversation {
	return &conversation{tap: t, id: id, asked: map[int32]int32{}}
}

func (c *conversation) pass(d Direction, b []byte) {
	c.tap.mu.Lock()
	defer c.tap.mu.Unlock()
	s := &c.streams[d]
	s.feed(b, func(frame []byte) {
		switch {
		case s.frames == 1: // the handshake, or the answer to it
		case d == Requests:
			c.request(frame)
		default:
			c.reply(frame)
		}
	})
}

// request needs the tap's mutex, as reply does.
func (c *conversation) request(b []byte) {
	if len(b) < 8 {
		return
	}
	f := Frame{Conn: c.id, Dir: Requests, Xid: int32(binary.BigEndian.Uint32(b)), Op: int32(binary.BigEndian.Uint32(b[4:]))}
	if f.Op == OpPing {
		return
	}
	switch {
	case hasPath(f.Op):
		f.Path = ustring(b[8:])
	case f.Op == OpSetWatches:
		f.Path = lastString(b[min(16, len(b)):]) // behind the zxid
	}
	c.asked[f.Xid] = f.Op
	c.tap.log(f)
}

func (c *conversation) reply(b []byte) {
	if len(b) < 16 {
		return
	}
	f := Frame{
		Conn: c.id, Dir: Replies, Xid: int32(binary.BigEndian.Uint32(b)),
		Zxid: int64(binary.BigEndian.Uint64(b[4:])), Err: int32(binary.BigEndian.Uint32(b[12:])),
	}
	switch f.Xid {
	case xidPing:
		return
	case xidNotification:
		if len(b) >= 24 { // event type, state, path
			f.Path = ustring(b[24:])
		}
	default:
		f.Op = c.asked[f.Xid]
		delete(c.asked, f.Xid)
	}
	c.tap.log(f)
}

func (t *Tap) log(f Frame) {
	if len(t.frames) < mostFrames {
		t.frames = append(t.frames, f)
	}
}
