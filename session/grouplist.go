package session

import (
	"fmt"
	"math"
	"slices"
)

// A server spends about as much on one multiRead of a hundred lists as on one list. So the lists behind grouped writes, of
// different calls, that wait to be written next to each other leave as one multiRead. Each call has the result that its list
// would have had alone, but for the directory's Stat, which a multiRead does not tell: it is zero. (See Batch.List.)
//
// Whatever is wrong with the reply as a whole – too long, garbled, refused by a server that knows no multiRead – costs
// every call a second try, in which its list is a request of its own.

// maxListBytes bounds the replies to lists that are read together with others, as far as earlier replies tell.
const maxListBytes = 16 << 10

// nextReadLocked takes the first request of c.queue and, if that is a list that may be read together with others, those
// behind it, as far as they would be written next.
func (c *conn) nextReadLocked() *request {
	first := c.queue.pop()
	first.expect = c.s.sizes.expect(first)
	if !first.together || first.expect > maxListBytes || c.unresumable || c.s.listsAlone.Load() {
		return first
	}
	write := int64(math.MaxInt64) // the next one; it is written before the reads that came after it
	if c.writes.head != nil {
		write = c.writes.head.seq
	}
	lists, expect, size := []*request{first}, first.expect, len(first.frame)
	for r := c.queue.head; r != nil && r.together && r.seq < write && len(lists) < maxGroup && size+len(r.frame) <= maxGroupBytes; r = c.queue.head {
		reply := c.s.sizes.expect(r)
		if reply > maxListBytes {
			break
		}
		c.queue.remove(r)
		r.expect = reply
		lists, expect, size = append(lists, r), expect+reply, size+len(r.frame)
	}
	if len(lists) == 1 {
		return first
	}
	b := appendHeader(make([]byte, 0, size+multiHeader), opMultiRead)
	for _, r := range lists {
		b = append(appendMultiHeader(b, opGetChildren, false), r.frame[opFrame:]...)
	}
	g := &request{op: opMultiRead, name: "lists", path: first.path, repeatable: true, members: lists, expect: expect,
		frame: appendMultiHeader(b, -1, true)}
	c.numberLocked([]*request{g})
	return g
}

// answerLists gives the lists of g, a multiRead, what head and body, the reply of size bytes, say of each. An error: the
// reply is no reply to it.
func (c *conn) answerLists(g *request, head replyHeader, body []byte, size int) error {
	results, ok := splitResults(opMultiRead, body)
	switch {
	case size > maxFrame:
		c.listAlone(g)
	case undecided(head.code), head.code == codeThrottled: // a server in trouble: it says so to each
		for _, r := range g.members {
			c.answerList(r, head, nil)
		}
	case head.code != codeOK:
		c.s.listsAlone.Store(true)
		c.listAlone(g)
	case !ok || len(results) != len(g.members):
		return fmt.Errorf("%w: reply to %d lists", ErrGarbled, len(g.members))
	default:
		for i, r := range g.members {
			var names []byte
			if head.code = results[i].code; results[i].op == opGetChildren {
				names = results[i].raw[multiHeader:]
			}
			c.answerList(r, head, names)
		}
	}
	return nil
}

// answerList ends the wait for r, the reply to which consists of names alone.
func (c *conn) answerList(r *request, head replyHeader, names []byte) {
	c.s.sizes.answered(r, len(names))
	if r.tooSoon() && c.readTooSoon(r, head) {
		return
	}
	r.head, r.reply = head, append(slices.Grow(slices.Clone(names), statLen), make([]byte, statLen)...)
	close(r.done)
}

// listAlone has the lists of g written again, each as a request of its own.
func (c *conn) listAlone(g *request) {
	for _, r := range g.members {
		r.together = false
	}
	c.putBack(g)
	poke(c.wake)
}
