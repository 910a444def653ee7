package link

import (
	"context"
	"errors"
	"slices"

	"github.com/zklock/locker/internal/session/failure"
)

// burst is how many requests of one caller are put on a conn at once, in at most two bursts at a time: enough to fill the
// window. The rest waits with its caller, where it delays no other request.
const burst = window / 2

// Exchange sends requests and waits until all have a reply or, if the conn fails, returns how many were sent. An error:
// ctx or the session ended first. An answer that the reader has taken counts, even if the end wakes the call before it.
func (c *Conn) Exchange(ctx context.Context, requests []*Request) (sent int, err error) {
	for answered := 0; answered < len(requests); {
		for sent < len(requests) && sent < answered+2*burst {
			n := min(burst, len(requests)-sent)
			if !c.Enqueue(requests[sent : sent+n]...) {
				return sent, nil
			}
			sent += n
		}
		// Replies come in order, except those to members of groups: so waiting for the last one wakes the caller only once.
		next := min(answered+burst, sent)
		last := lastWaiting(requests[answered:next])
		if last == nil {
			answered = next
			continue
		}
		select {
		case <-last.done:
			continue
		case <-ctx.Done():
		case <-c.Session.Done():
		}
		if c.abandon(requests[answered:sent]); lastWaiting(requests[:sent]) == nil {
			return sent, nil
		}
		err = failure.Ended(ctx, context.Cause(c.Session), errors.New("waiting for the reply of "+c.Server))
		for _, r := range requests[:sent] { // also those before, which have ended: one may have failed with the conn
			if !r.Repeatable && !r.Answered() && r.MayBeDone() {
				return sent, r.Failed(err, true)
			}
		}
		r := requests[max(0, slices.IndexFunc(requests, func(r *Request) bool { return !r.Answered() }))]
		if r.Repeatable {
			return sent, r.Failed(err, false)
		}
		return sent, r.Unsent(err)
	}
	return sent, nil
}

func lastWaiting(requests []*Request) *Request {
	for _, r := range slices.Backward(requests) {
		if !r.finished() {
			return r
		}
	}
	return nil
}
