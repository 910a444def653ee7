package session

import (
	"bytes"
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/zklock/locker/internal/session/internal/dial"
	"github.com/zklock/locker/internal/session/internal/link"
	"github.com/zklock/locker/internal/session/internal/probe"
)

// Defaults of Config.
const (
	DefaultTimeout = 10 * time.Second

	// DefaultJuteMaxBuffer is ZooKeeper's default jute.maxbuffer, in bytes.
	DefaultJuteMaxBuffer = 0xfffff
)

// maxTimeout is the longest Config.Timeout; the shortest is probe.MinTimeout. No lock needs more,
// and the wire format (milliseconds in 32 bits) ends at 24 days.
const maxTimeout = 24 * time.Hour

// Auth is one set of credentials, such as {"digest", []byte("user:password")}. The scheme digest
// needs a user and a colon.
type Auth = link.Auth

// Config says how Open opens a session. The zero value of each field means its default.
type Config struct {
	// Timeout is the session timeout to ask for; the server may grant another one
	// (Session.Timeout). From 100 ms to 24 h; default 10 s.
	Timeout time.Duration

	// TickTime is the ensemble's tickTime, or more. A request counts for the lease only when its
	// server has had two ticks to report to the leader: too small a value is unsafe, too large a
	// one shortens the lease. A server that grants a session timeout below one tick is refused,
	// since the tick can't be the ensemble's. Default: half of what the first server grants a
	// session that asks for least, which is two ticks unless its minSessionTimeout is set
	// (TickTime).
	TickTime time.Duration

	// JuteMaxBuffer is the longest request, in bytes, that the servers accept: their
	// jute.maxbuffer. A longer one would cost the connection at every attempt, so it is refused
	// before it is sent (ErrTooLarge). Set it when the servers' limit is not the default. From
	// 1,024 to 2^31−1; default 1,048,575.
	JuteMaxBuffer int

	// CreateChroot lets CreateAll create a missing chroot. Otherwise that is an error: with a
	// misspelt chroot, locks would not exclude other clients.
	CreateChroot bool

	// Auth is presented on every connection before anything else.
	Auth []link.Auth

	// SASL, when set, is negotiated on every connection after Auth, before any other request.
	SASL SASL

	// TLS, when set, encrypts the connections; ServerName defaults to each server's host.
	TLS *tls.Config

	// TLSFunc, when set, is called for each connection, and returns what TLS would be.
	TLSFunc dial.TLSFunc

	// Dial, when set, opens the connections and resolves the names; TLS runs on top of it.
	Dial Dialer

	// Logger, when set, logs connections at level Debug, and at Warn a lost connection or session
	// and, after 5 s and then each minute, that no server is reachable. The connection after such a
	// line is logged at Info.
	Logger *slog.Logger

	// Replaces says that the session takes the place of one that was lost: its first connection is
	// logged at Info, so that the log shows the end of the trouble.
	Replaces bool

	// Granted, when set, is called with the key of the session once the ensemble has granted it,
	// and before it is used for anything. The session waits for it.
	Granted func(Key)

	// OnState, when set, is called for every change of State, in order, by one goroutine of the
	// session. Close joins that, so OnState must not call Close. Of more than 64 changes that wait
	// for it, the oldest are dropped.
	OnState func(Change)
}

// config is a checked Config with its defaults filled in, and the parts of the connect string.
type config struct {
	Config
	servers []string
	chroot  string
}

func (c *config) dialing() dial.Config {
	return dial.Config{Servers: c.servers, Timeout: c.Timeout, TLS: c.TLS, TLSFunc: c.TLSFunc,
		Dial: c.Dial}
}

