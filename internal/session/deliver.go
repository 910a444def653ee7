package session

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/zklock/locker/internal/session/failure"
	"github.com/zklock/locker/internal/session/internal/pipeline"
)

// run sends requests in order on one conn, up to two bursts at a time, and waits for their
// replies. It returns nil if each has a reply, which may be a refusal: see pipeline.Request.Result.
//
// run waits for a connection as long as ctx and the session last. If the connection breaks, it
// resends reads, and all that was never sent, on the next one. It does not resend a write whose
// reply was lost: the error then matches ErrUnknownOutcome.
//
// An answer "try again" counts as no reply, and a throttled request as never sent. run pauses
// before it resends them.
//
// If a request is too long, or has no room for its ephemeral znodes, run sends none.
func (s *Session) run(ctx context.Context, requests ...*pipeline.Request) error {
	if len(requests) == 0 {
		return nil
	}
	for _, r := range requests {
		err := s.ephemerals.Reserve(r)
		// The servers do not count the length field either.
		if size := len(r.Frame) - 4; size > s.cfg.JuteMaxBuffer {
			err = failure.TooLarge("request", size, s.cfg.JuteMaxBuffer)
		}
		if err != nil {
			return r.Unsent(err)
		}
	}
	return s.deliver(ctx, requests)
}

// Established waits for the session's first connection, as long as ctx and the session last. When
// it returns nil, ID and Timeout are the ensemble's. The session may be Disconnected again by
// then.
func (s *Session) Established(ctx context.Context) error {
	if s.State() == Disconnected {
		return nil
	}
	_, err := s.awaitConnection(ctx)
	return err
}

// awaitConnection returns the connection that carries requests. If there is none, it waits for one
// as long as ctx and the session last.
func (s *Session) awaitConnection(ctx context.Context) (*connection, error) {
	if err := s.Err(); err != nil && ctx.Err() == nil {
		return nil, err // which need not say what the call waited for: it has not waited
	}
	for {
		s.mu.Lock()
		c, ready := s.conn, s.ready
		s.mu.Unlock()
		switch {
		case ctx.Err() != nil || s.Err() != nil:
			return nil, s.ended(ctx, s.waitingFor("about to send"))
		case c != nil:
			return c, nil
		}
		until(ctx, s, ready)
	}
}

// waitingFor returns what a call waits for, as an error: a connection, or what if there is one.
func (s *Session) waitingFor(what string) error {
	s.mu.Lock()
	connected := s.conn != nil
	s.mu.Unlock()
	if connected {
		return errors.New(what)
	}
	return fmt.Errorf("waiting for a connection: %w", s.dialer.Report())
}

// deliver is run without the checks. It sends requests, sorts out what became of each, and sends
// again what may be sent again, until each has a reply or one has failed.
func (s *Session) deliver(ctx context.Context, requests []*pipeline.Request) error {
	for len(requests) > 0 {
		c, err := s.awaitConnection(ctx)
		if err != nil {
			return requests[0].Unsent(err)
		}
		queued, err := c.Exchange(ctx, requests)
		if err != nil {
			return err
		}
		resend, failed, trouble := pipeline.SortOut(requests[:queued])
		// A server in trouble is given a rest, even if a write has failed: its caller may repeat
		// the write as soon as it knows what became of it.
		rested := trouble == nil || s.rest(ctx, s.nextRest())
		if failed != nil {
			return failed.Failed(s.ended(ctx, failed.Err()))
		}
		requests = append(resend, requests[queued:]...)
		if !rested {
			return requests[0].Unsent(s.ended(ctx, trouble))
		}
	}
	return nil
}

// Pauses before a request is sent again to a server that has answered: try again.
const (
	firstRest = 50 * time.Millisecond
	lastRest  = time.Second
)

// backoff is the latest of these pauses.
type backoff struct {
	d  time.Duration
	at time.Time
}

// nextRest returns the next pause, which all calls share. It is twice the last one, or the shortest
// if there was no trouble for a while.
func (s *Session) nextRest() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if now.Sub(s.backoff.at) > 2*lastRest {
		s.backoff.d = 0
	}
	s.backoff = backoff{max(firstRest, min(2*s.backoff.d, lastRest)), now}
	return s.backoff.d
}

// rest waits for d. It returns false if ctx or the session ends first.
func (s *Session) rest(ctx context.Context, d time.Duration) bool {
	return until(ctx, s, time.After(d))
}

// until waits for ch. It returns false if ctx or the session ends first.
func until[T any](ctx context.Context, s *Session, ch <-chan T) bool {
	select {
	case <-ch:
		return true
	case <-ctx.Done():
	case <-s.ctx.Done():
	}
	return false
}
