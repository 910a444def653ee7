// Package errtype sorts the errors of locks into classes for metrics: few and fixed.
package errtype

import (
	"context"
	"errors"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/locker/internal/queue"
	"github.com/zklock/locker/zklock"
)

// Classes that are no failure of a lock.
const (
	Busy   = "busy"
	Closed = "closed"
)

// Other is the class of all other errors, as OpenTelemetry's conventions name it.
const Other = "_OTHER"

// classes are in order: the first one that an error matches is its class.
var classes = []struct {
	err  error
	name string
}{
	{zklock.ErrBusy, Busy},
	{zklock.ErrClosed, Closed},
	{zklock.ErrMaxHold, "max_hold"},
	{zklock.ErrNodeDeleted, "node_deleted"},
	{zklock.ErrNodeGone, "node_gone"},
	{zklock.ErrSessionExpired, "session_expired"},
	{zklock.ErrLeaseExpired, "lease_expired"},
	{queue.ErrGone, "node_deleted"},
	{zklock.ErrDeadlock, "deadlock"},
	{zklock.ErrConflict, "conflict"},
	{zklock.ErrInvalid, "option"},
	{zklock.ErrPath, "path"},
	{zklock.ErrAuth, "auth"},
	{zk.ErrNoAuth, "auth"},
	// whichever of the caller's and our own limits ended the call
	{zklock.ErrUnreachable, "unreachable"},
	{context.DeadlineExceeded, "timeout"},
	{context.Canceled, "canceled"},
	{zklock.ErrUnknownOutcome, "unknown_outcome"},
	{zklock.ErrLost, "lost"},
}

// Losses are the classes of a hold's loss. Their counters begin with 0: an increase from nothing
// would be none.
var Losses = []string{"max_hold", "node_deleted", "node_gone", "session_expired", "lease_expired",
	"auth"}

// Of returns an error's class.
func Of(err error) string {
	for _, c := range classes {
		if errors.Is(err, c.err) {
			return c.name
		}
	}
	return Other
}
