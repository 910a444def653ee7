package session

import (
	"context"
	"errors"
	"fmt"

	"github.com/zklock/locker/internal/session/failure"
	"github.com/zklock/locker/internal/session/internal/ephemeral"
)

// The errors of operations, and of a session's end: see package failure.
var (
	ErrLost           = failure.ErrLost
	ErrExpired        = failure.ErrExpired
	ErrLeaseExpired   = failure.ErrLeaseExpired
	ErrAuth           = failure.ErrAuth
	ErrClosed         = failure.ErrClosed
	ErrUnknownOutcome = failure.ErrUnknownOutcome
	ErrNoReply        = failure.ErrNoReply
	ErrNotSent        = failure.ErrNotSent
	ErrTooLarge       = failure.ErrTooLarge
	ErrConnection     = failure.ErrConnection
	ErrGarbled        = failure.ErrGarbled
	ErrUnreachable    = failure.ErrUnreachable
)

// ErrSessionFull matches the error for a create that would bring the paths of the session's
// ephemeral znodes above 512 KB, or half of Config.JuteMaxBuffer if that is less; nothing was sent.
// The error has the figures.
var ErrSessionFull = ephemeral.ErrSessionFull

// OpError is the error of one operation on the ensemble.
type OpError = failure.OpError

// ended joins what has happened to a call with the end of ctx or of the session: see failure.Ended.
func (s *Session) ended(ctx context.Context, what error) error {
	return failure.Ended(ctx, s.Err(), what)
}

// Doubt remembers, while a write is repeated, that an attempt may have been carried out. The zero
// value is ready.
type Doubt struct{ unknown bool }

// Note notes the error of one attempt.
func (d *Doubt) Note(err error) {
	d.unknown = d.unknown || errors.Is(err, failure.ErrUnknownOutcome)
}

// Add returns err, the error of the last attempt. If the error of any attempt matched
// ErrUnknownOutcome, the result matches it too.
func (d *Doubt) Add(err error) error {
	if err == nil || !d.unknown || errors.Is(err, failure.ErrUnknownOutcome) {
		return err
	}
	return fmt.Errorf("%w (%w)", err, failure.ErrUnknownOutcome)
}
