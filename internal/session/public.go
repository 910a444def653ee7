package session

import (
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/locker/internal/session/internal/lease"
	"github.com/zklock/locker/session"
)

// The names that programs need are in package session at the module's top, which has nothing else.
type (
	Change      = session.Change
	Created     = session.Created
	Dialer      = session.Dialer
	Mode        = session.Mode
	Negotiation = session.Negotiation
	Op          = session.Op
	OpCheck     = session.OpCheck
	OpCreate    = session.OpCreate
	OpDelete    = session.OpDelete
	OpSet       = session.OpSet
	SASL        = session.SASL
	State       = session.State
)

const (
	Connecting   = session.Connecting
	Connected    = session.Connected
	Disconnected = session.Disconnected
	Over         = session.Over

	Persistent           = session.Persistent
	Ephemeral            = session.Ephemeral
	PersistentSequential = session.PersistentSequential
	EphemeralSequential  = session.EphemeralSequential
	Container            = session.Container
)

// WorldACL is ZooKeeper's default access list: every client may do everything.
func WorldACL() []zk.ACL { return session.WorldACL() }

// HealthyLease returns how much of the time until SafeUntil is left, at least, while a lock is held
// and the ensemble answers: for a session timeout and the servers' tick.
func HealthyLease(timeout, tick time.Duration) time.Duration { return lease.Healthy(timeout, tick) }

var _ session.Session = (*Session)(nil)
