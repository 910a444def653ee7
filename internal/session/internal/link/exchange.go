package link

import (
	"context"
	"errors"
	"slices"

	"github.com/zklock/locker/internal/session/failure"
)

// burst is how many requests of one caller are put on a conn at once, in at most two bursts at a
// time. That is enough to fill the window. The rest waits with its caller, where it delays no other
// request.
const burst = window / 2

// Exchange sends requests, and waits until all have a reply. If the conn fails, Exchange returns how
// many were sent. If ctx or the session ends first, it returns an error. But an answer that the
// reader has taken counts, even if the end wakes the call before the answer does.
func (c *Conn) Exchange(ctx context.Context, requests []*Request) (sent int, err error) {
	for done := 0; done < len(requests); {
		for sent < len(requests) && sent < done+2*burst {
			n := min(burst, len(requests)-sent)
			if !c.Enqueue(requests[sent : sent+n]...) {
				return sent, nil
			}
			sent += n
		}
		// Replies come in order, except those to members of groups. So to wait for the last one
		// wakes the call only once.
		next := min(done+burst, sent)
		last := lastWaiting(requests[done:next])
		if last == nil {
			done = next
			continue
		}
		select {
		case <-last.done:
			continue
		case <-ctx.Done():
		case <-c.Session.Done():
		}
		c.abandon(requests[done:sent])
		if lastWaiting(requests[:sent]) == nil {
			return sent, nil
		}
		return sent, c.abandonedError(ctx, requests, sent)
	}
	return sent, nil
}

// abandonedError returns the error of a call that has abandoned requests, the first sent of which
// were put on c, since ctx or the session has ended. If a write may have been carried out, the
// error is that write's. Otherwise it is that of the first request without a reply.
func (c *Conn) abandonedError(ctx context.Context, requests []*Request, sent int) error {
	why := errors.New("waiting for the reply of " + c.Server)
	err := failure.Ended(ctx, context.Cause(c.Session), why)
	// All sent ones, not only the abandoned: an earlier one may have failed with the conn.
	for _, r := range requests[:sent] {
		if !r.Repeatable && !r.Answered() && r.MayBeDone() {
			return r.Failed(err, true)
		}
	}
	first := slices.IndexFunc(requests, func(r *Request) bool { return !r.Answered() })
	r := requests[max(0, first)] // all may have their replies by now
	if r.Repeatable {
		return r.Failed(err, false)
	}
	return r.Unsent(err)
}

// lastWaiting returns the last of requests that has no outcome yet, or nil.
func lastWaiting(requests []*Request) *Request {
	for _, r := range slices.Backward(requests) {
		if !r.finished() {
			return r
		}
	}
	return nil
}
