package link

import (
	"context"
	"errors"
	"slices"

	"github.com/zklock/locker/internal/session/failure"
	"github.com/zklock/locker/internal/session/internal/pipeline"
)

// Exchange puts requests on the conn, at most two bursts at a time, and waits until all have been
// completed. It returns how many it has put on the conn:
//
//   - all, if all have been completed;
//   - fewer, if the conn has failed. It does not wait then: Fail completes what was put on the
//     conn. The rest was never sent;
//   - as many as it had put there when ctx or the session ended, and an error. It has abandoned
//     those that had not been completed. If the reader had taken the last answer by then, that
//     counts, and there is no error.
func (c *Conn) Exchange(ctx context.Context, requests []*pipeline.Request) (queued int, err error) {
	// requests[:done] have been completed, and requests[done:queued] are on the conn.
	for done := 0; done < len(requests); {
		for queued < min(len(requests), done+2*pipeline.Burst) {
			end := min(len(requests), queued+pipeline.Burst)
			if !c.Add(requests[queued:end]...) {
				return queued, nil
			}
			c.Flush()
			queued = end
		}
		burst := requests[done:min(queued, done+pipeline.Burst)]
		if c.awaitAll(ctx, burst) {
			done += len(burst)
			continue
		}
		c.abandon(requests[done:queued])
		if lastWaiting(requests[:queued]) == nil {
			return queued, nil
		}
		return queued, c.abandonedError(ctx, requests, queued)
	}
	return queued, nil
}

// awaitAll waits until all of requests have been completed. It returns false if ctx or the session
// ends first.
func (c *Conn) awaitAll(ctx context.Context, requests []*pipeline.Request) bool {
	// Replies come in order, except those to members of groups. So it is usually enough to wait for
	// the last one, which wakes the call only once.
	for r := lastWaiting(requests); r != nil; r = lastWaiting(requests) {
		select {
		case <-r.Done():
		case <-ctx.Done():
			return false
		case <-c.common.Life.Done():
			return false
		}
	}
	return true
}

// abandonedError returns the error of a call that has given up requests, since ctx or the session
// has ended. The first queued of them were put on c. If a write may have been carried out, the
// error is that write's. Otherwise it is that of the first request without a reply.
func (c *Conn) abandonedError(ctx context.Context, requests []*pipeline.Request, queued int) error {
	why := errors.New("waiting for the reply of " + c.Server)
	err := failure.Ended(ctx, context.Cause(c.common.Life), why)
	// Not only the abandoned ones are looked at: an earlier one may have failed with the conn.
	for _, r := range requests[:queued] {
		if !r.Repeatable && !r.HasReply() && r.MayBeDone() {
			return r.Failed(err)
		}
	}
	first := slices.IndexFunc(requests, func(r *pipeline.Request) bool { return !r.HasReply() })
	r := requests[max(0, first)] // first is -1 if the last reply has come just now
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

// abandon withdraws requests, two bursts at most, for which their call does not wait any more.
// Those that have not been written never will be. One whose reply the reader has taken gets it
// first.
func (c *Conn) abandon(requests []*pipeline.Request) {
	c.handling.Lock()
	defer c.handling.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state == connFailed { // Fail has taken them all
		return
	}
	c.pipe.Withdraw(requests)
	if queued, _ := c.pipe.Waiting(); queued > 0 {
		poke(c.wake) // one of the requests may have kept those behind it waiting
	}
}
