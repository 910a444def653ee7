package otelzklock

import (
	"context"
	"errors"

	"github.com/go-zookeeper/zk"
	"go.opentelemetry.io/otel/attribute"

	"github.com/zklock/locker/recipe"
	"github.com/zklock/locker/session"
	"github.com/zklock/locker/zklock"
)

// Attributes.
const (
	kindKey    = attribute.Key("zklock.lock.kind")
	pathKey    = attribute.Key("zklock.lock.path")
	pathsKey   = attribute.Key("zklock.lock.paths")
	ownerKey   = attribute.Key("zklock.lock.owner")
	permitsKey = attribute.Key("zklock.lock.permits")
	tryKey     = attribute.Key("zklock.lock.try")
	callKey    = attribute.Key("zklock.call")
	joinedKey  = attribute.Key("zklock.call.joined")
	tokenKey   = attribute.Key("zklock.lock.token")
	nodeKey    = attribute.Key("zklock.lock.node")
	endKey     = attribute.Key("zklock.lock.end")
	aheadKey   = attribute.Key("zklock.lock.ahead")
	holderKey  = attribute.Key("zklock.lock.holder")
	whoKey     = attribute.Key("zklock.lock.who")
	stateKey   = attribute.Key("zklock.session.state")

	errorTypeKey = attribute.Key("error.type")    // of OpenTelemetry's semantic conventions
	messageKey   = attribute.Key("error.message") // likewise
)

// lockAttributes are those of a span.
func lockAttributes(i zklock.LockInfo) []attribute.KeyValue {
	attrs := []attribute.KeyValue{kindKey.String(i.Kind), callKey.Int64(int64(i.Call))}
	if len(i.Paths) > 0 {
		attrs = append(attrs, pathsKey.StringSlice(i.Paths))
	} else {
		attrs = append(attrs, pathKey.String(i.Path))
	}
	if i.Owner != "" {
		attrs = append(attrs, ownerKey.String(i.Owner))
	}
	if i.Permits > 0 {
		attrs = append(attrs, permitsKey.Int(i.Permits))
	}
	if i.Try {
		attrs = append(attrs, tryKey.Bool(true))
	}
	return attrs
}

const (
	typeBusy   = "busy"
	typeClosed = "closed"
)

// errorTypes are the values of error.type, few and fixed; the first that an error matches is its own.
var errorTypes = []struct {
	err  error
	name string
}{
	{zklock.ErrBusy, typeBusy},
	{zklock.ErrClosed, typeClosed},
	{zklock.ErrMaxHold, "max_hold"},
	{zklock.ErrNodeDeleted, "node_deleted"},
	{zklock.ErrSessionExpired, "session_expired"},
	{zklock.ErrLeaseOver, "lease_over"},
	{recipe.ErrGone, "node_deleted"},
	{zklock.ErrDeadlock, "deadlock"},
	{zklock.ErrConflict, "conflict"},
	{zklock.ErrOption, "option"},
	{zklock.ErrPath, "path"},
	{session.ErrAuth, "auth"},
	{zk.ErrNoAuth, "auth"},
	{context.DeadlineExceeded, "timeout"},
	{context.Canceled, "canceled"},
	{zklock.ErrUnknownOutcome, "unknown_outcome"},
	{zklock.ErrLost, "lost"},
}

// errorType is an error's class; "_OTHER", as the conventions have it, for one that has none here.
func errorType(err error) string {
	for _, t := range errorTypes {
		if errors.Is(err, t.err) {
			return t.name
		}
	}
	return "_OTHER"
}
