package link

import (
	"context"
	"errors"
	"slices"

	"github.com/zklock/locker/internal/session/failure"
	"github.com/zklock/locker/internal/session/internal/pipeline"
)

// Exchange puts requests on the conn, and waits until all have been completed. It returns how many
// it has put on the conn: all, or fewer if the conn has failed. If ctx or the session ends first,
// it also returns an error. But an answer that the reader has taken counts, even if the end wakes
// the call before the answer does.
func (c *Conn) Exchange(ctx context.Context, requests []*pipeline.Request) (queued int, err error) {
	for done := 0; done < len(requests); {
		for queued < len(requests) && queued < done+2*pipeline.Burst {
			n := min(pipeline.Burst, len(requests)-queued)
			if !c.send(requests[queued : queued+n]) {
				return queued, nil
			}
			queued += n
		}
		// Replies come in order, except those to members of groups. So to wait for the last one
		// wakes the call only once.
		next := min(done+pipeline.Burst, queued)
		last := lastWaiting(requests[done:next])
		if last == nil {
			done = next
			continue
		}
		select {
		case <-last.Done():
			continue
		case <-ctx.Done():
		case <-c.common.Life.Done():
		}
		c.abandon(requests[done:queued])
		if lastWaiting(requests[:queued]) == nil {
			return queued, nil
		}
		return queued, c.abandonedError(ctx, requests, queued)
	}
	return queued, nil
}

// abandonedError returns the error of a call that has abandoned requests, the first queued of which
// were put on c, since ctx or the session has ended. If a write may have been carried out, the
// error is that write's. Otherwise it is that of the first request without a reply.
func (c *Conn) abandonedError(ctx context.Context, requests []*pipeline.Request, queued int) error {
	why := errors.New("waiting for the reply of " + c.Server)
	err := failure.Ended(ctx, context.Cause(c.common.Life), why)
	// All of these, not only the abandoned: an earlier one may have failed with the conn.
	for _, r := range requests[:queued] {
		if !r.Repeatable && !r.HasReply() && r.MayBeDone() {
			return r.Failed(err)
		}
	}
	first := slices.IndexFunc(requests, func(r *pipeline.Request) bool { return !r.HasReply() })
	r := requests[max(0, first)] // all may have their replies by now
	if r.Repeatable {
		return r.Failed(err)
	}
	return r.Unsent(err)
}

// lastWaiting returns the last of requests that has no outcome yet, or nil.
func lastWaiting(requests []*pipeline.Request) *pipeline.Request {
	for _, r := range slices.Backward(requests) {
		if !r.Ended() {
			return r
		}
	}
	return nil
}
