package session

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/zklock/locker/internal/session/failure"
	"github.com/zklock/locker/internal/session/internal/link"
)

// run sends requests back to back on one conn, up to two bursts at a time, and waits for all replies. Repeatable requests
// that lose their reply are sent again on the next conn, with everything that was never sent. If a write's reply is lost,
// run returns, and that request's error matches ErrUnknownOutcome. An answer that says "try again" counts as no reply, and a
// throttled request as not sent; the next attempt comes after a pause. It waits for a connection as long as ctx and the session
// last. If a request is too long, or has no room for its ephemeral znodes, none is sent. Nil: each has a reply, a yes or a
// no (request.result).
func (s *Session) run(ctx context.Context, requests ...*link.Request) error {
	if len(requests) == 0 {
		return nil
	}
	for _, r := range requests {
		err := s.ephemerals.Reserve(r)
		if size := len(r.Frame) - 4; size > s.cfg.JuteMaxBuffer { // the servers do not count the length field either
			err = failure.TooLarge("request", size, s.cfg.JuteMaxBuffer)
		}
		if err != nil {
			return r.Unsent(err)
		}
	}
	return s.deliver(ctx, requests)
}

// Established waits for the session's first connection, as long as ctx and the session last. Nil: ID and Timeout are the
// ensemble's; the session may be Disconnected again.
func (s *Session) Established(ctx context.Context) error {
	if s.State() == Disconnected {
		return nil
	}
	_, err := s.await(ctx)
	return err
}

// await returns the conn that carries requests; it waits for one as long as ctx and the session last.
func (s *Session) await(ctx context.Context) (*connection, error) {
	if err := s.Err(); err != nil && ctx.Err() == nil {
		return nil, err // it has waited for nothing
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

// waitingFor says what a call waits for: a connection, or what if there is one.
func (s *Session) waitingFor(what string) error {
	s.mu.Lock()
	connected := s.conn != nil
	s.mu.Unlock()
	if connected {
		return errors.New(what)
	}
	return fmt.Errorf("waiting for a connection: %w", s.dialer.Report())
}

func (s *Session) deliver(ctx context.Context, requests []*link.Request) error {
	for {
		c, err := s.await(ctx)
		if err != nil {
			return requests[0].Unsent(err)
		}
		sent, err := c.Exchange(ctx, requests)
		if err != nil {
			return err
		}
		again := make([]*link.Request, 0, len(requests)-sent)
		var trouble error // a server's answer that says: try again
		write := false    // one of again
		for i, r := range requests[:sent] {
			fate, busy := r.Fate(requests[i+1:sent], write)
			if busy != nil {
				trouble = busy
			}
			switch fate {
			case link.ToRepeat:
				write = write || !r.Repeatable
				again = append(again, r)
			case link.Lost:
				if trouble != nil {
					s.rest(ctx, s.nextRest()) // the caller may repeat the write at once, when it has found out what became of it
				}
				return r.Failed(s.ended(ctx, r.Err()), true)
			}
		}
		if requests = append(again, requests[sent:]...); len(requests) == 0 {
			return nil
		}
		if trouble != nil && !s.rest(ctx, s.nextRest()) {
			return requests[0].Unsent(s.ended(ctx, trouble))
		}
	}
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

// nextRest returns the next pause: twice the last one, unless there was no trouble for a while. All calls share it.
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

// rest waits for d. False: ctx or the session ended first.
func (s *Session) rest(ctx context.Context, d time.Duration) bool {
	return until(ctx, s, time.After(d))
}

// until waits for ch. False: ctx or the session ended first.
func until[T any](ctx context.Context, s *Session, ch <-chan T) bool {
	select {
	case <-ch:
		return true
	case <-ctx.Done():
	case <-s.ctx.Done():
	}
	return false
}
