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
	g := c.groupLocked(opMultiRead, "lists", lists, size)
	g.split = c.answerLists
	return g
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