func (c Config) check(connect string) (config, error) {
	servers, chroot, err := ParseConnect(connect)
	if err != nil {
		return config{}, err
	}
	c.Timeout = cmp.Or(c.Timeout, DefaultTimeout)
	c.JuteMaxBuffer = cmp.Or(c.JuteMaxBuffer, DefaultJuteMaxBuffer)
	switch {
	case c.JuteMaxBuffer < 1024 || c.JuteMaxBuffer > math.MaxInt32:
		return config{},
			configError("jute.maxbuffer", strconv.Itoa(c.JuteMaxBuffer),
				"is not between 1024 and 2^31-1 bytes")
	case c.Timeout < probe.MinTimeout || c.Timeout > maxTimeout:
		return config{}, configError("session timeout", c.Timeout, "is not between 100ms and 24h")
	case c.TickTime < 0 || c.TickTime > maxTimeout:
		return config{}, configError("tick time", c.TickTime, "is not between 0 and 24h")
	}
	if err := checkSASL(c.SASL); err != nil {
		return config{}, err
	}
	c.Auth = slices.Clone(c.Auth)
	for i, a := range c.Auth {
		if a.Scheme == "" {
			return config{}, configError("auth scheme", a.Scheme, "is empty")
		}
		if user, _, ok := bytes.Cut(a.Credential, []byte(":")); a.Scheme == "digest" &&
			(!ok || len(user) == 0) {
			// not shown
			return config{},
				configError("credential of auth scheme", a.Scheme, "is not user:password")
		}
		c.Auth[i].Credential = bytes.Clone(a.Credential) // the caller may wipe his own
	}
	return config{c, servers, chroot}, nil
}

// checkSASL returns an error if the mechanism itself says that it can't work in this process:
// DIGEST-MD5, where MD5 is forbidden.
func checkSASL(mechanism SASL) error {
	m, ok := mechanism.(interface{ Usable() error })
	if !ok {
		return nil
	}
	if err := m.Usable(); err != nil {
		return configError("SASL mechanism", mechanism.Name(), err.Error())
	}
	return nil
}

// Failures that a call's arguments cause.
var (
	// ErrPath matches the error for a path that ZooKeeper would refuse; the message names the path
	// and the rule.
	ErrPath = errors.New("session: bad path")

	// ErrConfig matches the error for a connect string or Config that can't work; the message names
	// the value and the rule.
	ErrConfig = errors.New("session: bad configuration")
)

const defaultPort = "2181"

// ParseConnect splits a connect string, "zk1:2181,zk2:2181,zk3:2181/chroot", into its servers
// (host:port; default port 2181) and its chroot (default ""), which stands once, after the last
// server. Space around a server is ignored. An IPv6 address is written in brackets. What is
// accepted means the same to ZooKeeper's Java client. The error matches ErrConfig, or ErrPath for
// the chroot, and names the part and the rule. No I/O.
func ParseConnect(connect string) (servers []string, chroot string, err error) {
	if scheme, _, ok := strings.Cut(connect, "://"); ok {
		return nil, "",
			configError("connect string", connect,
				"begins with "+strconv.Quote(scheme+"://")+
					", and is no URL: write host:port,host:port/chroot")
	}
	hosts, below, _ := strings.Cut(connect, "/")
	if below != "" {
		chroot = "/" + below
		if err := checkChroot(connect, chroot); err != nil {
			return nil, "", err
		}
	}
	if hosts == "" {
		return nil, "", configError("connect string", connect, "names no server")
	}
	for h := range strings.SplitSeq(hosts, ",") {
		addr, rule := parseServer(strings.TrimSpace(h))
		if rule != "" {
			return nil, "",
				configError("server", h, rule+" (connect string "+strconv.Quote(connect)+")")
		}
		if !slices.Contains(servers, addr) { // a server that is named twice is dialled once a round
			servers = append(servers, addr)
		}
	}
	return servers, chroot, nil
}

// checkChroot refuses a chroot that most likely says something else than what its writer meant: two
// clients that mean the same lock would then have two locks.
func checkChroot(connect, chroot string) error {
	rule := ""
	switch {
	case strings.Contains(chroot, ","):
		rule = "has a comma behind its chroot: the chroot stands once, after the last server"
	case strings.HasPrefix(chroot+"/", "/zookeeper/"):
		rule = "has a chroot below /zookeeper, which is ZooKeeper's own"
	case slices.ContainsFunc(strings.Split(chroot, "/"), func(name string) bool {
		return name != strings.TrimSpace(name)
	}):
		rule = "has space at the beginning or end of a name in its chroot"
	default:
		return CheckPath(chroot)
	}
	return configError("connect string", connect, rule)
}

