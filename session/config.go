package session

import (
	"bytes"
	"cmp"
	"crypto/tls"
	"fmt"
	"log/slog"
	"math"
	"net"
	"strconv"
	"time"

	"github.com/go-zookeeper/zk"
)

// Defaults of Config.
const (
	DefaultTimeout    = 10 * time.Second
	DefaultServerTick = 2 * time.Second

	// DefaultPacketLimit is that of ZooKeeper's jute.maxbuffer, in bytes.
	DefaultPacketLimit = 0xfffff
)

// Limits of Config.Timeout: below, no server of a usual configuration would grant it and a garbage collection could
// cost the session; above, the wire format (milliseconds in 32 bits) and any use of a lock end.
const (
	minTimeout = 100 * time.Millisecond
	maxTimeout = 24 * time.Hour
)

// Auth is one set of credentials, such as {"digest", []byte("user:password")}. Those of the scheme digest need a user and a
// colon.
type Auth struct {
	Scheme     string
	Credential []byte
}

// Dialer opens a connection to one server, within timeout. It has the driver's signature, so that a Dialer for the
// driver, or an in-process server's, fits.
type Dialer func(network, addr string, timeout time.Duration) (net.Conn, error)

// Config says how Open opens a session. The zero value of each field means its default.
type Config struct {
	// Timeout is the session timeout asked for; the server may grant another one (Session.Timeout).
	// From 100 ms to 24 h; default 10 s.
	Timeout time.Duration

	// ServerTick is the ensemble's tickTime, or more. A request counts for the lease only when the server that took it
	// has had two ticks to report to the leader; too small a value is unsafe, too large a one shortens the lease. A
	// server that grants a session timeout below one tick is refused, since then the tick can't be the ensemble's.
	// Default 2 s, which is ZooKeeper's.
	ServerTick time.Duration

	// PacketLimit is the longest request, in bytes, that the ensemble's servers take: their jute.maxbuffer. A longer one
	// would cost the connection at every attempt; it is refused before it leaves (ErrTooLarge). Set it when the servers'
	// limit is not the default. From 1,024 to 2^31−1; default 1,048,575.
	PacketLimit int

	// EphemeralBytes bounds the paths of the session's ephemeral znodes: their lengths, with chroot and sequence number, and
	// 4 bytes for each. Creates beyond it are refused (ErrNoRoom). When a session ends, the ensemble writes one transaction
	// that lists them all; servers since 3.6.0 refuse to read one that is longer than jute.maxbuffer and its extra, and are
	// lost. So it must stay well below 2 × jute.maxbuffer. From 16 KB to 64 MB; default 512 KB, some 6,000 locks, or half of
	// PacketLimit if that is less.
	EphemeralBytes int

	// CreateChroot lets CreateAll make the connect string's chroot when it is missing, which otherwise is an error: with
	// a misspelt chroot locks would not exclude other clients.
	CreateChroot bool

	// Auth is presented on every connection before anything else.
	Auth []Auth

	// SASL, when set, is negotiated on every connection behind that, before any other request.
	SASL SASL

	// TLS, when set, encrypts the connections; ServerName defaults to the host of each server.
	TLS *tls.Config

	// Dial, when set, opens the connections and resolves the names; TLS comes on top of it.
	Dial Dialer

	// Logger, when set, logs connections and ends at level Info, and a lost connection at level Warn.
	Logger *slog.Logger

	// OnState, when set, is called for every change of State, in order, in one goroutine of the session's, which Close
	// joins. It must not call Close.
	OnState func(Change)
}

// Change is a change of a session's state.
type Change struct {
	State   State
	ID      int64         // of the session; 0 before the first handshake
	Addr    string        // of the server, for Connected and Disconnected
	Timeout time.Duration // that the ensemble granted, for Connected
	Err     error         // why, for Disconnected and Over
}

// config is a Config with its defaults filled in and checked, and the parts of the connect string.
type config struct {
	Config
	servers []string
	chroot  string
}

// check validates before any I/O.
func (c Config) check(connect string) (config, error) {
	servers, chroot, err := ParseConnect(connect)
	if err != nil {
		return config{}, err
	}
	c.Timeout = cmp.Or(c.Timeout, DefaultTimeout)
	c.ServerTick = cmp.Or(c.ServerTick, DefaultServerTick)
	c.PacketLimit = cmp.Or(c.PacketLimit, DefaultPacketLimit)
	if c.PacketLimit < 1024 || c.PacketLimit > math.MaxInt32 {
		return config{}, configError("packet limit", fmt.Sprint(c.PacketLimit), "is not between 1024 and 2^31-1 bytes")
	}
	if c.Timeout < minTimeout || c.Timeout > maxTimeout {
		return config{}, configError("session timeout", c.Timeout, "is not between 100ms and 24h")
	}
	if c.ServerTick < 0 || c.ServerTick > maxTimeout {
		return config{}, configError("server tick", c.ServerTick, "is not between 0 and 24h")
	}
	switch {
	case c.EphemeralBytes == 0:
		c.EphemeralBytes = min(defaultEphemeralBytes, c.PacketLimit/2)
	case c.EphemeralBytes < minEphemeralBytes || c.EphemeralBytes > maxEphemeralBytes:
		return config{}, configError("room for ephemeral znodes", strconv.Itoa(c.EphemeralBytes), "is not between 16384 and 67108864 bytes")
	}
	var auth []Auth
	for _, a := range c.Auth {
		if a.Scheme == "" {
			return config{}, configError("auth scheme", a.Scheme, "is empty")
		}
		if user, _, ok := bytes.Cut(a.Credential, []byte(":")); a.Scheme == "digest" && (!ok || len(user) == 0) {
			return config{}, configError("credential of auth scheme", a.Scheme, "is not user:password") // which is not shown
		}
		auth = append(auth, Auth{a.Scheme, bytes.Clone(a.Credential)}) // the caller may wipe his
	}
	c.Auth = auth
	return config{c, servers, chroot}, nil
}

// tell logs a change and passes it on. It runs in the notifier's goroutine: a handler that blocks holds up nothing else.
func (c *config) tell(ch Change) {
	if c.Logger != nil {
		id := fmt.Sprintf("%#x", uint64(ch.ID)) // as the ensemble's own logs have it
		if ch.ID == 0 {
			id = "none yet"
		}
		switch ch.State {
		case Connected: // with both timeouts: an operator wonders why a crash takes longer to be noticed than he configured
			c.Logger.Info("session connected", "session", id, "server", ch.Addr, "timeout", ch.Timeout, "asked", c.Timeout)
		case Disconnected: // in doubt, and with it every hold
			c.Logger.Warn("session disconnected", "session", id, "server", ch.Addr, "cause", ch.Err)
		case Over:
			c.Logger.Info("session over", "session", id, "cause", ch.Err)
		}
	}
	if c.OnState != nil {
		c.OnState(ch)
	}
}

// WorldACL is the access list that lets every client do everything: ZooKeeper's default.
func WorldACL() []zk.ACL { return zk.WorldACL(zk.PermAll) }
