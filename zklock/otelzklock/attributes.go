package otelzklock

import (
	"go.opentelemetry.io/otel/attribute"

	"github.com/zklock/locker/zklock"
)

// The attributes of metrics and spans.
const (
	kindKey        = attribute.Key("zklock.lock.kind")
	pathKey        = attribute.Key("zklock.lock.path")
	pathsKey       = attribute.Key("zklock.lock.paths")
	ownerKey       = attribute.Key("zklock.lock.owner")
	permitsKey     = attribute.Key("zklock.lock.permits")
	tryKey         = attribute.Key("zklock.lock.try")
	callKey        = attribute.Key("zklock.call")
	joinedKey      = attribute.Key("zklock.call.joined")
	tokenKey       = attribute.Key("zklock.lock.token")
	nodeKey        = attribute.Key("zklock.lock.node")
	endKey         = attribute.Key("zklock.lock.end")
	aheadKey       = attribute.Key("zklock.lock.ahead")
	holderNodeKey  = attribute.Key("zklock.lock.holder")
	holderOwnerKey = attribute.Key("zklock.lock.who")
	stateKey       = attribute.Key("zklock.session.state")

	errorTypeKey = attribute.Key("error.type") // of OpenTelemetry's semantic conventions
	messageKey   = attribute.Key("zklock.error.message")
)

// holdAttributes returns the attributes that a span has once the call holds.
func holdAttributes(i zklock.LockInfo) []attribute.KeyValue {
	return []attribute.KeyValue{tokenKey.Int64(int64(i.Token)), nodeKey.String(i.Node)}
}

// lockAttributes returns the attributes of every span.
func lockAttributes(i zklock.LockInfo) []attribute.KeyValue {
	attrs := []attribute.KeyValue{kindKey.String(string(i.Kind)), callKey.Int64(int64(i.Call))}
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
