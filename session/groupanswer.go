package session

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

// answerGroup splits the reply to a group, head and body, among its members. An error says that the reply does not fit the
// group; the members have failed by then.
func (c *conn) answerGroup(g *request, head replyHeader, body []byte) error {
	results, ok := splitResults(body)
	ops := 0
	for _, r := range g.members {
		ops += r.member.ops
	}
	whole := ok && len(results) == ops
	failed, code := refused(results)
	switch {
	case whole && failed >= 0 && definite(code):
		c.requeueOthers(g, head, body, results, failed)
	case whole && failed >= 0: // a code that does not prove that nothing was done: each member gets it, as if it had been alone
		head.code = code
		c.answerAlike(g, head)
	case whole && head.code == codeOK && !slices.ContainsFunc(results, func(r result) bool { return r.failed }):
		c.answerMembers(g, head, body, results)
	case len(results) > 0 || head.code == codeOK:
		return c.garbledGroup(g)
	case definite(head.code) && head.code != codeThrottled:
		c.s.ungrouped.Store(true) // it does not say which operation it has refused
		c.requeue(g.members)
	default:
		c.answerAlike(g, head)
	}
	return nil
}

// answerAlike tells all members of a group the same.
func (c *conn) answerAlike(g *request, head replyHeader) {
	for _, r := range g.members {
		c.answerMember(r, head, nil)
	}
}

// result is the result of one operation of a multi, as it came.
type result struct {
	code     int32
	from, to int // of the body
	failed   bool
}

// splitResults finds the results in the body of a multi's reply. False: it is not whole.
func splitResults(body []byte) (results []result, ok bool) {
	d := decoder{b: body}
	for from := 0; ; from = len(body) - len(d.b) {
		r, done := d.opResult()
		if done || d.err != nil {
			return results, d.err == nil
		}
		results = append(results, result{code: r.code, from: from, to: len(body) - len(d.b), failed: r.op == opError})
	}
}

// refused returns the operation for which a multi was refused, and the code; −1 when none was.
func refused(results []result) (op int, code int32) {
	for i, r := range results {
		if r.code != codeOK && r.code != codeInconsistent {
			return i, r.code
		}
	}
	return -1, codeOK
}

// answerMembers tells each member of a group that was carried out what came of it.
func (c *conn) answerMembers(g *request, head replyHeader, body []byte, results []result) {
	c.mu.Lock()
	c.caution = max(c.caution-1, 0)
	c.mu.Unlock()
	next := 0
	for _, r := range g.members {
		mine := results[next : next+r.member.ops]
		next += r.member.ops
		c.answerMember(r, head, replyOf(r, body, mine))
	}
}

// requeueOthers tells the member with the refused operation its result, and has the others sent again.
func (c *conn) requeueOthers(g *request, head replyHeader, body []byte, results []result, failed int) {
	start := 0
	for i, r := range g.members {
		mine := results[start : start+r.member.ops]
		if failed >= start+r.member.ops {
			start += r.member.ops
			continue
		}
		if r.member.read != nil && mine[failed-start].code == codeNoNode {
			c.mu.Lock()
			c.caution = cautionLasts
			c.mu.Unlock()
		}
		c.requeue(slices.Delete(slices.Clone(g.members), i, i+1)) // first: the caller that is told now finds the others on their way
		if r.op == opMulti {
			c.answerMember(r, head, replyOf(r, body, mine))
		} else {
			head.code = mine[0].code
			c.answerMember(r, head, nil)
		}
		return
	}
}

// replyOf returns the body that the reply to r would have had if r had been sent alone.
func replyOf(r *request, body []byte, results []result) []byte {
	own := body[results[0].from:results[len(results)-1].to]
	if r.op == opMulti {
		return appendMultiHeader(slices.Clone(own), -1, true)
	}
	return own[multiHeader:]
}

// answerMember ends the wait for r.
func (c *conn) answerMember(r *request, head replyHeader, reply []byte) {
	r.member.open = false
	r.head, r.head.xid, r.reply = head, r.xid, reply
	close(r.done)
}

// requeue has the members of a group sent again of which nothing was done.
func (c *conn) requeue(members []*request) {
	var lost []*request
	c.mu.Lock()
	for _, r := range members {
		m := r.member
		if r.abandoned || c.state == connFailed {
			lost = append(lost, r)
			continue
		}
		r.sent, m.open = time.Time{}, true
		m.refusals++
		if m.parked = m.read != nil && !m.read.sent.IsZero(); m.parked {
			m.heard = false
			c.parked.push(r)
			c.unread++
		} else {
			c.writes.insert(r)
		}
	}
	c.mu.Unlock()
	for _, r := range lost {
		r.fail(ErrNotSent)
	}
	poke(c.wake)
}

var errGroup = errors.New("the reply to a transaction, and not to this one")

// garbledGroup tells the members of a group that its reply can't be read.
func (c *conn) garbledGroup(g *request) error {
	err := fmt.Errorf("%w: reply to %d operations: %w", ErrGarbled, len(g.members), errGroup)
	for _, r := range g.members {
		r.unreadable = true
		r.fail(fmt.Errorf("%s: %w", c.server, err))
	}
	return err
}

// tooSoon reports whether r is a read that was carried out before a write of its batch that it has to see.
func (r *request) tooSoon() bool {
	return slices.ContainsFunc(r.after, func(w *request) bool { return w.member.open })
}

// readTooSoon deals with the reply to a read that was carried out too soon. again: the read is sent again, behind its write;
// else its reply answers the write too.
func (c *conn) readTooSoon(r *request, head replyHeader) (again bool) {
	w := r.after[0]
	c.mu.Lock()
	if !w.member.parked || c.state == connFailed { // when it has failed, fail has taken the write
		c.mu.Unlock()
		c.putBack(r)
		poke(c.wake)
		return true
	}
	refused := w.op == opCreate && head.code == codeNoNode && parent(w.path) == r.path
	if refused {
		c.unparkLocked(w)
		w.sent = r.sent // it is in no queue any more; marked as sent, so that abandon does not try to take it out of one
	} else {
		w.member.heard = true
		c.unread--
	}
	c.resumeParkedLocked()
	c.mu.Unlock()
	poke(c.wake)
	if refused {
		c.answerMember(w, head, nil)
	}
	return !refused
}

// unparkLocked takes w from those that are parked.
func (c *conn) unparkLocked(w *request) {
	c.parked.remove(w)
	w.member.parked = false
	if !w.member.heard {
		c.unread--
	}
}

// resumeParkedLocked has the parked writes sent again, each with its read behind it, when all these reads have been answered:
// all at once, so that they share a group.
func (c *conn) resumeParkedLocked() {
	if c.unread > 0 {
		return
	}
	for w := c.parked.head; w != nil; w = c.parked.head {
		c.unparkLocked(w)
		c.writes.insert(w)
		w.member.read.sent = time.Time{}
		c.queue.pushFront(w.member.read)
	}
}
