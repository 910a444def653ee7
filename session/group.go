package session

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/zklock/locker/internal/trusted"
)

// A transaction costs an ensemble about the same whether it makes one znode or a hundred. So the creates, deletes and small
// transactions of locks that wait to be written at the same moment are sent as one transaction, a group; its members are
// writes of different calls. No write is delayed in order to be grouped.
//
// A call can't tell whether its write was a member of a group:
//
//   - Each member has the result that it would have had alone. A server that refuses a group names one operation as the
//     reason. The call of that member gets the refusal; the other members had no effect, and are sent again without it. A
//     member to which that has happened maxRefusals times is sent alone.
//   - The refusal would have been the same without the group, because its members are independent: no two touch the same
//     znode, or a znode and its parent.
//   - All znodes of a transaction have one czxid. So no two members make a contender in the same directory: they would be
//     equal in the order, and would have equal tokens.
//   - A call's read sees its write: if the write is sent again, so is the read (member.open). Exception: the list behind a
//     create of a refused group answers that there is no such directory. The create's caller gets that answer at once: a
//     thousand locks that are used for the first time need not be refused one by one.
//   - When the reply is lost, each call learns that the outcome of its own write is unknown.
//   - A call that gives up takes its member away, if that has not been written, or has to be written again.
//
// The program's own writes are never members.

const (
	maxGroup        = 100      // operations in a group
	maxGroupBytes   = 32 << 10 // of its members' frames
	maxRefusals     = 3        // refusals of a member's groups because of another member; then it is sent alone
	quarantineLasts = 16       // groups in which untried creates keep apart after a refusal for a missing directory
)

type member struct {
	// The request is to be sent again, and has not been answered since. Used by the conn's reader, and by numberLocked, which
	// resets it when deliver has seen the whole batch answered by the last conn.
	open bool

	read *request // the only read of the batch, if this is the only write; it does not change

	// Guarded by conn.mu.
	refusals     int  // of its groups, because of other members
	parked       bool // waits until the reads of all parked writes are answered; then all are sent again, together
	readAnswered bool // while parked: read has been answered, and will be sent again behind the write
}

// Grouped is Batch for the packages of this module: the creates, deletes and multis of the batch may share a transaction
// with those of other such batches. They must come before the batch's reads, which see them, and are carried out in any
// order among themselves.
func (s *Session) Grouped(trusted.Caller) *Batch { return newBatch(s, true) }

// claims are the znodes that the members of a group are about.
type (
	claims map[string]claim
	claim  uint8
)

const (
	onIt    claim = 1 << iota // an operation touches this znode
	belowIt                   // an operation touches a child of it
	entered                   // a contender is made below it
)

// free reports whether a member with these touches is independent of all members added.
func (cs claims) free(touches []touch) bool {
	for _, t := range touches {
		dir := cs[parent(t.path)]
		if cs[t.path]&(onIt|belowIt) != 0 || dir&onIt != 0 || t.contender() && dir&entered != 0 {
			return false
		}
	}
	return true
}

func (cs claims) add(touches []touch) {
	for _, t := range touches {
		cs[t.path] |= onIt
		below := belowIt
		if t.contender() {
			below |= entered
		}
		cs[parent(t.path)] |= below
	}
}

// parent of the root is the root.
func parent(path string) string { return path[:max(strings.LastIndexByte(path, '/'), 1)] }

// untriedLocked reports whether m is the create of a batch of one create and one list, and has not been refused: its directory may
// be missing. While c.quarantine lasts, such creates are grouped only with each other, so that a refusal spares other
// writes.
func (m *member) untriedLocked() bool { return m.read != nil && m.refusals == 0 }

// gatherLocked takes the first write of c.writes, and with it the independent ones behind it, up to the size of a group. A
// write that stays behind is overtaken by none that depends on it.
func (c *conn) gatherLocked() *request {
	first := c.writes.pop()
	if c.writes.n == 0 || first.member.refusals >= maxRefusals || c.s.ungrouped.Load() {
		return first
	}
	clear(c.claims)
	c.claims.add(first.touches)
	members, ops, size := []*request{first}, len(first.touches), len(first.frame)
	limit := min(maxGroupBytes, c.s.cfg.PacketLimit)
	looked := 0
	for r := c.writes.head; r != nil && ops < maxGroup && looked < 2*maxGroup; looked++ {
		next, m := r.next, r.member
		alike := c.quarantine == 0 || m.untriedLocked() == first.member.untriedLocked()
		if alike && m.refusals < maxRefusals && ops+len(r.touches) <= maxGroup && size+len(r.frame) <= limit && c.claims.free(r.touches) {
			c.writes.remove(r)
			members, ops, size = append(members, r), ops+len(r.touches), size+len(r.frame)
		}
		c.claims.add(r.touches)
		r = next
	}
	if len(members) == 1 {
		return first
	}
	return c.groupLocked(opMulti, "group", members, size)
}

const (
	opFrame     = 12 // offset of a request's body, behind length, xid and opcode
	multiHeader = 9  // bytes of the header before each operation or result of a multi, and behind the last
)

// groupLocked returns the request that carries out members, an opMulti or opMultiRead; size is the length of their frames.
func (c *conn) groupLocked(op int32, name string, members []*request, size int) *request {
	g := &request{op: op, name: name, path: members[0].path, repeatable: op == opMultiRead, members: members}
	b := appendHeader(make([]byte, 0, size+multiHeader), op)
	for _, r := range members {
		g.expect += r.expect
		switch r.op {
		case opMulti:
			b = append(b, r.frame[opFrame:len(r.frame)-multiHeader]...)
		case opGetChildren2:
			b = append(appendMultiHeader(b, opGetChildren, false), r.frame[opFrame:]...)
		default:
			b = append(appendMultiHeader(b, r.op, false), r.frame[opFrame:]...)
		}
	}
	g.frame = appendMultiHeader(b, -1, true)
	c.numberLocked([]*request{g})
	return g
}

