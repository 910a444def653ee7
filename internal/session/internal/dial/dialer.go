package dial

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/zklock/locker/internal/jitter"
	"github.com/zklock/locker/internal/session/failure"
	"github.com/zklock/locker/internal/text"
	"github.com/zklock/locker/session"
)

// Dialer decides which server is dialled next, and when. It resolves names at every dial, takes the
// servers in random order, each once a round, and waits longer from round to round, with jitter: a
// thousand clients of a dead server must not come back at once. (The driver's own list resolves
// names once, and redials servers that accept and drop without a pause.)
type Dialer struct {
	Config
	life  context.Context // ends with the session
	lease func() (left time.Duration, retained bool)

	mu    sync.Mutex // guards what follows
	order []string   // servers still to be tried in this round
	round int        // rounds since a connection was good
	tried map[string]error

	latest string // the server that failed last

	racing   *race          // attempts that are under way; nil if there are none
	attempts sync.WaitGroup // of races
}

// Config says which servers are dialled, and how.
type Config struct {
	Servers []string
	Timeout time.Duration  // of the session, as asked for
	TLS     *tls.Config    // nil for plain TCP
	TLSFunc TLSFunc        // if set, is used instead of TLS
	Dial    session.Dialer // nil for package net's
}

// TLSFunc returns the TLS configuration of the next connection.
type TLSFunc func() (*tls.Config, error)

// New returns the dialer of a session, which ends with session; lease says how much of it is left.
func New(
	life context.Context, conf Config, lease func() (left time.Duration, retained bool),
) *Dialer {
	return &Dialer{Config: conf, life: life, lease: lease, tried: map[string]error{}}
}

const (
	firstPause = 50 * time.Millisecond
	lastPause  = time.Second
)

var ErrStopped = errors.New("session is over")

// limit bounds one try at one server of a session that is not retained: the handshake, and up to
// maxDial name resolution and dialling before it. It begins with Attempt. If no server has
// answered, each round doubles it, up to the session timeout, after which the lease of a new
// session would be over. Servers grant usualGrant even if a client asks for less, so limit always
// grows to that.
func (d *Dialer) limit() time.Duration {
	d.mu.Lock()
	round := d.round
	d.mu.Unlock()
	return min(Attempt(d.Timeout)<<min(max(round-1, 0), 10), max(d.Timeout, usualGrant))
}

// usualGrant is the least session timeout that servers usually grant: two ticks of 2 s.
const usualGrant = 4 * time.Second

// maxDial bounds name resolution and dialling. A server that swallows SYNs must not keep a session
// for long from one that has just come back.
const maxDial = 3 * time.Second

// Attempt is the shortest limit of one attempt: see Dialer.limit.
func Attempt(timeout time.Duration) time.Duration {
	return min(max(timeout/6, 250*time.Millisecond), 3*time.Second)
}

// next returns the server to try, after the pause between two rounds.
func (d *Dialer) next() (string, error) {
	d.mu.Lock()
	var pause time.Duration
	if len(d.order) == 0 {
		if d.round > 0 {
			top := min(firstPause<<min(d.round, 10), lastPause, max(d.Timeout/8, firstPause))
			pause = top/2 + jitter.Below(top/2)
		}
		d.round++
		d.order = slices.Clone(d.Servers)
		rand.Shuffle(len(d.order), func(i, j int) {
			d.order[i], d.order[j] = d.order[j], d.order[i]
		})
		last := len(d.order) - 1
		if i := slices.Index(d.order, d.latest); i >= 0 {
			// it has just failed: the others come first
			d.order[i], d.order[last] = d.order[last], d.order[i]
		}
	}
	server := d.order[0]
	d.order = d.order[1:]
	d.mu.Unlock()

	select {
	case <-time.After(pause):
	case <-d.life.Done():
	}
	if d.life.Err() != nil {
		return "", ErrStopped
	}
	return server, nil
}

// Connect opens a connection to the next server, with a deadline for the handshake. If the session
// is not retained, first is called before.
func (d *Dialer) Connect(
	first func(server string, limit time.Duration) error,
) (conn net.Conn, server string, limit time.Duration, err error) {
	if left, retained := d.lease(); retained {
		conn, server, limit, err = d.connectInTime(left)
	} else {
		d.Settle()
		conn, server, limit, err = d.connectNext(first)
	}
	if err == nil {
		err = bound(conn, limit)
	}
	if err != nil {
		d.Failed(server, err)
		return nil, "", 0, err
	}
	return conn, server, limit, nil
}

// connectNext opens a connection to the next server, and returns the limit of the handshake.
func (d *Dialer) connectNext(
	first func(server string, limit time.Duration) error,
) (conn net.Conn, server string, limit time.Duration, err error) {
	if server, err = d.next(); err != nil {
		return nil, "", 0, err
	}
	limit = d.limit()
	if err = first(server, limit); err != nil {
		return nil, server, 0, err
	}
	conn, err = d.Open(d.life, server, min(limit, maxDial))
	return conn, server, limit, err
}

// bound sets the deadline of the handshake on conn. If that fails, it closes conn.
func bound(conn net.Conn, limit time.Duration) error {
	err := conn.SetDeadline(time.Now().Add(limit))
	if err == nil {
		return nil
	}
	if failure.HungUp(err) {
		err = failure.ErrUnanswered
	}
	return errors.Join(err, conn.Close())
}

