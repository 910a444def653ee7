package chaos

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/zklock/locker/tests/e2e/history"
	"github.com/zklock/locker/zklock"
)

// belief follows one hold: it checks every millisecond whether the hold's context has ended, and
// notes the latest instant at which it certainly had not.
type belief struct {
	op    history.Op    // the fields that follow writes may be read by others only after joined
	ended chan struct{} // closed when the hold was found to have ended

	stop   context.CancelFunc
	joined sync.WaitGroup
	lead   time.Duration
	// ask Err as well, which ends a session whose lease has expired: every second client does
	// without
	active bool
}

const lookEvery = time.Millisecond

func watch(s *site, op history.Op, h *zklock.Hold) *belief {
	b := &belief{op: op, ended: make(chan struct{}), lead: s.lead(), active: s.conf.Client%2 == 0}
	ctx, cancel := context.WithCancel(context.Background())
	b.stop = cancel
	b.joined.Go(func() { b.follow(ctx, h) }) // ends when stop is called, which release does
	return b
}

func (b *belief) follow(ctx context.Context, h *zklock.Hold) {
	defer close(b.ended)
	ticker := time.NewTicker(lookEvery)
	defer ticker.Stop()
	for prev := b.op.Return; ; {
		now := history.Now()
		if now.Sub(prev) > b.lead {
			b.op.Stall, b.op.Resumed = prev, now
		}
		prev = now
		if !b.look(now, h) {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// look checks the hold; false when it has ended. It asks after now was read, so that a hold which
// it finds alive was alive at now.
func (b *belief) look(now history.Stamp, h *zklock.Hold) bool {
	if h.Context().Err() != nil {
		return false
	}
	b.op.Alive = now
	left := time.Until(h.SafeUntil())
	b.op.Safe = max(b.op.Safe, now.Add(left))
	switch {
	case b.active:
		if h.Err() == nil {
			b.op.Sure = now
		}
	case left > 0:
		b.op.Sure = now
	}
	if after := history.Now(); after.Sub(now) > b.lead {
		// the process was stopped, or starved, between the two readings of the clock
		b.op.Stall, b.op.Resumed = now-1, after
	}
	return true
}

// release ends the hold and records it. It returns an error for what must not happen.
func (b *belief) release(w *worker, h *zklock.Hold) error {
	b.stop()
	b.joined.Wait()
	now := history.Now()
	err := h.Err()
	if err == nil {
		b.op.Alive, b.op.Sure = now, now
	}
	b.op.Release = history.Now()
	released := h.Unlock()
	if answer, ok := h.Context().Value(releaseKey{}).(*error); ok && released == nil {
		released = *answer
	}
	b.op.Released = history.Now()
	switch {
	case err != nil:
		b.op.Outcome, b.op.Err = history.Lost, err.Error()
	case released == nil:
		b.op.Outcome = history.OK
	default:
		b.op.Outcome, b.op.Err, b.op.Released = history.Unknown, released.Error(), history.Forever
	}
	w.emit(b.op)
	if err != nil && !errors.Is(released, zklock.ErrLost) {
		return fmt.Errorf("the hold was lost (%w), and Unlock returned %v", err, released)
	}
	return nil
}
