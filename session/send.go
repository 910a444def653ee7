package session

import (
	"context"
	"errors"
	"time"

	"github.com/zklock/locker/internal/trusted"
)

// handOver bounds how long SendDeletes waits until its requests are written. They may be stuck behind a full window, or
// on a network that takes nothing, and its caller is not to wait for what others are answered.
const handOver = 50 * time.Millisecond

// SendDeletes is trusted.Session.SendDeletes.
func (f forLocks) SendDeletes(paths ...string) func(ctx context.Context) []error {
	s := f.s
	s.mu.Lock()
	c := s.conn
	s.mu.Unlock()
	if c == nil {
		return nil
	}
	b := s.Grouped(trusted.Caller{})
	deleted := make([]*Result[None], len(paths))
	var requests []*request
	for i, path := range paths {
		if deleted[i] = b.Delete(path, -1); deleted[i].r != nil {
			requests = append(requests, deleted[i].r)
		}
	}
	if len(requests) > 0 {
		written := make(chan struct{})
		requests[len(requests)-1].written = written
		if !c.enqueue(requests...) {
			return nil
		}
		wait := handOver
		if c.stuck.Load() { // who has waited once for it, as a call that gives up in two places, need not do so again
			wait = 0
		}
		select {
		case <-written:
		case <-c.dead:
		case <-s.ctx.Done(): // they go with it
		case <-time.After(wait):
			c.stuck.Store(true)
		}
	}
	return func(ctx context.Context) []error {
		errs := make([]error, len(paths))
		for i, d := range deleted {
			if errs[i] = d.Err; d.r != nil {
				errs[i] = d.settle(s.answerTo(ctx, d.r))
			}
		}
		return errs
	}
}

// answerTo waits for what becomes of a delete that is on its way. Nil: it has a reply.
func (s *Session) answerTo(ctx context.Context, r *request) error {
	select {
	case <-r.done:
	case <-ctx.Done():
		return r.opError(waited(ctx, errors.New("waiting for a reply")), true)
	}
	if r.err != nil {
		return r.opError(r.err, true)
	}
	s.ephemerals.answered(r)
	return nil
}
