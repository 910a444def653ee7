package zklock

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"log/slog"
	"time"

	"github.com/go-zookeeper/zk"

	zksession "github.com/zklock/locker/internal/session"
	"github.com/zklock/locker/session"
)

// Option configures Dial and Open, which refuse one that can't work (ErrInvalid) before any I/O.
type Option struct{ set func(*options) error }

type options struct {
	session zksession.Config
	hooks   Hooks
}

func chosen(opts []Option) (o options, err error) {
	for _, opt := range opts {
		if opt.set == nil {
			return o, fmt.Errorf("%w: option: is the zero value", ErrInvalid)
		}
		if err := opt.set(&o); err != nil {
			return o, err
		}
	}
	return o, nil
}

// unless returns the function of an option, which refuses the option, with the reason, if it is wrong.
func unless[O any](wrong bool, set func(*O), reason string, args ...any) func(*O) error {
	return func(o *O) error {
		if wrong {
			return fmt.Errorf("%w: %s", ErrInvalid, fmt.Sprintf(reason, args...))
		}
		set(o)
		return nil
	}
}

// WithSessionTimeout asks for a session timeout: how long the ensemble waits for a silent client before it gives its locks to
// others. The server may grant another one, usually between 2 and 20 of its ticks; below four ticks a hold is lost, safely, when
// its server hangs. From 100 ms to 24 h; default 10 s.
func WithSessionTimeout(d time.Duration) Option {
	return Option{unless(d <= 0, func(o *options) { o.session.Timeout = d }, "session timeout %v: is not positive", d)}
}

// WithTickTime is the ensemble's tickTime, for one whose minSessionTimeout is not two ticks. The lease allows for it. Too short a
// value is unsafe when a server has lost its leader: a hold may outlast its session. Default: it is found out
// (SessionStatus.TickTime).
func WithTickTime(d time.Duration) Option {
	return Option{unless(d <= 0, func(o *options) { o.session.TickTime = d }, "tick time %v: is not positive", d)}
}

// WithJuteMaxBuffer is the ensemble's jute.maxbuffer: the length in bytes of the longest request that its servers take. A
// longer one is refused (ErrTooLarge). From 1,024 to 2^31−1; default 1,048,575.
func WithJuteMaxBuffer(bytes int) Option {
	return Option{unless(bytes <= 0, func(o *options) { o.session.JuteMaxBuffer = bytes },
		"jute.maxbuffer %d: is not positive", bytes)}
}

// WithCreateChroot lets locks make the chroot of the connect string. Default: a missing one is ErrInvalid, since it may be
// misspelt, and the lock would then exclude nobody.
func WithCreateChroot() Option {
	return Option{func(o *options) error { o.session.CreateChroot = true; return nil }}
}

// WithAuth presents credentials on every connection: WithAuth("digest", []byte("user:password")). It may be repeated.
// Default: none.
func WithAuth(scheme string, cred []byte) Option {
	auth := zksession.Auth{Scheme: scheme, Credential: bytes.Clone(cred)}
	return Option{unless(scheme == "", func(o *options) { o.session.Auth = append(o.session.Auth, auth) },
		"auth scheme %q: is empty", scheme)}
}

// WithSASL has each connection authenticate by a SASL mechanism: session.DigestMD5("user", "password"), Kerberos with the module
// zklock/kerberos, or one of the program's own. What the servers refuse ends Dial, and every session, with ErrAuth. Default: none.
func WithSASL(mechanism session.SASL) Option {
	return Option{unless(mechanism == nil, func(o *options) { o.session.SASL = mechanism }, "SASL mechanism: is nil")}
}

// WithTLS encrypts the connections. conf.ServerName defaults to the host of each server. Default: plain TCP.
func WithTLS(conf *tls.Config) Option {
	return Option{unless(conf == nil, func(o *options) { o.session.TLS = conf }, "TLS configuration: is nil")}
}

// WithDialer opens the connections with dial instead of TCP: through a proxy, or to an in-process server. TLS comes on top.
func WithDialer(dial session.Dialer) Option {
	return Option{unless(dial == nil, func(o *options) { o.session.Dial = dial }, "dialer: is nil")}
}

// WithLogger logs what Hooks report, with the context of LockInfo, and failures that no call returns: the ordinary course of
// locks at level Debug, sessions at Info, a lost connection and a lost lock at Warn. Default: silent, but for a Dial that has
// no deadline and finds no server.
func WithLogger(log *slog.Logger) Option {
	return Option{unless(log == nil, func(o *options) { o.session.Logger = log }, "logger: is nil")}
}

