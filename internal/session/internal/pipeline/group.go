package pipeline

import (
	"fmt"
	"slices"
	"strings"

	"github.com/zklock/locker/internal/session/failure"
	"github.com/zklock/locker/internal/session/internal/wire"
)

// A transaction costs an ensemble about the same whether it makes one znode or a hundred. So the
// creates, deletes and small transactions of locks that wait to be written at the same moment are
// sent as one transaction, a group; its members are writes of different calls. No write is delayed
// in order to be grouped.
//
// A call can't tell whether its write was a member of a group:
//
//   - Each member has the result that it would have had alone. A server that refuses a group names
//     one operation as the reason. The call of that member gets the refusal; the other members had
//     no effect, and their calls send them again (SortOut). A member to which that has happened
//     maxRefusals times is sent alone.
//   - The refusal would have been the same without the group, because its members are independent:
//     no two touch the same znode, or a znode and its parent.
//   - All znodes of a transaction have one czxid. So no two members make a contender in the same
//     directory: they would be equal in the order, and would have equal tokens.
//   - A call's read sees its write: if the write is sent again, so is the read. Exception: the list
//     behind a create of a refused group answers that there is no such directory (takeRefusal). The
//     create's caller gets that answer at once: a thousand locks that are used for the first time
//     need not be refused one by one.
//   - When the reply is lost, each call learns that the outcome of its own write is unknown.
//   - A call that gives up takes its member away, if that has not been written.
//
// The program's own writes are never members.

const (
	maxGroup      = 100          // operations in a group
	maxGroupBytes = 32 << 10     // of its members' frames
	maxLooked     = 4 * maxGroup // requests in the queue that are considered
	// refusals of a member's groups because of another member; then it is sent alone
	maxRefusals = 3
	// groups in which untried creates keep apart after a refusal for a missing directory
	quarantineLasts = 16
)

// Share lets r be a member of a group if it is a write, and be read together with others if it is a
// list.
func (r *Request) Share() {
	switch {
	case r.Touches != nil:
		r.shares = maxRefusals
	case r.isList():
		r.shares = 1
	}
}

// sharesWrite reports whether r is a write that may be a member of a group.
func (r *Request) sharesWrite() bool { return r.shares > 0 && !r.isList() }

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
func (cs claims) free(touches []Touch) bool {
	for _, t := range touches {
		dir := cs[parent(t.Path)]
		if cs[t.Path]&(onIt|belowIt) != 0 || dir&onIt != 0 || t.contender() && dir&entered != 0 {
			return false
		}
	}
	return true
}

func (cs claims) add(touches []Touch) {
	for _, t := range touches {
		cs[t.Path] |= onIt
		below := belowIt
		if t.contender() {
			below |= entered
		}
		cs[parent(t.Path)] |= below
	}
}

// parent of the root is the root.
func parent(path string) string { return path[:max(strings.LastIndexByte(path, '/'), 1)] }

// untried reports whether r is the create of a contender and has not been refused in a group: its
// directory may be missing. While Pipeline.quarantine lasts, such creates are grouped only with
// each other, so that a refusal spares other writes.
func (r *Request) untried() bool {
	return r.shares == maxRefusals && r.Op == wire.OpCreate && r.Touches[0].Effect == MakesNumbered
}

// gatherWrites takes the writes that are independent of first, and of each other, from the queue
// behind it, up to the size of a group. It returns the group, or first if there are none. A create,
// delete or multi that stays in the queue is overtaken by none that depends on it.
func (p *Pipeline) gatherWrites(first *Request) *Request {
	if !p.queuesSharedWrite() {
		return first // the usual case, which allocates nothing
	}
	g := grouping{limit: p.roomForMembers(), claimed: claims{}}
	g.add(first)
	g.claimed.add(first.Touches)
	looked := 0
	for r := p.queue.head; r != nil && g.ops < maxGroup && looked < maxLooked; looked++ {
		next := r.next
		if r.sharesWrite() {
			alike := p.quarantine == 0 || r.untried() == first.untried()
			if alike && g.takes(r) {
				p.queue.remove(r)
				g.add(r)
			}
		}
		g.claimed.add(r.Touches)
		r = next
	}
	return p.together(wire.OpMulti, "group", g.members, g.size)
}

// roomForMembers returns how many bytes the frames of requests may have that are sent together. The
// header in front of them, and the mark behind the last one, count too.
func (p *Pipeline) roomForMembers() int {
	const around = 8 + wire.MultiHeader
	return min(maxGroupBytes, p.juteMaxBuffer) - around
}

// queuesSharedWrite reports whether a write that may be a member of a group waits in the queue.
func (p *Pipeline) queuesSharedWrite() bool {
	looked := 0
	for r := p.queue.head; r != nil && looked < maxLooked; r = r.next {
		if r.sharesWrite() {
			return true
		}
		looked++
	}
	return false
}

// grouping is a group while its members are gathered.
type grouping struct {
	limit   int // of size
	members []*Request
	ops     int // operations of the members
	size    int // bytes of their frames
	claimed claims
}

// takes reports whether r is independent of what was claimed, and there is room for it.
func (g *grouping) takes(r *Request) bool {
	hasRoom := g.ops+len(r.Touches) <= maxGroup && g.size+len(r.Frame) <= g.limit
	return hasRoom && g.claimed.free(r.Touches)
}

func (g *grouping) add(r *Request) {
	g.members = append(g.members, r)
	g.ops += len(r.Touches)
	g.size += len(r.Frame)
}

const opFrame = 12 // offset of a request's body, behind length, xid and opcode

