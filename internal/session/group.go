package session

import (
	"fmt"
	"slices"
	"strings"
)

// A transaction costs an ensemble about the same whether it makes one znode or a hundred. So the creates, deletes and small
// transactions of locks that wait to be written at the same moment are sent as one transaction, a group; its members are
// writes of different calls. No write is delayed in order to be grouped.
//
// A call can't tell whether its write was a member of a group:
//
//   - Each member has the result that it would have had alone. A server that refuses a group names one operation as the
//     reason. The call of that member gets the refusal; the other members had no effect, and their calls send them again
//     (deliver). A member to which that has happened maxRefusals times is sent alone.
//   - The refusal would have been the same without the group, because its members are independent: no two touch the same
//     znode, or a znode and its parent.
//   - All znodes of a transaction have one czxid. So no two members make a contender in the same directory: they would be
//     equal in the order, and would have equal tokens.
//   - A call's read sees its write: if the write is sent again, so is the read. Exception: the list behind a create of a
//     refused group answers that there is no such directory (refusedBy). The create's caller gets that answer at once: a
//     thousand locks that are used for the first time need not be refused one by one.
//   - When the reply is lost, each call learns that the outcome of its own write is unknown.
//   - A call that gives up takes its member away, if that has not been written.
//
// The program's own writes are never members.

const (
	maxGroup        = 100      // operations in a group
	maxGroupBytes   = 32 << 10 // of its members' frames
	maxRefusals     = 3        // refusals of a member's groups because of another member; then it is sent alone
	quarantineLasts = 16       // groups in which untried creates keep apart after a refusal for a missing directory
)

// share lets r, of a grouped batch, be a member of a group if it is a write, and be read together with others if it is a list.
func share(r *request) {
	if r.touches != nil {
		r.shares, r.gather = maxRefusals, (*conn).gatherLocked
	} else if r.op == opGetChildren2 {
		r.shares, r.gather = 1, (*conn).gatherListsLocked
	}
}

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

// untried reports whether r is the create of a contender and has not been refused in a group: its directory may be missing.
// While c.quarantine lasts, such creates are grouped only with each other, so that a refusal spares other writes.
func (r *request) untried() bool {
	return r.shares == maxRefusals && r.op == opCreate && r.touches[0].effect == makesNumbered
}

// gatherLocked adds to first, a write, the independent ones behind it, up to the size of a group. A write that stays behind is
// overtaken by none that depends on it.
func (c *conn) gatherLocked(first *request) *request {
	claimed := claims{}
	claimed.add(first.touches)
	members, ops, size := []*request{first}, len(first.touches), len(first.frame)
	limit := min(maxGroupBytes, c.s.cfg.JuteMaxBuffer)
	looked := 0
	for r := c.queue.head; r != nil && ops < maxGroup && looked < 4*maxGroup; looked++ {
		next := r.next
		if r.shares > 0 && r.touches != nil {
			alike := c.quarantine == 0 || r.untried() == first.untried()
			if alike && ops+len(r.touches) <= maxGroup && size+len(r.frame) <= limit && claimed.free(r.touches) {
				c.queue.remove(r)
				members, ops, size = append(members, r), ops+len(r.touches), size+len(r.frame)
			}
			claimed.add(r.touches)
		}
		r = next
	}
	if len(members) == 1 {
		return first
	}
	g := c.groupLocked(opMulti, "group", members, size)
	g.split = c.answerGroup
	return g
}

const opFrame = 12 // offset of a request's body, behind length, xid and opcode

// groupLocked returns the request that carries out members, an opMulti or opMultiRead; size is the length of their frames.
func (c *conn) groupLocked(op int32, name string, members []*request, size int) *request {
	g := &request{op: op, name: name, path: members[0].path, repeatable: op == opMultiRead, members: members}
	b := appendHeader(make([]byte, 0, size+multiHeader), op)
	for _, r := range members {
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
	c.numberLocked(g)
	return g
}

// answerGroup splits the reply to a group among its members. An error: the reply does not fit the group.
func (c *conn) answerGroup(g *request, header replyHeader, body []byte, _ int) error {
	d := decoder{b: body}
	results := slices.Collect(d.results(opMulti))
	ops := 0
	for _, r := range g.members {
		ops += len(r.touches)
	}
	whole := d.err == nil && len(results) == ops
	failed := slices.IndexFunc(results, func(r result) bool { return r.code != codeOK && r.code != codeInconsistent })
	switch {
	case whole && failed >= 0 && definite(results[failed].code) && !tryAgain(results[failed].code):
		c.answerRefused(g, header, results, failed)
	case whole && failed >= 0: // the write may have been done: each member gets the code, as if sent alone
		header.code = results[failed].code
		c.answerAlike(g, header)
	case whole && header.code == codeOK && !slices.ContainsFunc(results, func(r result) bool { return r.op == opError }):
		c.answerMembers(g, header, results)
	case len(results) > 0 || header.code == codeOK:
		return fmt.Errorf("%w: reply to %d operations, and not those of this transaction", ErrGarbled, len(g.members))
	case definite(header.code) && !tryAgain(header.code):
		// The server does not say which operation it refused: on a local session it refuses each multi with an ephemeral.
		sendAgain(g.members, errTogether)
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

// answerRefused gives the refused member its result, and has the others sent again.
func (c *conn) answerRefused(g *request, header replyHeader, results []result, failed int) {
	code := results[failed].code
	for i, r := range g.members {
		ops := len(r.touches)
		if failed >= ops {
			results, failed = results[ops:], failed-ops
			continue
		}
		if code == codeNoNode && r.untried() {
			c.mu.Lock()
			c.quarantine = quarantineLasts
			c.mu.Unlock()
		}
		sendAgain(slices.Delete(slices.Clone(g.members), i, i+1), errTogether)
		if r.op != opMulti {
			header.code = code
		}
		r.answer(header, replyOf(r, results[:ops]))
		return
	}
}

// errTogether says that a request had no effect because of another one with which it was sent.
var errTogether = fmt.Errorf("%w: refused together with another", ErrNotSent)

// refusedBy reports whether r, a create that was refused together with another, would be refused alone, as the list behind it
// says: there is no such directory. Then r has that answer.
func (r *request) refusedBy(behind []*request) bool {
	if r.err != errTogether || r.op != opCreate || len(behind) == 0 { //nolint:errorlint // identity
		return false
	}
	list := behind[0]
	if <-list.done; list.err != nil || list.header.code != codeNoNode || list.path != parent(r.path) {
		return false
	}
	r.err, r.header = nil, list.header
	return true
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

// # Lists
//
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
		key, _ := keyOf(r)
		if size, known := c.replies[key]; known && (size == unanswered || size > longReply) {
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
