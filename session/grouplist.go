package session

import (
	"fmt"
	"math"
	"slices"
	"sync"
)

// A server spends about as much on one multiRead of a hundred lists as on one list. So the lists behind grouped writes, of
// different calls, that wait to be written next to each other leave as one multiRead. Each call has the result that its list
// would have had alone, but for the directory's Stat, which a multiRead does not tell: it is zero. (See Batch.List.)
//
// Whatever is wrong with the reply as a whole – too long, garbled, refused by a server that knows no multiRead – costs
// every call a second try, in which its list is a request of its own.

const maxListBytes = 16 << 10 // of the replies to lists that are read together, as far as earlier replies tell

// nextReadLocked takes the first request of c.queue and, if that is a list that may be read together with others, those
// behind it, as far as they would be written next.
func (c *conn) nextReadLocked() *request {
	first := c.queue.pop()
	first.expect = c.s.sizes.expect(first)
	if !first.mayJoin || first.expect > maxListBytes || c.unresumable || c.s.listsAlone.Load() {
		return first
	}
	write := int64(math.MaxInt64) // the next one; it is written before the reads that came after it
	if c.writes.head != nil {
		write = c.writes.head.seq
	}
	var others []*request
	size := len(first.frame)
	for r := c.queue.head; r != nil && r.mayJoin && r.seq < write && 1+len(others) < maxGroup && size+len(r.frame) <= maxGroupBytes; r = c.queue.head {
		reply := c.s.sizes.expect(r)
		if reply > maxListBytes {
			break
		}
		c.queue.remove(r)
		r.expect = reply
		others, size = append(others, r), size+len(r.frame)
	}
	if others == nil {
		return first
	}
	return c.groupLocked(opMultiRead, "lists", append([]*request{first}, others...), size)
}

// answerLists gives the lists of g, a multiRead, what header and body, the reply of size bytes, say of each. An error: the
// reply is no reply to it.
func (c *conn) answerLists(g *request, header replyHeader, body []byte, size int) error {
	d := decoder{b: body}
	results := slices.Collect(d.results(opMultiRead))
	switch {
	case size > maxFrame:
		c.listAlone(g)
	case undecided(header.code), header.code == codeThrottled: // a server in trouble: it says so to each
		for _, r := range g.members {
			c.answerList(r, header, nil)
		}
	case header.code != codeOK:
		c.s.listsAlone.Store(true)
		c.listAlone(g)
	case d.err != nil || len(results) != len(g.members):
		return fmt.Errorf("%w: reply to %d lists", ErrGarbled, len(g.members))
	default:
		for i, r := range g.members {
			var names []byte
			if header.code = results[i].code; results[i].op == opGetChildren {
				names = results[i].raw[multiHeader:]
			}
			c.answerList(r, header, names)
		}
	}
	return nil
}

// answerList ends the wait for r, the reply to which consists of names alone.
func (c *conn) answerList(r *request, header replyHeader, names []byte) {
	c.s.sizes.answered(r, len(names))
	if r.tooSoon() && c.readTooSoon(r, header) {
		return
	}
	r.answer(header, append(slices.Grow(slices.Clone(names), statLen), make([]byte, statLen)...))
}

// listAlone has the lists of g written again, each as a request of its own.
func (c *conn) listAlone(g *request) {
	for _, r := range g.members {
		r.mayJoin = false
	}
	c.requeue(g.members)
	poke(c.wake)
}

// replySizes knows how long the replies are whose length others choose: to lists, of a hundred thousand contenders or of
// names of 1 MB each, and to reads of data, of 1 MB. A burst of calls on such a lock would ask for that as often at once,
// and the reply to the next heartbeat would come behind all those bytes. So such a read counts in a conn's window with the
// length of the znode's last reply. Until a znode's first reply has arrived, its first read counts as 0 bytes and each
// further one as half the window, so that only a few are in flight.
type replySizes struct {
	mu    sync.Mutex // guards what follows; a leaf, inside conn.mu
	known map[replyKey]int
}

type replyKey struct {
	op   int32
	path string
}

const (
	repliesKept  = 4096            // znodes that are remembered
	unknownReply = windowBytes / 2 // what a further read counts until the first has been answered
)

// keyOf returns the key of r; false when its reply is short.
func (rs *replySizes) keyOf(r *request) (replyKey, bool) {
	return replyKey{r.op, r.path}, r.op == opGetChildren2 || r.op == opGetData
}

// expect returns what r counts for its reply, now that it is about to be sent.
func (rs *replySizes) expect(r *request) int {
	key, ok := rs.keyOf(r)
	if !ok {
		return 0
	}
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if size, known := rs.known[key]; known {
		return size
	}
	if rs.known == nil || len(rs.known) >= repliesKept {
		rs.known = map[replyKey]int{}
	}
	rs.known[key] = unknownReply
	return 0
}

// answered notes the length of the reply to r.
func (rs *replySizes) answered(r *request, size int) {
	key, ok := rs.keyOf(r)
	if !ok {
		return
	}
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if _, known := rs.known[key]; known {
		rs.known[key] = size
	}
}