func parseServer(h string) (addr, rule string) {
	if h == "" {
		return "", "is empty"
	}
	if strings.ContainsAny(h, " \t\r\n\x00@?#") {
		return "", "holds a character that no host name has"
	}
	if strings.ContainsAny(h, ";") {
		return "", "holds a semicolon: servers are separated by commas"
	}
	host, port, err := net.SplitHostPort(h)
	switch {
	case err == nil:
	case strings.HasPrefix(h, "[") && strings.HasSuffix(h, "]") &&
		net.ParseIP(h[1:len(h)-1]) != nil:
		host, port = h[1:len(h)-1], defaultPort
	case net.ParseIP(h) != nil && strings.Contains(h, ":"):
		return "",
			"is an IPv6 address without brackets, whose end may be a port: write [address]:port"
	case !strings.Contains(h, ":"):
		host, port = h, defaultPort
	default:
		return "", "is not host:port"
	}
	switch n, err := strconv.ParseUint(port, 10, 16); {
	case host == "":
		return "", "has no host"
	case strings.ContainsAny(host, "[]"):
		return "", "has brackets in its host"
	case err != nil || n == 0:
		return "", "has a port that is not a number from 1 to 65535"
	}
	return net.JoinHostPort(host, port), ""
}

// maxPath keeps a path, with a name of ours behind it, well below the server's packet limit (1 MB
// by default) and short enough for tools to show.
const maxPath = 4096

// CheckPath returns an error if ZooKeeper, or this package, refuses path; it matches ErrPath and
// names path and rule. A path begins with a slash, does not end with one (except the root), has no
// empty, "." or ".." component, is UTF-8 without control characters, surrogates and other code
// points that ZooKeeper excludes, and has at most 4,096 bytes. No I/O.
func CheckPath(path string) error {
	err := checkNamed(path)
	switch {
	case len(path) > maxPath:
		err = pathError(path, "is longer than 4096 bytes")
	case !utf8.ValidString(path):
		err = pathError(path, "is not UTF-8")
	case err == nil && strings.ContainsFunc(path, excluded):
		err = pathError(path, "holds a character that ZooKeeper excludes")
	}
	return err
}

// checkNamed is the part of CheckPath that also applies where a znode is read, watched, changed or
// deleted: the path must lead to one znode. The other rules do not apply there, since other clients
// chose those names: a contender with a name of 10,000 bytes has to be waited for, shown and
// removed like any other.
func checkNamed(path string) error {
	switch {
	case path == "":
		return pathError(path, "is empty")
	case path[0] != '/':
		return pathError(path, "does not begin with a slash")
	case path == "/":
		return nil
	case path[len(path)-1] == '/':
		return pathError(path, "ends with a slash")
	}
	for name := range strings.SplitSeq(path[1:], "/") {
		switch name {
		case "":
			return pathError(path, "has an empty component")
		case ".", "..":
			return pathError(path, "has a relative component "+name)
		}
	}
	return nil
}

// excluded reports whether ZooKeeper's PathUtils refuses r: controls, the private use area,
// specials. Code points above the basic plane reach the Java server as surrogate pairs, which it
// refuses as well.
func excluded(r rune) bool {
	return r <= 0x1f || r >= 0x7f && r <= 0x9f || r >= 0xd800 && r <= 0xf8ff || r >= 0xfff0
}

// join returns path with the chroot.
func (c *config) join(path string) string {
	if path == "/" {
		return cmp.Or(c.chroot, path)
	}
	return c.chroot + path
}

// joinAll returns paths with the chroot: without one, paths itself.
func (c *config) joinAll(paths []string) []string {
	if c.chroot == "" {
		return paths
	}
	full := make([]string, len(paths))
	for i, path := range paths {
		full[i] = c.join(path)
	}
	return full
}

// strip returns path without the chroot.
func (c *config) strip(path string) string {
	return cmp.Or(strings.TrimPrefix(path, c.chroot), "/")
}

func pathError(path, rule string) error {
	if len(path) > 200 {
		path = path[:200] + "…"
	}
	return fmt.Errorf("%w %q: %s", ErrPath, path, rule)
}

func configError(what string, value any, rule string) error {
	if d, ok := value.(time.Duration); ok {
		return fmt.Errorf("%w: %s %v: %s", ErrConfig, what, d, rule)
	}
	return fmt.Errorf("%w: %s %q: %s", ErrConfig, what, value, rule)
}
