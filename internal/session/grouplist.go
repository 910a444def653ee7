package session

import (
	"fmt"
	"slices"
)

// A multiRead of a hundred lists costs a server about as much as one list. So lists behind grouped writes of different calls
// that are next to each other in the queue are sent as one multiRead. Each call gets the result that its list would have had
// alone, except the directory's Stat, which is zero: a multiRead does not return it. (See Batch.List.)
//
// If the reply as a whole is too long or garbled, each list is sent again as a request of its own.

// gatherListsLocked adds to first, a list, those that would be written next.
func (c *conn) gatherListsLocked(first *request) *request {
	if first.long {
		return first
	}
	lists, size := []*request{first}, len(first.frame)
	for r := c.queue.head; r != nil && r.shares > 0 && r.op == opGetChildren2 && len(lists) < maxGroup && size+len(r.frame) <= maxGroupBytes; r = c.queue.head {
		if size, known := c.replies[replyKey{r.op, r.path}]; known && (size == unanswered || size > longReply) {
			break
		}
		c.queue.remove(r)
		c.expectLocked(r)
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
	c.mu.Lock()
	c.answeredLocked(r, len(names))
	c.mu.Unlock()
	r.answer(header, append(slices.Grow(slices.Clone(names), statLen), make([]byte, statLen)...))
}

// longReply is the length from which the replies to lists and reads are asked for one at a time.
const longReply = 16 << 10

// Other clients determine how long the reply to a list or read is: of a hundred thousand contenders, of names of 1 MB each, of
// data. A burst of calls on such a lock would ask for many such replies at once, and the next heartbeat's reply would come
// behind all of them. So a conn has one list or read in flight whose last reply was longer than longReply, and of a path
// that has not been read on this conn, one until its reply has come.

const (
	repliesKept = 4096 // paths that a conn remembers
	unanswered  = -1   // the first reply has not come
)

type replyKey struct {
	op   int32
	path string
}

// keyOf returns the key of r in conn.replies, or false if its reply is short.
func keyOf(r *request) (replyKey, bool) {
	return replyKey{r.op, r.path}, r.op == opGetChildren2 || r.op == opGetData
}

// mustWaitLocked reports whether r, which is about to be sent, has to wait for the reply to a list or read in flight.
func (c *conn) mustWaitLocked(r *request) bool {
	key, ok := keyOf(r)
	if !ok {
		return false
	}
	size, known := c.replies[key]
	return known && (size == unanswered || size > longReply && c.pending.long > 0)
}

// expectLocked notes that r is about to be sent.
func (c *conn) expectLocked(r *request) {
	key, ok := keyOf(r)
	if !ok {
		return
	}
	size, known := c.replies[key]
	if r.long = size > longReply; known {
		return
	}
	if len(c.replies) >= repliesKept {
		clear(c.replies)
	}
	c.replies[key] = unanswered
}

// answeredLocked notes that the reply to r has come. After a multiRead's the lists are as if they had not been read, until
// answerList.
func (c *conn) answeredLocked(r *request, size int) {
	if key, ok := keyOf(r); ok {
		c.replies[key] = size
	}
	if r.op == opMultiRead {
		for _, m := range r.members {
			delete(c.replies, replyKey{m.op, m.path})
		}
	}
}
