// Package session has what a program says to, and hears from, the ZooKeeper session of its locks:
// its znodes and transactions, its state, and how its connections are opened and authenticated.
//
// zklock.Client.Session returns the session, so that a program needs no second connection for
// znodes of its own:
//
//	s, err := client.Session(ctx)
//	…
//	_, err = s.Create(ctx, "/jobs/job-", data, session.PersistentSequential, session.WorldACL())
package session

import (
	"context"
	"fmt"
	"net"
	"time"

	"github.com/go-zookeeper/zk"
)

// Session reads and writes znodes of the program's own. It can't end the session; leave the locks'
// znodes alone. Paths are below the chroot of the connect string. Version −1 means any. Its methods
// may be called concurrently.
//
// A call blocks for one round trip and, while there is no connection, until there is one; it
// returns promptly when ctx or the session ends. Reads are repeated when the connection breaks. A
// write is sent once, but for CreateAll's. Errors:
//   - the driver's (zk.ErrNoNode, …) when the ensemble refuses;
//   - zklock.ErrUnknownOutcome: a write's reply was lost, or ctx ended after it was sent, or a
//     server in trouble answered it;
//   - zklock.ErrSessionFull: there is no room for another ephemeral znode; zklock.ErrTooLarge;
//     zklock.ErrPath. Nothing was sent;
//   - ctx's, or why the session is over.
type Session interface {
	// Create makes a znode. Its parent must exist.
	Create(ctx context.Context, path string, data []byte, mode Mode, acl []zk.ACL) (Created, error)
	// CreateAll makes path and its missing parents, which are persistent. A znode that exists is
	// left as it is.
	CreateAll(ctx context.Context, path string, data []byte, mode Mode, acl []zk.ACL) error
	Get(ctx context.Context, path string) ([]byte, zk.Stat, error)
	Set(ctx context.Context, path string, data []byte, version int32) (zk.Stat, error)
	Delete(ctx context.Context, path string, version int32) error
	// Exists returns the znode's Stat, or zk.ErrNoNode.
	Exists(ctx context.Context, path string) (zk.Stat, error)
	// List returns the names of the children, in no order.
	List(ctx context.Context, path string) ([]string, zk.Stat, error)
	ACL(ctx context.Context, path string) ([]zk.ACL, zk.Stat, error)
	SetACL(ctx context.Context, path string, acl []zk.ACL, version int32) (zk.Stat, error)
	// Multi carries out several writes in one transaction: all or none. If the ensemble refuses,
	// the error is that of the operation that failed. Even then each operation has a response,
	// unless all were refused together.
	Multi(ctx context.Context, ops ...Op) ([]zk.MultiResponse, error)
	// Sync waits until the connected server has caught up with the leader: reads after it see what
	// was carried out before it, but for writes that the leader carried out in the milliseconds
	// around the call.
	Sync(ctx context.Context, path string) error

	ID() int64 // 0 before the ensemble has answered
	State() State
	// Context ends with the session; context.Cause then says why, as Err does.
	Context() context.Context
	Err() error
	// SafeUntil is the instant, by the local clock, before which the ensemble can't have ended the
	// session by itself.
	SafeUntil() time.Time
	// Timeout is what the ensemble granted.
	Timeout() time.Duration
}

// Created is the outcome of a create.
type Created struct {
	Path  string // with its number, if the znode is sequential
	Czxid int64  // the zxid of the create
}

// Dialer opens a connection to one server, within timeout. The signature is the driver's, so a
// Dialer made for the driver, or an in-process server's, fits.
type Dialer func(network, addr string, timeout time.Duration) (net.Conn, error)

// SASL is a mechanism by which a client authenticates to a server: DigestMD5, or one of the
// program's own. Each connection negotiates again, so its methods are called repeatedly, and
// concurrently by several sessions of a client.
type SASL interface {
	// Name returns the mechanism's name, such as "DIGEST-MD5", for errors.
	Name() string
	// Begin begins a negotiation with the server at address host:port.
	Begin(server string) Negotiation
}

// Negotiation is one run of a SASL mechanism, on one connection.
type Negotiation interface {
	// Step takes the server's challenge, nil at first, and returns the token to send to it. done:
	// the mechanism needs no further challenge; a token that is not nil is still sent. An error
	// gives up the connection, and another server is tried. Refused credentials are reported by the
	// server, not by Step. ctx bounds the time for Step.
	Step(ctx context.Context, challenge []byte) (token []byte, done bool, err error)
}

// State is a session's state.
type State int

const (
	// Connecting: no server has answered yet; there is no session.
	Connecting State = iota
	// Connected: requests travel.
	Connected
	// Disconnected: no connection; the session may go on, or have ended. Requests wait for the next
	// connection.
	Disconnected
	// Over: the session has ended for good; Err says why.
	Over
)

// String returns the state's name in lower case.
func (s State) String() string {
	names := [...]string{Connecting: "connecting", Connected: "connected",
		Disconnected: "disconnected", Over: "over"}
	if s >= 0 && int(s) < len(names) {
		return names[s]
	}
	return fmt.Sprintf("State(%d)", int(s))
}

// Change is a change of a session's state.
type Change struct {
	State   State
	ID      int64         // of the session; 0 before the first handshake
	Addr    string        // of the server, for Connected and Disconnected
	Timeout time.Duration // that the ensemble granted, for Connected
	Err     error         // why, for Disconnected and Over
}