// Open opens a connection to server, and TLS on it, within limit.
func (c *Config) Open(
	ctx context.Context, server string, limit time.Duration,
) (conn net.Conn, err error) {
	bounded, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	if c.Dial != nil {
		conn, err = c.custom(ctx, server, limit)
	} else {
		conn, err = dialName(bounded, server)
	}
	if err != nil {
		return nil, dialError(err, limit)
	}
	conf, err := c.tlsConfig(bounded)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("TLS: %w", failure.Plain(err)), conn.Close())
	}
	if conf == nil {
		return conn, nil
	}
	if conf.ServerName == "" && !conf.InsecureSkipVerify {
		host, _, err := net.SplitHostPort(server)
		if err != nil {
			return nil, errors.Join(err, conn.Close())
		}
		conf = conf.Clone()
		conf.ServerName = host
	}
	secure := tls.Client(conn, conf)
	if err := secure.HandshakeContext(bounded); err != nil {
		return nil, errors.Join(tlsError(err, limit), conn.Close())
	}
	return secure, nil
}

// tlsConfig returns the TLS configuration of a connection, or nil if it is to be plain TCP. It does
// not wait for the user's function beyond ctx.
func (c *Config) tlsConfig(ctx context.Context) (*tls.Config, error) {
	if c.TLSFunc == nil {
		return c.TLS, nil
	}
	type answer struct {
		conf *tls.Config
		err  error
	}
	answered := make(chan answer, 1)
	go func() { // ends with the user's function
		conf, err := c.TLSFunc()
		answered <- answer{conf, err}
	}()
	select {
	case a := <-answered:
		if a.conf == nil && a.err == nil {
			return nil, errors.New("the function has returned no configuration, and no error")
		}
		return a.conf, a.err
	case <-ctx.Done():
		return nil,
			errors.New("the function that returns the configuration has not returned in time")
	}
}

// custom calls the user's dialer, which takes a time limit and no context. If the session ends
// meanwhile, custom does not wait for the dialer, and closes a connection that it still opens.
func (c *Config) custom(ctx context.Context, server string, limit time.Duration) (net.Conn, error) {
	var conn net.Conn
	var err error
	dialled := make(chan struct{})
	go func() {
		defer close(dialled)
		conn, err = c.Dial("tcp", server, limit)
	}()
	select {
	case <-dialled:
		if conn == nil && err == nil {
			err = errors.New("the dialer has returned no connection, and no error")
		}
		return conn, err
	case <-ctx.Done():
		go func() { // ends with the dialer's call
			if <-dialled; conn != nil {
				_ = conn.Close() // no call needs the error
			}
		}()
		return nil, ErrStopped
	}
}

// Prefer makes server the first one to be tried, in a dialer that has tried none yet.
func (d *Dialer) Prefer(server string) {
	same := func(s string) bool { return s == server }
	d.mu.Lock()
	defer d.mu.Unlock()
	order := slices.Clone(d.Servers)
	rand.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
	d.order = append([]string{server}, slices.DeleteFunc(order, same)...)
	d.round = 1
}

// Failed notes why server does not serve the session, unless that is the session's own end.
func (d *Dialer) Failed(server string, err error) {
	if d.life.Err() != nil {
		return
	}
	d.mu.Lock()
	d.tried[server], d.latest = err, server
	d.mu.Unlock()
}

// Good notes that a connection lasted: the next search begins without a pause.
func (d *Dialer) Good() {
	d.mu.Lock()
	d.round, d.order = 0, nil
	clear(d.tried)
	d.mu.Unlock()
}

// Report returns what each server has answered, or why the session is over.
func (d *Dialer) Report() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch over := context.Cause(d.life); {
	case len(d.tried) > 0:
	case over != nil:
		return over // which a server may have said
	default:
		return unreachable("no server of " + strings.Join(d.Servers, ", ") + " has answered yet")
	}
	var msgs []string
	for _, server := range d.Servers {
		if err, ok := d.tried[server]; ok {
			// the text of a certificate is its owner's
			msgs = append(msgs, text.Short(server+": "+err.Error(), 2*text.Limit))
		}
	}
	return unreachable("no server reachable: " + strings.Join(msgs, "; "))
}

// unreachable is ErrUnreachable with what each server has answered, as text: a dialer's error is no
// answer of the ensemble.
type unreachable string

func (e unreachable) Error() string        { return string(e) }
func (e unreachable) Is(target error) bool { return target == failure.ErrUnreachable }

func dialError(err error, limit time.Duration) error {
	var lookup *net.DNSError
	if both, ok := err.(unknownNow); ok { //nolint:errorlint // as dialName returns it
		last := dialError(both.dial, limit)
		return fmt.Errorf("%w; its last known address: %w", dialError(both.lookup, limit), last)
	}
	switch {
	case errors.As(err, &lookup) && lookup.IsNotFound:
		return fmt.Errorf("no such host: %s", text.Foreign(lookup.Name))
	case errors.As(err, &lookup) && lookup.IsTimeout:
		return fmt.Errorf("the name was not resolved within %v", limit)
	case failure.IsTimeout(err):
		return fmt.Errorf("no connection within %v", limit)
	case errors.Is(err, syscall.ECONNREFUSED):
		return errors.New("connection refused: nothing listens there")
	}
	return failure.Plain(err)
}

func tlsError(err error, limit time.Duration) error {
	var record tls.RecordHeaderError
	switch {
	case failure.HungUp(err):
		return errors.New(
			"closed the connection during the TLS handshake: a port without TLS, or a client certificate missing?")
	case errors.As(err, &record):
		return errors.New("answered the TLS handshake with something else: a port without TLS?")
	case failure.IsTimeout(err):
		return fmt.Errorf("no answer to the TLS handshake within %v: a port without TLS?", limit)
	}
	return fmt.Errorf("TLS: %w", failure.Plain(err))
}