// answerGroup splits the reply to a group among its members. An error: the reply does not fit the group.
func (c *conn) answerGroup(g *request, header replyHeader, body []byte) error {
	d := decoder{b: body}
	results := slices.Collect(d.results(opMulti))
	ops := 0
	for _, r := range g.members {
		ops += len(r.touches)
	}
	whole := d.err == nil && len(results) == ops
	failed := slices.IndexFunc(results, func(r result) bool { return r.code != codeOK && r.code != codeInconsistent })
	switch {
	case whole && failed >= 0 && definite(results[failed].code):
		c.requeueOthers(g, header, results, failed)
	case whole && failed >= 0: // the write may have been done: each member gets the code, as if sent alone
		header.code = results[failed].code
		c.answerAlike(g, header)
	case whole && header.code == codeOK && !slices.ContainsFunc(results, func(r result) bool { return r.op == opError }):
		c.answerMembers(g, header, results)
	case len(results) > 0 || header.code == codeOK:
		return fmt.Errorf("%w: reply to %d operations, and not those of this transaction", ErrGarbled, len(g.members))
	case definite(header.code) && header.code != codeThrottled:
		c.s.ungrouped.Store(true) // this server does not say which operation it refused
		c.requeue(g.members)
		poke(c.wake)
	default:
		c.answerAlike(g, header)
	}
	return nil
}

func (c *conn) answerAlike(g *request, header replyHeader) {
	for _, r := range g.members {
		r.answer(header, nil)
	}
}

func (c *conn) answerMembers(g *request, header replyHeader, results []result) {
	c.mu.Lock()
	c.quarantine = max(c.quarantine-1, 0)
	c.mu.Unlock()
	for _, r := range g.members {
		ops := len(r.touches)
		r.answer(header, replyOf(r, results[:ops]))
		results = results[ops:]
	}
}

// requeueOthers gives the refused member its result, and sends the others again.
func (c *conn) requeueOthers(g *request, header replyHeader, results []result, failed int) {
	code := results[failed].code
	for i, r := range g.members {
		ops := len(r.touches)
		if failed >= ops {
			results, failed = results[ops:], failed-ops
			continue
		}
		if r.member.read != nil && code == codeNoNode {
			c.mu.Lock()
			c.quarantine = quarantineLasts
			c.mu.Unlock()
		}
		c.requeue(slices.Delete(slices.Clone(g.members), i, i+1)) // before the refused call wakes
		poke(c.wake)
		if r.op != opMulti {
			header.code = code
		}
		r.answer(header, replyOf(r, results[:ops]))
		return
	}
}

// replyOf returns the reply body that r would have had alone.
func replyOf(r *request, results []result) []byte {
	if r.op != opMulti {
		return results[0].raw[multiHeader:]
	}
	n := 0
	for _, res := range results {
		n += len(res.raw)
	}
	own := results[0].raw[:n] // the results are adjacent
	return appendMultiHeader(append(make([]byte, 0, n+multiHeader), own...), -1, true)
}

// requeue queues requests again, as if they had not been sent: they had no effect, or the reply does not count. If the conn
// has failed, or no call waits for a request any more, that request fails with ErrNotSent.
func (c *conn) requeue(requests []*request) {
	var lost []*request
	c.mu.Lock()
	for _, r := range slices.Backward(requests) { // the last first: each is inserted at the front
		if r.abandoned || c.state == connFailed {
			lost = append(lost, r)
			continue
		}
		r.sent = time.Time{}
		if m := r.member; m != nil {
			m.open, m.readAnswered = true, false
			m.refusals++
			m.parked = m.read != nil && !m.read.sent.IsZero()
		}
		c.queueOf(r).insert(r)
	}
	c.mu.Unlock()
	for _, r := range lost {
		r.fail(ErrNotSent)
	}
}

// tooSoon reports whether r is a read that was carried out before a write of its batch that it has to see.
func (r *request) tooSoon() bool {
	return slices.ContainsFunc(r.after, func(w *request) bool { return w.member.open })
}

// readTooSoon handles the reply to a read for which tooSoon is true. again: the read is sent again, behind its write; else
// its reply answers the write too.
func (c *conn) readTooSoon(r *request, header replyHeader) (again bool) {
	w := r.after[0]
	c.mu.Lock()
	if !w.member.parked || c.state == connFailed { // when it has failed, fail has taken the write
		c.mu.Unlock()
		c.requeue([]*request{r})
		poke(c.wake)
		return true
	}
	refused := w.op == opCreate && header.code == codeNoNode && parent(w.path) == r.path
	if refused {
		c.unqueueLocked(w)
		w.sent = r.sent // marked as sent, so that abandon does not look for it in a queue
	} else {
		w.member.readAnswered = true
	}
	c.resumeParkedLocked()
	c.mu.Unlock()
	if refused {
		w.answer(header, nil)
	}
	return !refused
}

// resumeParkedLocked queues the parked writes again, each with its read behind it, when all these reads have been answered:
// all at once, so that they share a group.
func (c *conn) resumeParkedLocked() {
	for w := c.parked.tail; w != nil; w = w.prev { // the last first: mostly its read is the last to be answered
		if !w.member.readAnswered {
			return
		}
	}
	for w := c.parked.tail; w != nil; w = c.parked.tail { // the last first: each is inserted at the front
		c.unqueueLocked(w)
		c.writes.insert(w)
		w.member.read.sent = time.Time{}
		c.queue.insert(w.member.read)
	}
	poke(c.wake)
}