// together returns the request that carries out members, an OpMulti or OpMultiRead, or the only
// member. size is the length of their frames.
func (p *Pipeline) together(op int32, name string, members []*Request, size int) *Request {
	if len(members) == 1 {
		return members[0]
	}
	g := &Request{Op: op, name: name, Path: members[0].Path, Repeatable: op == wire.OpMultiRead,
		members: members}
	b := wire.AppendHeader(make([]byte, 0, size+wire.MultiHeader), op)
	for _, r := range members {
		switch r.Op {
		case wire.OpMulti:
			b = append(b, r.Frame[opFrame:len(r.Frame)-wire.MultiHeader]...)
		case wire.OpGetChildren2:
			b = append(wire.AppendMultiHeader(b, wire.OpGetChildren, false), r.Frame[opFrame:]...)
		default:
			b = append(wire.AppendMultiHeader(b, r.Op, false), r.Frame[opFrame:]...)
		}
	}
	g.Frame = wire.AppendMultiHeader(b, -1, true)
	p.number(g)
	return g
}

// splitGroup divides the reply to g, a group, among its members.
func splitGroup(g *Request, reply Reply) ([]Completion, error) {
	d := wire.Decoder{B: reply.Body}
	results := slices.Collect(d.Results(wire.OpMulti))
	whole := d.Err == nil && len(results) == operations(g.members)
	failed := slices.IndexFunc(results, isCause)
	switch {
	case whole && failed >= 0 && certainRefusal(results[failed].Code):
		return splitRefusal(g, reply.Header, results, failed), nil
	case whole && failed >= 0:
		// The write may have been done: each member gets the code, as if it had been sent alone.
		reply.Header.Code = results[failed].Code
		return splitAlike(g, reply.Header), nil
	case whole && reply.Header.Code == wire.CodeOK && !slices.ContainsFunc(results, isError):
		return splitResults(g, reply.Header, results), nil
	case len(results) > 0 || reply.Header.Code == wire.CodeOK:
		return nil, fmt.Errorf("%w: reply to a transaction of %d operations, with %d results that "+
			"can't be its own", failure.ErrGarbled, operations(g.members), len(results))
	case certainRefusal(reply.Header.Code):
		// The server does not say which operation it has refused: on a local session it refuses
		// each multi with an ephemeral.
		return unsentParts(g.members, errTogether), nil
	default:
		return splitAlike(g, reply.Header), nil
	}
}

// isCause reports whether r is the result of an operation because of which a transaction was
// refused.
func isCause(r wire.Result) bool { return r.Code != wire.CodeOK && r.Code != wire.CodeInconsistent }

func isError(r wire.Result) bool { return r.Op == wire.OpError }

// certainRefusal reports whether code says that the request was not carried out, and that it would
// be of no use to try again.
func certainRefusal(code int32) bool { return wire.Definite(code) && !wire.TryAgain(code) }

func operations(members []*Request) (n int) {
	for _, r := range members {
		n += len(r.Touches)
	}
	return n
}

// splitAlike gives each member of g the same answer.
func splitAlike(g *Request, header wire.ReplyHeader) []Completion {
	parts := make([]Completion, 0, len(g.members))
	for _, r := range g.members {
		parts = append(parts, Completion{Request: r, Header: header})
	}
	return parts
}

// splitResults gives each member of g its own results.
func splitResults(g *Request, header wire.ReplyHeader, results []wire.Result) []Completion {
	parts := make([]Completion, 0, len(g.members))
	for _, r := range g.members {
		ops := len(r.Touches)
		parts = append(parts,
			Completion{Request: r, Header: header, Body: replyOf(r, results[:ops])})
		results = results[ops:]
	}
	return parts
}

// splitRefusal gives the member of g that was refused its results, and has the calls of the others
// send them again. failed is the index of the refused operation in results.
func splitRefusal(
	g *Request, header wire.ReplyHeader, results []wire.Result, failed int,
) []Completion {
	code := results[failed].Code
	parts := make([]Completion, 0, len(g.members))
	for _, r := range g.members {
		ops := len(r.Touches)
		if failed < 0 || failed >= ops {
			parts = append(parts, r.unsentPart(errTogether))
		} else {
			own := header
			if r.Op != wire.OpMulti {
				own.Code = code
			}
			parts = append(parts,
				Completion{Request: r, Header: own, Body: replyOf(r, results[:ops])})
		}
		results, failed = results[ops:], failed-ops
	}
	return parts
}

// errTogether says that a request had no effect because of another one with which it was sent.
var errTogether = fmt.Errorf("%w: refused together with another", failure.ErrNotSent)

// replyOf returns the reply body that r would have had alone.
func replyOf(r *Request, results []wire.Result) string {
	if r.Op != wire.OpMulti {
		return results[0].Raw[wire.MultiHeader:]
	}
	var body strings.Builder
	for _, result := range results {
		body.WriteString(result.Raw)
	}
	body.Write(wire.AppendMultiHeader(nil, -1, true))
	return body.String()
}

// learnFromGroup notes what the reply to a group says about directories: after a refusal for one
// that is missing, quarantine begins. Each group that is carried out shortens it.
func (p *Pipeline) learnFromGroup(parts []Completion) {
	carriedOut := true
	for _, part := range parts {
		if part.Err != nil || part.Header.Code != wire.CodeOK {
			carriedOut = false
		}
		if part.Err == nil && part.Header.Code == wire.CodeNoNode && part.Request.untried() {
			p.quarantine = quarantineLasts
		}
	}
	if carriedOut {
		p.quarantine = max(p.quarantine-1, 0)
	}
}
