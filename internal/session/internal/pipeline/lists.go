package pipeline

import (
	"fmt"
	"slices"
	"strings"

	"github.com/zklock/locker/internal/session/failure"
	"github.com/zklock/locker/internal/session/internal/wire"
)

// A multiRead of a hundred lists costs a server about as much as one list. So lists behind grouped
// writes of different calls that are next to each other in the queue are sent as one multiRead.
// Each call gets the result that its list would have had alone, except the directory's Stat, which
// is zero: a multiRead does not return it. (See session's Batch.List.)
//
// If the reply as a whole is too long or garbled, each list is sent again by itself.

// gatherLists takes the lists that would be written next from the queue, and returns the multiRead
// of first and them, or first if there are none.
func (p *Pipeline) gatherLists(first *Request) *Request {
	size := len(first.Frame)
	if first.long || !p.nextListJoins(size) {
		return first
	}
	lists := []*Request{first}
	for len(lists) < maxGroup && p.nextListJoins(size) {
		r := p.queue.pop()
		p.sizes.expect(r)
		lists = append(lists, r)
		size += len(r.Frame)
	}
	return p.together(wire.OpMultiRead, "lists", lists, size)
}

// nextListJoins reports whether the next request is a list that may be read together with others,
// whose frames have size bytes.
func (p *Pipeline) nextListJoins(size int) bool {
	r := p.queue.head
	if r == nil || r.shares == 0 || !r.isList() {
		return false
	}
	return size+len(r.Frame) <= p.roomForMembers() && !p.sizes.mustWait(r, true)
}

// splitLists divides the reply to g, a multiRead, among its lists.
func splitLists(g *Request, reply Reply) ([]Completion, error) {
	if reply.Size > wire.MaxFrame {
		return unsentParts(g.members, errTogether), nil
	}
	d := wire.Decoder{B: reply.Body}
	results := slices.Collect(d.Results(wire.OpMultiRead))
	parts := make([]Completion, 0, len(g.members))
	if reply.Header.Code != wire.CodeOK {
		// The server is in trouble, since a list that it refuses has a result. Each list gets the
		// code.
		for _, r := range g.members {
			parts = append(parts, listed(r, reply.Header, ""))
		}
		return parts, nil
	}
	if d.Err != nil || len(results) != len(g.members) {
		return nil, fmt.Errorf("%w: reply to %d lists", failure.ErrGarbled, len(g.members))
	}
	for i, r := range g.members {
		header := reply.Header
		header.Code = results[i].Code
		names := ""
		if results[i].Op == wire.OpGetChildren {
			names = results[i].Raw[wire.MultiHeader:]
		}
		parts = append(parts, listed(r, header, names))
	}
	return parts, nil
}

// listed returns the completion of r, a list: the encoded names and, behind them, a Stat of zeros.
func listed(r *Request, header wire.ReplyHeader, names string) Completion {
	return Completion{Request: r, Header: header, Body: names + noStat}
}

// noStat is an encoded Stat of zeros.
var noStat = strings.Repeat("\x00", wire.StatLen)

// learnFromLists notes how long the reply to each list of a multiRead would have been.
func (p *Pipeline) learnFromLists(parts []Completion) {
	for _, part := range parts {
		if part.Err == nil {
			p.sizes.answered(part.Request, len(part.Body)-wire.StatLen)
		}
	}
}
