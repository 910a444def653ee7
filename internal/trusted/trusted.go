// Package trusted is the part of package session that only the locks in a session may use: a method with a Caller among
// its parameters can be called by the packages of this module only, since no other code can name one.
package trusted

import "context"

// Caller proves that the caller is a package of this module.
type Caller struct{ _ struct{} }

// Session is the side of a session.Session that locks use: see session.Session.ForLocks. Its methods may be called
// concurrently.
type Session interface {
	// Retain marks the session as protecting a lock: until Release its lease is confirmed through the leader by
	// heartbeats, each of which checks one of the znodes retained, and the session is over, for its holders, when the
	// confirmed lease is. Each lock releases only its own Retention; with a counter, a second Release would end the protection
	// of another lock.
	//
	// nodes, one at least, are ephemeral znodes of the session, which exist only together: heartbeats check them in
	// turn. When Retain returns nil, SafeUntil is at least an eighth of the timeout ahead. Mostly it is already, and
	// nothing is sent; after a long time without a write it takes one round trip to the leader. An error says that the
	// session, or ctx, ended first, or that there is no such znode (zk.ErrNoNode); then there is nothing to Release.
	Retain(ctx context.Context, nodes ...string) (Retention, error)

	// Found records the outcome of creates of path, sequential and ephemeral, that was unknown, after a search: made is
	// the znode's path and czxid its czxid, or "" when there is none. No other caller may use path.
	Found(path, made string, czxid int64)

	// Gone records that the ephemeral znode path is gone for good, by other evidence than an answer about it: for example, a
	// transaction's reply was lost, and another znode proves that it was carried out.
	Gone(path string)

	// Attached returns what the locks of this session have in common: what create returned in the first call of all.
	Attached(create func() any) any
}

// Retention is one lock's claim that the session's lease is kept: see Session.Retain. Its methods may be called
// concurrently.
type Retention interface {
	// Release undoes the Retain. It may be called more than once.
	Release()

	// OnMissing has fn called, in a goroutine of the session's, should a heartbeat find one of the znodes missing, or have
	// found it so already. The next heartbeats check the znodes of others.
	OnMissing(fn func(node string))
}
