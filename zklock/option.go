package zklock

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"log/slog"
	"time"

	zksession "github.com/zklock/locker/internal/session"
	"github.com/zklock/locker/session"
)

// Option configures Dial and Open, which refuse one that can't work (ErrInvalid) before any I/O.
type Option struct{ set func(*options) error }

type options struct {
	session     zksession.Config
	hooks       Hooks
	sessionFile string              // "" if there is none
	onSession   func(zksession.Key) // see unsealed.OnSession; nil if there is none
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

// unless returns the function of an option, which refuses the option, with the reason, if it is
// wrong.
func unless[O any](wrong bool, set func(*O), reason string, args ...any) func(*O) error {
	return func(o *O) error {
		if wrong {
			return fmt.Errorf("%w: %s", ErrInvalid, fmt.Sprintf(reason, args...))
		}
		set(o)
		return nil
	}
}

// WithSessionTimeout asks for a session timeout: how long the ensemble waits for a silent client
// before it gives its locks to others. The server may grant another one, usually between 2 and 20
// of its ticks; below four ticks a hold is lost, safely, when its server hangs. From 100 ms to 24
// h; default 10 s.
func WithSessionTimeout(d time.Duration) Option {
	return Option{unless(d <= 0, func(o *options) {
		o.session.Timeout = d
	}, "session timeout %v: is not positive", d)}
}

// WithTickTime is the ensemble's tickTime, for one whose minSessionTimeout is not two ticks. The
// lease allows for it. Too short a value is unsafe when a server has lost its leader: a hold may
// outlast its session. Default: it is found out (SessionStatus.TickTime).
func WithTickTime(d time.Duration) Option {
	return Option{unless(d <= 0, func(o *options) {
		o.session.TickTime = d
	}, "tick time %v: is not positive", d)}
}

// WithJuteMaxBuffer is the ensemble's jute.maxbuffer: the length in bytes of the longest request
// that its servers take. A longer one is refused (ErrTooLarge). From 1,024 to 2^31−1; default
// 1,048,575.
func WithJuteMaxBuffer(bytes int) Option {
	return Option{unless(bytes <= 0, func(o *options) { o.session.JuteMaxBuffer = bytes },
		"jute.maxbuffer %d: is not positive", bytes)}
}

// WithCreateChroot lets locks make the chroot of the connect string. Default: a missing one is
// ErrInvalid, since it may be misspelt, and the lock would then exclude nobody.
func WithCreateChroot() Option {
	return Option{func(o *options) error { o.session.CreateChroot = true; return nil }}
}

// WithAuth presents credentials on every connection: WithAuth("digest", []byte("user:password")).
// It may be repeated. Default: none. In FIPS 140-only mode digest works, but zk.DigestACL panics:
// write the hash of an access list out.
func WithAuth(scheme string, cred []byte) Option {
	auth := zksession.Auth{Scheme: scheme, Credential: bytes.Clone(cred)}
	return Option{unless(scheme == "", func(o *options) {
		o.session.Auth = append(o.session.Auth, auth)
	},
		"auth scheme %q: is empty", scheme)}
}

// WithSASL has each connection authenticate by a SASL mechanism: session.DigestMD5("user",
// "password"), Kerberos with the module zklock/kerberos, or one of the program's own. What the
// servers refuse ends Dial, and every session, with ErrAuth. Default: none.
func WithSASL(mechanism session.SASL) Option {
	return Option{unless(mechanism == nil, func(o *options) {
		o.session.SASL = mechanism
	}, "SASL mechanism: is nil")}
}

// WithTLS encrypts the connections. conf.ServerName defaults to the host of each server. Default:
// plain TCP.
func WithTLS(conf *tls.Config) Option {
	return Option{unless(conf == nil, func(o *options) {
		o.session.TLS, o.session.TLSFunc = conf, nil
	}, "TLS configuration: is nil")}
}

// WithTLSFunc is WithTLS with the configuration that fn returns. fn is called for each connection,
// so that certificates, keys and authorities that were renewed on disk are used without a restart.
// It may be called by several goroutines at once, and must not change a configuration that it has
// returned. If it returns an error, or nothing in time, the attempt to connect has failed, and the
// error says so; the next attempt calls fn again.
func WithTLSFunc(fn func() (*tls.Config, error)) Option {
	return Option{unless(fn == nil, func(o *options) {
		o.session.TLSFunc = fn
	}, "TLS function: is nil")}
}

// WithDialer opens the connections with dial instead of TCP: through a proxy, or to an in-process
// server. TLS comes on top.
func WithDialer(dial session.Dialer) Option {
	return Option{unless(dial == nil, func(o *options) { o.session.Dial = dial }, "dialer: is nil")}
}

// WithSessionFile frees the locks of a process that has crashed as soon as it starts again, and not
// after the session timeout: while the Client is open, the file at path names its sessions, and the
// next Client that opens the file after the process has ended closes them. The process has ended
// when it and every child that has the file's descriptor have. So if children do work that a lock
// protects, and may survive the process, give them the descriptor (Client.SessionFile), or don't
// use this option. The descriptor only keeps the locks from being freed early: they are free a
// session timeout after the process has ended, as without the file, so children should end with it.
//
//	zklock.Dial(ctx, servers, zklock.WithSessionFile("/var/lib/billing/zklock.session"))
//
// The file is locked (flock) while the Client is open. Each instance of a program that runs at a
// time needs its own. Dial waits up to a session timeout for another process that has it, and then
// fails, naming it; Open does not wait. Two Clients of one process can't share a file. Don't copy,
// move or remove it.
//
// It has to be on ext4, xfs, f2fs, zfs or tmpfs of Linux, or on APFS. A path that can't serve is
// the error of Dial and Open, before any I/O to the ensemble, and a file that is neither empty nor
// a session file is not changed. On a disk that does not answer, Dial, Open and Close hang as every
// use of it does, also beyond ctx.
//
// A file that was copied, restored, damaged, or written before the system started or for other
// servers, closes nothing, and one line of the log says why. Who can read the file can close the
// sessions: it is made for its owner alone (0600).
//
// What the process has sent before it crashed may still run, such as a statement in a database: as
// with every lock, only the token (Hold.Token) stops that. Don't tell others to rely on
// Hold.SafeUntil: the locks of a process that has crashed may be free before it. Default: none.
func WithSessionFile(path string) Option {
	return Option{unless(path == "", func(o *options) {
		o.sessionFile = path
	}, "session file: its path is empty")}
}

// WithLogger logs to log instead of slog's default: everything that Hooks report, with the context
// of LockInfo, and failures that no call returns.
//
//   - Warn: a lost lock or leadership; a lost connection or session; that no server is reachable,
//     after 5 s and then each minute; a release that the ensemble refuses; a semaphore whose size
//     is another one than the program's; a campaign that failed; the error of work that failed in a
//     lost term.
//   - Info: leadership won and given up, and the connection that ends a trouble with the session.
//   - Debug: all else.
//
// Close waits until a line has been written: the handler of log must not call it.
//
// Default: slog.Default(), as it is when the line is written, from Info on, and at most ten lines
// of one message in a minute.
func WithLogger(log *slog.Logger) Option {
	return Option{unless(log == nil, func(o *options) { o.session.Logger = log }, "logger: is nil")}
}

// WithoutLog logs nothing. Failures that no call returns are then seen by Hooks alone.
func WithoutLog() Option { return WithLogger(slog.New(slog.DiscardHandler)) }

// WithHooks calls h for every event. It may be repeated: the hooks are called in that order.
// Default: none.
func WithHooks(h Hooks) Option {
	return Option{func(o *options) error { o.hooks = o.hooks.and(h); return nil }}
}
