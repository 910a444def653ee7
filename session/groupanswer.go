package session

import (
	"fmt"
	"slices"
	"time"
)

// answerGroup splits the reply to a group, head and body, among its members. An error says that the reply does not fit the
// group.
func (c *conn) answerGroup(g *request, head replyHeader, body []byte) error {
	results, ok := splitResults(opMulti, body)
	ops := 0
	for _, r := range g.members {
		ops += len(r.member.touches)
	}
	whole := ok && len(results) == ops
	failed := slices.IndexFunc(results, func(r result) bool { return r.code != codeOK && r.code != codeInconsistent })
	switch {
	case whole && failed >= 0 && definite(results[failed].code):
		c.requeueOthers(g, head, results, failed)
	case whole && failed >= 0: // a code that does not prove that nothing was done: each member gets it, as if it had been alone
		head.code = results[failed].code
		c.answerAlike(g, head)
	case whole && head.code == codeOK && !slices.ContainsFunc(results, func(r result) bool { return r.op == opError }):
		c.answerMembers(g, head, results)
	case len(results) > 0 || head.code == codeOK:
		return fmt.Errorf("%w: reply to %d operations, and not those of this transaction", ErrGarbled, len(g.members))
	case definite(head.code) && head.code != codeThrottled:
		c.s.ungrouped.Store(true) // it does not say which operation it has refused
		c.requeue(g.members)
	default:
		c.answerAlike(g, head)
	}
	return nil
}

// answerAlike gives all members of a group the same answer.
func (c *conn) answerAlike(g *request, head replyHeader) {
	for _, r := range g.members {
		c.answerMember(r, head, nil)
	}
}

// result is the result of one operation of a multi or a multiRead.
type result struct {
	op   int32 // opError: see opResult
	code int32
	raw  []byte // as it came, with its header
}

// splitResults finds the results in the body of the reply to a request of, opMulti or opMultiRead. False: it is not whole.
func splitResults(of int32, body []byte) (results []result, ok bool) {
	for d := (decoder{b: body}); ; {
		from := d.b
		r, done := d.opResult(of)
		if done || d.err != nil {
			return results, d.err == nil
		}
		results = append(results, result{r.op, r.code, from[:len(from)-len(d.b)]})
	}
}

// answerMembers gives each member of a group that was carried out its own result.
func (c *conn) answerMembers(g *request, head replyHeader, results []result) {
	c.mu.Lock()
	c.caution = max(c.caution-1, 0)
	c.mu.Unlock()
	for _, r := range g.members {
		ops := len(r.member.touches)
		c.answerMember(r, head, replyOf(r, results[:ops]))
		results = results[ops:]
	}
}

// requeueOthers gives the member with the refused operation its result, and has the others sent again.
func (c *conn) requeueOthers(g *request, head replyHeader, results []result, failed int) {
	code := results[failed].code
	for i, r := range g.members {
		ops := len(r.member.touches)
		if failed >= ops {
			results, failed = results[ops:], failed-ops
			continue
		}
		if r.member.read != nil && code == codeNoNode {
			c.mu.Lock()
			c.caution = cautionLasts
			c.mu.Unlock()
		}
		c.requeue(slices.Delete(slices.Clone(g.members), i, i+1)) // first: the call that gets its answer now finds the others on their way
		if r.op != opMulti {
			head.code = code
		}
		c.answerMember(r, head, replyOf(r, results[:ops]))
		return
	}
}

// replyOf returns the body that the reply to r would have had if r had been sent alone.
func replyOf(r *request, results []result) []byte {
	if r.op != opMulti {
		return results[0].raw[multiHeader:]
	}
	n := 0
	for _, res := range results {
		n += len(res.raw)
	}
	own := results[0].raw[:n] // they came one behind the other
	return appendMultiHeader(append(make([]byte, 0, n+multiHeader), own...), -1, true)
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
	for w := c.parked.tail; w != nil; w = c.parked.tail { // the last first: each is inserted at the front
		c.unparkLocked(w)
		c.writes.insert(w)
		w.member.read.sent = time.Time{}
		c.queue.insert(w.member.read)
	}
}
