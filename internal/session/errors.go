package session

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/zklock/locker/internal/session/failure"
	"github.com/zklock/locker/internal/session/internal/ephemeral"
)

// Failures that a call's arguments cause.
var (
	// ErrPath matches the error for a path that ZooKeeper would refuse; the message names the path and the rule.
	ErrPath = errors.New("session: bad path")

	// ErrConfig matches the error for a connect string or Config that can't work; the message names the value and the rule.
	ErrConfig = errors.New("session: bad configuration")
)

// The errors of operations, and of a session's end: see package failure.
var (
	ErrLost           = failure.ErrLost
	ErrExpired        = failure.ErrExpired
	ErrLeaseOver      = failure.ErrLeaseOver
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

// ErrNoRoom matches the error for a create that would bring the paths of the session's ephemeral znodes above
// 512 KB, or half of Config.JuteMaxBuffer if that is less; nothing was sent. The error has the figures.
var ErrNoRoom = ephemeral.ErrNoRoom

// OpError is the error of one operation on the ensemble.
type OpError = failure.OpError

func (s *Session) ended(ctx context.Context, what error) error {
	return failure.Ended(ctx, s.Err(), what)
}

func pathError(path, rule string) error {
	if len(path) > 200 {
		path = path[:200] + "…"
	}
	return fmt.Errorf("%w %q: %s", ErrPath, path, rule)
}

func configError(what string, value any, rule string) error {
	if d, ok := value.(time.Duration); ok {
		return fmt.Errorf("%w: %s %v: %s", ErrConfig, what, d, rule)
	}
	return fmt.Errorf("%w: %s %q: %s", ErrConfig, what, value, rule)
}

// Doubt remembers, while a write is repeated, that an attempt may have been carried out. The zero value is ready.
type Doubt struct{ unknown bool }

// Note notes the error of one attempt.
func (d *Doubt) Note(err error) { d.unknown = d.unknown || errors.Is(err, failure.ErrUnknownOutcome) }

// Add returns err, that of the last attempt, so that it matches ErrUnknownOutcome if any attempt's did.
func (d *Doubt) Add(err error) error {
	if err == nil || !d.unknown || errors.Is(err, failure.ErrUnknownOutcome) {
		return err
	}
	return fmt.Errorf("%w (%w)", err, failure.ErrUnknownOutcome)
}
