package session

import (
	"fmt"
	"slices"
	"sync"
)

// A multiRead of a hundred lists costs a server about as much as one list. So lists behind grouped writes of different calls
// that are next to each other in the queue are sent as one multiRead. Each call gets the result that its list would have had
// alone, except the directory's Stat, which is zero: a multiRead does not return it. (See Batch.List.)
//
// If the reply as a whole is too long or garbled, each list is sent again as a request of its own.

const maxListBytes = 16 << 10 // of the expected reply to a list that is read together with others

// gatherListsLocked adds to first, a list, those that would be written next.
func (c *conn) gatherListsLocked(first *request) *request {
	if first.expect > maxListBytes {
		return first
	}
	lists, size := []*request{first}, len(first.frame)
	for r := c.queue.head; r != nil && r.shares > 0 && r.op == opGetChildren2 && len(lists) < maxGroup && size+len(r.frame) <= maxGroupBytes; r = c.queue.head {
		reply := c.s.sizes.expect(r)
		if reply > maxListBytes {
			break
		}
		c.queue.remove(r)
		r.expect = reply
		lists, size = append(lists, r), size+len(r.frame)
	}
	if len(lists) == 1 {
		return first
	}
	return c.groupLocked(opMultiRead, "lists", lists, size)
}

// answerLists splits the reply of size bytes to g, a multiRead, among its lists. An error: the reply does not fit g.
func (c *conn) answerLists(g *request, header replyHeader, body []byte, size int) error {
	d := decoder{b: body}
	results := slices.Collect(d.results(opMultiRead))
	switch {
	case size > maxFrame:
		sendAgain(g.members, errTogether)
	case header.code != codeOK: // a server in trouble, for a list that it refuses has a result: each list gets the code
		for _, r := range g.members {
			c.answerList(r, header, nil)
		}
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

// answerList answers r, a list, by its names alone.
func (c *conn) answerList(r *request, header replyHeader, names []byte) {
	c.s.sizes.answered(r, len(names))
	r.answer(header, append(slices.Grow(slices.Clone(names), statLen), make([]byte, statLen)...))
}

// replySizes knows the lengths of replies that other clients determine: of lists, of a hundred thousand contenders or of
// names of 1 MB each, and of data, up to 1 MB. A burst of calls on such a lock would ask for many such replies at once, and
// the next heartbeat's reply would come behind all of them. So a list or read counts in a conn's window with the length of
// that znode's last reply. Until the first reply has come, the first read counts as 0 bytes and each further one as half the
// window, so that only a few are in flight.
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
	unknownReply = windowBytes / 2 // for a further read, until the first has been answered
)

// keyOf returns the key of r, or false if its reply is short.
func (rs *replySizes) keyOf(r *request) (replyKey, bool) {
	return replyKey{r.op, r.path}, r.op == opGetChildren2 || r.op == opGetData
}

// expect returns how many bytes the reply to r, which is about to be sent, counts.
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
