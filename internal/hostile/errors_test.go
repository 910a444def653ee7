package hostile_test

import (
	"context"
	"errors"

	"github.com/zklock/locker/session"
	"github.com/zklock/locker/zklock"
)

// sentinel names the kind of an error.
func sentinel(err error) string {
	for _, known := range []struct {
		err  error
		text string
	}{
		{session.ErrGarbled, "garbled"}, {zklock.ErrConflict, "conflict"}, {zklock.ErrSessionExpired, "expired"},
		{zklock.ErrLeaseOver, "lease over"}, {zklock.ErrNodeDeleted, "node deleted"}, {zklock.ErrUnknownOutcome, "unknown outcome"},
		{context.DeadlineExceeded, "deadline"}, {session.ErrConnection, "connection"},
	} {
		if errors.Is(err, known.err) {
			return known.text
		}
	}
	return err.Error()
}