// WithHooks calls h for every event. It may be repeated: the hooks are called in that order. Default: none.
func WithHooks(h Hooks) Option {
	return Option{func(o *options) error { o.hooks = o.hooks.and(h); return nil }}
}

// LockOption configures one lock. Every call on the lock reports an option that can't work, or that its kind can't have
// (ErrInvalid), before any I/O.
type LockOption struct{ set func(*lockOptions) error }

type lockOptions struct {
	wait, maxHold        time.Duration
	waitSet              bool
	reentrant, container bool
	owner                string
	acl                  []zk.ACL
	entrance             func(lock) (entrance, error)
}

// maxData bounds the bytes of a candidate's value and WithOwner: a znode is no place for documents.
const maxData = 64 << 10

// openToAll is the access list of locks without WithACL. It is never changed.
var openToAll = session.WorldACL()

func newLockOptions(noun string, opts []LockOption) (o lockOptions, err error) {
	for _, opt := range opts {
		if opt.set == nil {
			return o, fmt.Errorf("%w: lock option: is the zero value", ErrInvalid)
		}
		if err := opt.set(&o); err != nil {
			return o, err
		}
	}
	switch {
	case o.reentrant && noun == nounJob:
		err = fmt.Errorf("%w: WithReentrancy is not for a %s: two calls under one hold would both run it", ErrInvalid, noun)
	case o.reentrant && noun == nounSemaphore:
		err = fmt.Errorf("%w: WithReentrancy is not for a %s: each call takes permits of its own", ErrInvalid, noun)
	case o.reentrant && noun == nounElection:
		err = fmt.Errorf("%w: WithReentrancy is not for an %s: a candidate leads once", ErrInvalid, noun)
	}
	if o.acl == nil {
		o.acl = openToAll
	}
	return o, err
}

// WithMaxWait bounds every Lock: after d in line it returns ErrBusy, or, without a connection in all that time,
// context.DeadlineExceeded. With d = 0 Lock does not wait, like TryLock. Default: as long as the context lasts.
func WithMaxWait(d time.Duration) LockOption {
	return LockOption{unless(d < 0, func(o *lockOptions) { o.wait, o.waitSet = d, true }, "wait %v: is negative", d)}
}

// WithMaxHold ends a hold after d, with the cause ErrMaxHold: first its context, which has that deadline, then its znode. It
// guards against work that hangs; work that ignores its context is then unprotected. Default: no limit. Reentrant holds use the
// first's limit.
func WithMaxHold(d time.Duration) LockOption {
	return LockOption{unless(d <= 0, func(o *lockOptions) { o.maxHold = d }, "max hold %v: is not positive", d)}
}

// WithReentrancy lets a Lock with the context of a hold of the same lock succeed at once. Holds are counted, and the last Unlock
// releases the lock. Default: such a call is ErrDeadlock.
func WithReentrancy() LockOption {
	return LockOption{func(o *lockOptions) error { o.reentrant = true; return nil }}
}

// WithOwner names the owner for other clients, besides host and process id. At most 64 KB; errors and logs show 64 characters
// of it. Default: none.
func WithOwner(name string) LockOption {
	return LockOption{unless(len(name) > maxData, func(o *lockOptions) { o.owner = name },
		"owner of %d bytes: is longer than 64 KB", len(name))}
}

// WithACL sets the access list of every znode that the lock makes: the contenders' and, where they are missing, the lock's
// directory and its parents. Default: everybody may do everything.
//
// All who use a lock must be able to read each other's znodes, and to create and delete in its directory; those of a semaphore also
// to write. Who may delete there may delete the holder's znode. A client is not notified when a znode that it may not read goes: it
// looks again after a session timeout, later once a minute.
func WithACL(acl ...zk.ACL) LockOption {
	return LockOption{unless(len(acl) == 0, func(o *lockOptions) { o.acl = append([]zk.ACL{}, acl...) },
		"ACL: is empty, so that nobody could ever delete the znode")}
}

// WithContainer makes the lock's directory, if it is missing, a container: the ensemble deletes it some time after the
// last contender has gone. Use it when the set of keys is unbounded. Default: the directory stays.
func WithContainer() LockOption {
	return LockOption{func(o *lockOptions) error { o.container = true; return nil }}
}
