package pipeline

import (
	"fmt"

	"github.com/zklock/locker/internal/session/failure"
	"github.com/zklock/locker/internal/session/internal/wire"
)

// Reply is what a server has answered.
type Reply struct {
	Header wire.ReplyHeader
	Body   string // behind the header; empty if the reply was too long to keep
	Size   int    // bytes of the whole frame
}

// Completion is what becomes of one request on a connection: its reply, or why it has none.
type Completion struct {
	Request *Request
	Header  wire.ReplyHeader
	Body    string // of the reply, behind the header
	Err     error  // why there is no reply; the reply's fields are zero then
}

// Deliver completes the request, whose call, if one waits, goes on at once.
func (c Completion) Deliver() {
	if c.Request.done == nil {
		return
	}
	c.Request.Header, c.Request.Body, c.Request.err = c.Header, c.Body, c.Err
	close(c.Request.done)
}

// Split divides the reply to r among the requests for which r stands: see
// Request.StandsForSeveral. It returns an error if the reply does not fit r.
func Split(r *Request, reply Reply) ([]Completion, error) {
	if r.Op == wire.OpMultiRead {
		return splitLists(r, reply)
	}
	return splitGroup(r, reply)
}

// Learn notes what the parts of the reply to r say about later requests.
func (p *Pipeline) Learn(r *Request, parts []Completion) {
	if r.Op == wire.OpMultiRead {
		p.learnFromLists(parts)
	} else {
		p.learnFromGroup(parts)
	}
}

// Complete completes r, which stands for itself alone, with a reply.
func (r *Request) Complete(reply Reply) {
	if reply.Size > wire.MaxFrame {
		r.unreadable = failure.TooLarge("reply", reply.Size, wire.MaxFrame)
	}
	Completion{Request: r, Header: reply.Header, Body: reply.Body}.Deliver()
}

// FailForResend completes r, which had no effect, for a reason that matches failure.ErrNotSent. So
// the calls that wait for it send their requests again, and the reads behind them: see SortOut.
func (r *Request) FailForResend(why error) {
	for _, part := range unsentParts(r.calls(), why) {
		part.Deliver()
	}
}

// unsentParts returns the completions of requests, which had no effect: see unsentPart.
func unsentParts(requests []*Request, why error) []Completion {
	parts := make([]Completion, 0, len(requests))
	for _, r := range requests {
		parts = append(parts, r.unsentPart(why))
	}
	return parts
}

// unsentPart returns the completion of r, which had no effect, for a reason that matches
// failure.ErrNotSent. r may share a request once less.
func (r *Request) unsentPart(why error) Completion {
	r.shares = max(r.shares-1, 0)
	return Completion{Request: r, Err: why}
}

// FailUnreadable completes r, whose reply can't be read. why says so, and matches
// failure.ErrGarbled.
func (r *Request) FailUnreadable(server string, why error) {
	r.unreadable = why
	r.Lose(server, why)
}

// Lose completes r, whose reply has not come: the connection to server has failed. why is the
// reason.
func (r *Request) Lose(server string, why error) {
	for _, w := range r.calls() {
		if r.unreadable == nil {
			w.fail(fmt.Errorf("%w (%s: %w)", failure.ErrConnection, server, why))
			continue
		}
		w.shares = 0
		if r.Op == wire.OpMultiRead { // each list is sent again alone, to find the unreadable one
			w.fail(fmt.Errorf("%w (%s: %w)", failure.ErrConnection, server, why))
			continue
		}
		w.unreadable = r.unreadable
		w.fail(fmt.Errorf("%s: %w", server, r.unreadable))
	}
}

func (r *Request) fail(why error) { Completion{Request: r, Err: why}.Deliver() }
