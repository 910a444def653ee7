package zktest

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"
)

// Option changes how a server behaves. The options are checked when the server starts.
type Option func(*options)

// options are the result of all Options, checked and complete.
type options struct {
	version    Version
	dialect    *dialect // the version's
	addr       string
	tick       time.Duration
	minTimeout time.Duration
	maxTimeout time.Duration
	sweep      time.Duration
	maxPacket  int
	noListener bool
	log        *slog.Logger
	tls        *tls.Config
	saslUsers  map[string]string
}

// newOptions fills in the defaults, some of which follow from others, and refuses impossible
// values.
func newOptions(opts []Option) (options, error) {
	o := options{version: Version39, tick: 2 * time.Second, sweep: time.Minute, maxPacket: 0xfffff,
		log: slog.New(slog.DiscardHandler)}
	for _, f := range opts {
		f(&o)
	}
	o.dialect = dialects[o.version]
	o.minTimeout, o.maxTimeout = cmp.Or(o.minTimeout, 2*o.tick), cmp.Or(o.maxTimeout, 20*o.tick)
	switch {
	case o.dialect == nil:
		return o,
			fmt.Errorf("zktest: version %q: want one of %q", o.version,
				slices.Sorted(maps.Keys(dialects)))
	case o.tick < time.Millisecond:
		return o, fmt.Errorf("zktest: tick of %v: want at least 1ms", o.tick)
	case o.minTimeout < time.Millisecond || o.minTimeout > o.maxTimeout:
		return o,
			fmt.Errorf("zktest: session timeout between %v and %v: want 1ms ≤ min ≤ max",
				o.minTimeout, o.maxTimeout)
	case o.sweep <= 0:
		return o, fmt.Errorf("zktest: sweep interval of %v: want more than 0", o.sweep)
	case o.maxPacket < 64:
		return o, fmt.Errorf("zktest: packet limit of %d bytes: want at least 64", o.maxPacket)
	case len(o.saslUsers) > 0 && md5Forbidden():
		return o, errors.New("zktest: SASL users: DIGEST-MD5 needs MD5, " +
			"which FIPS 140-only mode (GODEBUG=fips140=only) forbids")
	case o.log == nil:
		return o, fmt.Errorf("zktest: logger is nil")
	}
	return o, nil
}

// WithVersion sets the release whose behaviour the server has, default Version39. The package's
// comment lists the differences.
func WithVersion(v Version) Option { return func(o *options) { o.version = v } }

// WithAddr sets the TCP address at which the server listens, host:port, default a free port of
// 127.0.0.1. Clients need no credentials: an address that other machines reach is open to them.
// Followers keep to the default.
func WithAddr(addr string) Option { return func(o *options) { o.addr = addr } }

// WithTick sets the length of the server's tick, default 2 s. Sessions expire at full ticks, and
// the bounds of the session timeout follow from it unless WithSessionTimeouts sets them.
func WithTick(d time.Duration) Option { return func(o *options) { o.tick = d } }

// WithSessionTimeouts sets the bounds of the session timeout that clients can negotiate, default 2
// and 20 ticks.
func WithSessionTimeouts(minimum, maximum time.Duration) Option {
	return func(o *options) { o.minTimeout, o.maxTimeout = minimum, maximum }
}

// WithSweepInterval sets how often the server looks for empty containers and expired TTL nodes,
// default 1 min.
func WithSweepInterval(d time.Duration) Option { return func(o *options) { o.sweep = d } }

// WithJuteMaxBuffer sets the largest frame that the server accepts, in bytes, default 1,048,575 (a
// real server's jute.maxbuffer). A longer one ends the client's connection.
func WithJuteMaxBuffer(n int) Option { return func(o *options) { o.maxPacket = n } }

// WithoutListener starts no TCP listener: clients connect with Dial only, and nothing listens at
// Addr. A server inside a testing/synctest bubble needs this option, because a goroutine that waits
// for the network stops a bubble's clock.
func WithoutListener() Option { return func(o *options) { o.noListener = true } }

// WithTLS makes the listener speak TLS, as a real server's secureClientPort does. Connections made
// by Dial stay plain.
func WithTLS(cfg *tls.Config) Option { return func(o *options) { o.tls = cfg } }

// WithLogger sets the logger for the server's own messages, default none.
func WithLogger(l *slog.Logger) Option { return func(o *options) { o.log = l } }
