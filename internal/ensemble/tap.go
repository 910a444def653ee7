package ensemble

import (
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// Frame is one ZooKeeper message that passed through a proxy.
type Frame struct {
	At   time.Time // when it was forwarded
	Conn int       // the connection's number, from 1
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

// Tap observes the ZooKeeper messages that pass through a Proxy: held and dropped ones are not counted, and a message
// is counted before its receiver can act on it. Pings and handshakes are counted separately and not logged; streams
// that are not ZooKeeper's (four-letter words, TLS) are ignored. All methods may be called concurrently.
type Tap struct {
	mu            sync.Mutex // guards the fields below
	requests      map[int32]int
	notifications int
	pings         int
	handshakes    int
	frames        []Frame
}

func newTap() *Tap { return &Tap{requests: map[int32]int{}} }

// Requests returns how many requests passed, by opcode, without pings and handshakes.
func (t *Tap) Requests() map[int32]int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return maps.Clone(t.requests)
}

// Count returns how many requests with one of the opcodes passed; without opcodes, how many requests in all.
func (t *Tap) Count(ops ...int32) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := 0
	for op, k := range t.requests {
		if len(ops) == 0 || slices.Contains(ops, op) {
			n += k
		}
	}
	return n
}

// Notifications returns how many watch events passed to clients.
func (t *Tap) Notifications() int { t.mu.Lock(); defer t.mu.Unlock(); return t.notifications }

// Pings returns how many pings clients sent.
func (t *Tap) Pings() int { t.mu.Lock(); defer t.mu.Unlock(); return t.pings }

// Handshakes returns how many connect requests clients sent, new sessions and resumed ones.
func (t *Tap) Handshakes() int { t.mu.Lock(); defer t.mu.Unlock(); return t.handshakes }

// Frames returns requests, replies and notifications in the order in which they passed: the first 65,536 since Reset;
// later ones are only counted.
func (t *Tap) Frames() []Frame { t.mu.Lock(); defer t.mu.Unlock(); return slices.Clone(t.frames) }

// Reset forgets everything counted and logged so far.
func (t *Tap) Reset() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.requests, t.notifications, t.pings, t.handshakes, t.frames = map[int32]int{}, 0, 0, 0, nil
}

// String lists the frames, one a line, for a test's message.
func (t *Tap) String() string {
	var b strings.Builder
	for _, f := range t.Frames() {
		fmt.Fprintln(&b, f)
	}
	return b.String()
}

// Await returns when done reports true for the tap, and fails the test with what passed when it does not within the
// given time.
func (t *Tap) Await(tb testing.TB, atMost time.Duration, what string, done func(*Tap) bool) {
	tb.Helper()
	Until(tb, atMost, what, func() error {
		if done(t) {
			return nil
		}
		return fmt.Errorf("so far passed:\n%s", t)
	})
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
	now := time.Now()
	c.tap.mu.Lock()
	defer c.tap.mu.Unlock()
	s := &c.streams[d]
	s.feed(b, func(frame []byte) {
		switch {
		case s.frames == 1 && d == Requests:
			c.tap.handshakes++
		case s.frames == 1: // the answer to it
		case d == Requests:
			c.request(now, frame)
		default:
			c.reply(now, frame)
		}
	})
}

// request needs the tap's mutex, as reply does.
func (c *conversation) request(now time.Time, b []byte) {
	if len(b) < 8 {
		return
	}
	f := Frame{At: now, Conn: c.id, Dir: Requests, Xid: int32(binary.BigEndian.Uint32(b)), Op: int32(binary.BigEndian.Uint32(b[4:]))}
	if f.Op == OpPing {
		c.tap.pings++
		return
	}
	switch {
	case hasPath(f.Op):
		f.Path = ustring(b[8:])
	case f.Op == OpSetWatches:
		f.Path = lastString(b[min(16, len(b)):]) // behind the zxid
	}
	c.asked[f.Xid] = f.Op
	c.tap.requests[f.Op]++
	c.tap.log(f)
}

func (c *conversation) reply(now time.Time, b []byte) {
	if len(b) < 16 {
		return
	}
	f := Frame{
		At: now, Conn: c.id, Dir: Replies, Xid: int32(binary.BigEndian.Uint32(b)),
		Zxid: int64(binary.BigEndian.Uint64(b[4:])), Err: int32(binary.BigEndian.Uint32(b[12:])),
	}
	switch f.Xid {
	case xidPing:
		return
	case xidNotification:
		c.tap.notifications++
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
