package session

import (
	"strings"

	"github.com/zklock/locker/internal/trusted"
)

// A transaction costs an ensemble about the same whether it makes one znode or a hundred. So the creates, deletes and small
// transactions of locks that wait to be written at the same moment are sent as one transaction, a group; its members are
// writes of different calls. Nothing ever waits in order to be grouped: a member that is alone is sent as the request that
// it is.
//
// A call can't tell whether its write was a member of a group:
//
//   - Each has the result that it would have had alone. The server refuses the group as a whole because of one operation,
//     and names it: the call of that member gets the refusal. Nothing was done of the others, and they are sent again
//     without it. A member to which that has happened maxRefusals times is sent alone.
//   - That refusal is right also without the group, because the members of one group are independent: no two touch the same
//     znode, or one the parent of the other's.
//   - All znodes of a transaction have one czxid. So no two members make a contender in the same directory: they would be
//     equal in the order, and would have equal tokens.
//   - A call's read sees its write: if the write has to be sent again, so has the read (member.open). Exception: the group was
//     refused, and the list behind a create answers that there is no such directory. The create would be refused for the
//     same reason, so its caller gets that answer at once: a thousand locks that are used for the first time need not be
//     refused one by one.
//   - When the reply is lost, each call learns that the outcome of its own write is unknown, and finds it out.
//   - A call that gives up takes its member away, if that has not been written, or has to be written again.
//
// The program's own writes are never members.

const (
	maxGroup      = 100      // operations of a group
	maxGroupBytes = 32 << 10 // of its members' frames
	maxRefusals   = 3        // groups of a member that were refused because of another; then it is sent alone
	cautionLasts  = 16       // for so many groups after one that was refused for a missing directory, untried creates keep apart
)

// member is what a request has that may be a member of a group.
type member struct {
	touches []touch // of each of its operations

	// It is to be sent again, and has not been answered since. It belongs to the goroutine that reads from the conn;
	// numberLocked resets it before a conn gets the request, when deliver has seen the whole batch answered by the last one.
	open bool

	read *request // the only read of the batch, if this is the only write; it does not change

	// Guarded by conn.mu.
	refusals int  // groups that it was a member of, and that were refused because of another member
	parked   bool // waits until the reads of all parked writes have been answered; then all are sent again, together
	heard    bool // while parked: read has been answered, and will be sent again behind the write
}

// touch is a znode that an operation of a member is about.
type touch struct {
	path      string
	contender bool // an ephemeral one is made
}

// Grouped is Batch for the packages of this module: the creates, deletes and multis of the batch may be carried out in one
// transaction with those of other such batches. They must come before the batch's reads, which see them, and are carried out
// in no particular order among themselves.
func (s *Session) Grouped(trusted.Caller) *Batch { return &Batch{s: s, grouped: true} }

// mayShare marks r, which touches these znodes, as a possible member of a group.
func (b *Batch) mayShare(r *request, touches ...touch) {
	if b.grouped && r != nil {
		r.member = &member{touches: touches}
	}
}

// claims are the znodes that a group's members need for themselves.
type claims map[string]claim

type claim uint8

const (
	onIt    claim = 1 << iota // an operation is about this znode
	belowIt                   // about a child of it
	entered                   // a contender is made below it
)

// free reports whether a member with these touches is independent of all that have claimed.
func (cs claims) free(touches []touch) bool {
	for _, t := range touches {
		dir := cs[parent(t.path)]
		if cs[t.path]&(onIt|belowIt) != 0 || dir&onIt != 0 || t.contender && dir&entered != 0 {
			return false
		}
	}
	return true
}

func (cs claims) add(touches []touch) {
	for _, t := range touches {
		cs[t.path] |= onIt
		below := belowIt
		if t.contender {
			below |= entered
		}
		cs[parent(t.path)] |= below
	}
}

// parent returns the path of the parent; of the root, the root.
func parent(path string) string { return path[:max(strings.LastIndexByte(path, '/'), 1)] }

// untried reports whether m is the create of a batch of one create and one list that has not been refused yet: its directory
// may be missing. While c.caution lasts, such creates are grouped only with each other, so that a refusal because of one of
// them hits no others.
func (m *member) untried() bool { return m.read != nil && m.refusals == 0 }

// gatherLocked takes the first of the writes that may be members of a group, and with it those behind it that are
// independent, as far as a group goes. One that is passed over is overtaken by none that depends on it.
func (c *conn) gatherLocked() *request {
	first := c.writes.pop()
	if c.writes.n == 0 || first.member.refusals >= maxRefusals || c.s.ungrouped.Load() {
		return first
	}
	clear(c.claims)
	c.claims.add(first.member.touches)
	members, ops, size := []*request{first}, len(first.member.touches), len(first.frame)
	limit := min(maxGroupBytes, c.s.cfg.PacketLimit)
	looked := 0
	for r := c.writes.head; r != nil && ops < maxGroup && looked < 2*maxGroup; looked++ {
		next, m := r.next, r.member
		alike := c.caution == 0 || m.untried() == first.member.untried()
		if alike && m.refusals < maxRefusals && ops+len(m.touches) <= maxGroup && size+len(r.frame) <= limit && c.claims.free(m.touches) {
			c.writes.remove(r)
			members, ops, size = append(members, r), ops+len(m.touches), size+len(r.frame)
		}
		c.claims.add(m.touches)
		r = next
	}
	if len(members) == 1 {
		return first
	}
	return c.groupLocked(members, size)
}

// opFrame is where a request's body begins, behind length, xid and opcode.
const opFrame = 12

// multiHeader is the length of the header before each of a multi's operations, or results, and of the one behind the last.
const multiHeader = 9

// groupLocked returns the transaction of members, whose frames take size bytes.
func (c *conn) groupLocked(members []*request, size int) *request {
	b := appendHeader(make([]byte, 0, size+multiHeader), opMulti)
	for _, r := range members {
		if r.op == opMulti {
			b = append(b, r.frame[opFrame:len(r.frame)-multiHeader]...)
		} else {
			b = append(appendMultiHeader(b, r.op, false), r.frame[opFrame:]...)
		}
	}
	g := &request{op: opMulti, name: "group", path: members[0].path, members: members, frame: appendMultiHeader(b, -1, true)}
	c.numberLocked([]*request{g})
	return g
}
