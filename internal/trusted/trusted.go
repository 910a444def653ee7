// Package trusted is the part of package session that only the locks in a session may use: a method with a Caller among
// its parameters can be called by the packages of this module only, since no other code can name one.
package trusted

import (
	"context"
	"time"
)

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

	// LeaseLeft returns how much is left of the lease by which the session ends for its holders; it takes no mutex, and does
	// not end the session. When nothing is left, session.Session.Alive ends it.
	LeaseLeft() time.Duration

	// GraceLimit returns the bound that a grace has to stay below: the rest of the lease before each heartbeat is
	// answered, when all goes well. It is very long while the session has not been granted a timeout.
	GraceLimit() time.Duration

	// AwaitGrace returns nil when more than d is left of the lease, which is retained: at once, or after the leader has
	// confirmed it, by checks of node. d is below GraceLimit. An error says that the session, or ctx, ended first, or that
	// there is no such znode (zk.ErrNoNode).
	AwaitGrace(ctx context.Context, d time.Duration, node string) error

	// OnGrace has fn called, once, when no more than d is left of the lease, until stop is called; it may still be called
	// while stop is. Heartbeats confirm the lease so early that this does not happen while the ensemble answers. fn must
	// not block.
	OnGrace(d time.Duration, fn func()) (stop func())

	// Abandon is Close without waiting: the session's goroutines end by themselves, within some seconds.
	Abandon()

	// HasRoom reports whether the paths of further ephemeral znodes may take n bytes, each counted with its chroot, its
	// number, and 4 bytes more; or the session has no ephemeral znode: a create that never fits is refused by itself.
	HasRoom(n int) bool

	// Retire makes the session refuse further ephemeral znodes (session.ErrNoRoom), for good, if it has had none for
	// unused: Close then affects no hold. It reports whether it did.
	Retire(unused time.Duration) bool

	// SendDeletes sends deletes of znodes for a caller that does not wait for the answers, and whose process may end
	// next. It returns when the connection has accepted them, or after some hundredths of a second. The function that
	// it returns waits for the answers, and returns those paths for which failed was true of the error of Session.Delete.
	// Nil: there is no connection, and nothing was sent.
	SendDeletes(paths ...string) (answers func(ctx context.Context, failed func(error) bool) []string)

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
