package zklock

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"log/slog"
	"time"

	"github.com/zklock/locker/internal/trusted"
	"github.com/zklock/locker/session"
)

// Option configures Dial. An option that can't work is refused by Dial (ErrOption), before any I/O.
type Option struct{ set func(*options) error }

type options struct {
	session session.Config
	hooks   Hooks
}

// chosen is what opts add up to.
func chosen(opts []Option) (o options, err error) {
	for _, opt := range opts {
		if opt.set == nil {
			return o, fmt.Errorf("%w: option: is the zero value", ErrOption)
		}
		if err := opt.set(&o); err != nil {
			return o, err
		}
	}
	return o, nil
}

// unless returns the function of an option, which refuses it for a reason when it is wrong.
func unless[O any](wrong bool, set func(*O), reason string, args ...any) func(*O) error {
	return func(o *O) error {
		if wrong {
			return fmt.Errorf("%w: %s", ErrOption, fmt.Sprintf(reason, args...))
		}
		set(o)
		return nil
	}
}

// SessionConfig returns what opts say of the sessions. It is for the packages of this module alone.
func SessionConfig(_ trusted.Caller, opts ...Option) (session.Config, error) {
	o, err := chosen(opts)
	return o.session, err
}

// Dialer opens a connection to one server, within timeout.
type Dialer = session.Dialer

// WithSessionTimeout asks for a session timeout of d: how long the ensemble waits for a client that is silent before
// it gives its locks to others. The server may grant another one, usually between 2 and 20 of its ticks. Longer
// survives longer hiccups, shorter frees the locks of a crashed process sooner. Below four of the ensemble's ticks a
// hold is lost, safely, when its server hangs, because there is no time left to try another. From 100 ms to 24 h;
// default 10 s.
func WithSessionTimeout(d time.Duration) Option {
	return Option{unless(d <= 0, func(o *options) { o.session.Timeout = d }, "session timeout %v: is not positive", d)}
}

// WithServerTick names the ensemble's tickTime: the lease counts an answer only when the server that gave it has had time
// to report to its leader. Too short a value is unsafe on a server that has lost its leader: a hold may outlast its session.
// Too long a one shortens every lease, by two ticks and by half the session timeout at most; with a short timeout a change
// of the ensemble's leader then ends every hold. Default 2 s, which is long for an ensemble with shorter ticks.
func WithServerTick(d time.Duration) Option {
	return Option{unless(d <= 0, func(o *options) { o.session.ServerTick = d }, "server tick %v: is not positive", d)}
}

// WithPacketLimit names the ensemble's jute.maxbuffer, in bytes, where it is not ZooKeeper's default: the length of the
// longest request that its servers take. A longer one costs the connection, so it is refused before it leaves (ErrTooLarge).
// From 1,024 to 2^31−1; default 1,048,575.
func WithPacketLimit(bytes int) Option {
	return Option{unless(bytes <= 0, func(o *options) { o.session.PacketLimit = bytes },
		"packet limit %d: is not positive", bytes)}
}

// WithEphemeralBytes bounds the paths of the ephemeral znodes that one session may have, the client's holds, waits and
// the program's own: their lengths, with chroot and number, and 4 bytes for each. When a session ends, the ensemble writes
// one transaction that lists them all, and servers since 3.6.0 that read one longer than their jute.maxbuffer and its
// extra are lost for good. So n must stay well below twice the least jute.maxbuffer in the ensemble. For more locks than
// that the client opens further sessions by itself, 32 in all, and closes each when it has been without a lock for a
// minute; what there is no room for then is refused (ErrNoRoom), and so is a MultiLock that is too large for one
// session. The loss of a session loses the holds that live in it, and no others. From 16 KB to 64 MB; default 512 KB,
// some 6,000 locks a session, or half of WithPacketLimit if that is less.
func WithEphemeralBytes(n int) Option {
	return Option{unless(n <= 0, func(o *options) { o.session.EphemeralBytes = n },
		"room for ephemeral znodes of %d bytes: is not positive", n)}
}

// WithCreateChroot lets locks make the chroot of the connect string when it is missing. Default: a lock below a chroot
// that does not exist is ErrOption, since the chroot may be misspelt, and the lock would then exclude nobody.
func WithCreateChroot() Option {
	return Option{func(o *options) error { o.session.CreateChroot = true; return nil }}
}

// WithAuth presents credentials on every connection: WithAuth("digest", []byte("user:password")). It may be given
// several times. Default: none.
func WithAuth(scheme string, cred []byte) Option {
	return Option{unless(scheme == "", func(o *options) {
		o.session.Auth = append(o.session.Auth, session.Auth{Scheme: scheme, Credential: bytes.Clone(cred)})
	},
		"auth scheme %q: is empty", scheme)}
}

// SASL is a mechanism by which the client proves to each server who it is: DigestMD5, Kerberos with the
// module zklock/kerberos, or one of a program's own.
type SASL = session.SASL

// DigestMD5 is the SASL mechanism DIGEST-MD5, with a user and a password that the servers' JAAS configuration has. The
// password does not cross the wire; what follows is not encrypted by it. Access lists name the user as {"sasl", user}.
func DigestMD5(user, password string) SASL { return session.DigestMD5(user, password) }

// WithSASL has each connection authenticate by a SASL mechanism, before it is used: WithSASL(DigestMD5("user", "password")).
// What the servers refuse ends Dial, and every session, with session.ErrAuth. Default: none.
func WithSASL(mechanism SASL) Option {
	return Option{unless(mechanism == nil, func(o *options) { o.session.SASL = mechanism }, "SASL mechanism: is nil")}
}

// WithTLS encrypts the connections. conf.ServerName defaults to the host of each server. Default: plain TCP.
func WithTLS(conf *tls.Config) Option {
	return Option{unless(conf == nil, func(o *options) { o.session.TLS = conf }, "TLS configuration: is nil")}
}

// WithDialer opens the connections with dial instead of TCP: through a proxy, or to an in-process server. TLS comes on
// top of it.
func WithDialer(dial Dialer) Option {
	return Option{unless(dial == nil, func(o *options) { o.session.Dial = dial }, "dialer: is nil")}
}

// WithLogger logs everything that Hooks report, and failures that no call returns: the ordinary course of locks at level
// Debug, sessions that come up or end at Info, a lost connection and a lost lock at Warn. Attributes are call, kind,
// path, owner, permits, try, token, node, waited, held, ahead, holder, who, joined, error and cause for locks, session,
// server, timeout, asked and cause for sessions. Lines about a lock are logged with the context of LockInfo. Default:
// silent, but for a Dial that has no deadline and finds no server.
func WithLogger(log *slog.Logger) Option {
	return Option{unless(log == nil, func(o *options) { o.session.Logger = log }, "logger: is nil")}
}

// WithHooks calls h for every event. If the option is given twice the last one counts: see JoinHooks. Default: none.
func WithHooks(h Hooks) Option {
	return Option{func(o *options) error {
		o.hooks = h
		return nil
	}}
}
