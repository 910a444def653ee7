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
	var written []chan struct{} // each its own: in groups a later one may be written first
	for i, path := range paths {
		if deleted[i] = b.Delete(path, -1); deleted[i].r != nil {
			w := make(chan struct{})
			deleted[i].r.written = w
			requests, written = append(requests, deleted[i].r), append(written, w)
		}
	}
	if !c.enqueue(requests...) {
		return nil
	}
	f.untilWritten(c, written)
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

// untilWritten waits until all written are closed, for handOver at most.
func (f forLocks) untilWritten(c *conn, written []chan struct{}) {
	wait := handOver
	if c.stuck.Load() { // a call that gives up in two places waits for such a conn once
		wait = 0
	}
	bound := time.After(wait)
	for _, w := range written {
		select {
		case <-w:
			continue
		case <-c.dead:
		case <-f.s.ctx.Done(): // the znodes go with it
		case <-bound:
			c.stuck.Store(true)
		}
		return
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
