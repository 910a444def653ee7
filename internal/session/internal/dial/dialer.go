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
func New(life context.Context, conf Config, lease func() (left time.Duration, retained bool)) *Dialer {
	return &Dialer{Config: conf, life: life, lease: lease, tried: map[string]error{}}
}

const (
	firstPause = 50 * time.Millisecond
	lastPause  = time.Second
)

var ErrStopped = errors.New("session is over")

// limit bounds one try at one server: name look-up and dialling, and then the handshake. It begins
// with a part of the timeout, so that a holder whose server died can try a few others before its
// lease expires. If no server has answered, each round doubles it, up to the timeout, after which
// the lease of a new session would be over. A retained session has no time for that; but its last
// try has all that is left of the lease.
func (d *Dialer) limit() time.Duration {
	d.mu.Lock()
	round, others := d.round, len(d.order) > 0
	d.mu.Unlock()
	least := Attempt(d.Timeout)
	remaining, retained := d.lease()
	switch {
	case !retained:
		return min(least<<min(max(round-1, 0), 10), max(d.Timeout, least))
	case others && remaining >= 2*least:
		return least
	}
	return max(remaining, least)
}

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
		rand.Shuffle(len(d.order), func(i, j int) { d.order[i], d.order[j] = d.order[j], d.order[i] })
		if last := len(d.order) - 1; d.order[0] == d.latest { // it has just failed: the others come first
			d.order[0], d.order[last] = d.order[last], d.order[0]
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

// Connect opens a connection to the next server, with a deadline for the handshake; first is called
// before.
func (d *Dialer) Connect(first func(server string, limit time.Duration) error) (conn net.Conn, server string, limit time.Duration, err error) {
	if server, err = d.next(); err != nil {
		return nil, "", 0, err
	}
	limit = d.limit()
	if err = first(server, limit); err != nil {
		d.Failed(server, err)
		return nil, "", 0, err
	}
	if conn, err = d.Open(d.life, server, limit); err == nil {
		limit = d.limit()
		if err = conn.SetDeadline(time.Now().Add(limit)); err == nil {
			return conn, server, limit, nil
		}
		if failure.HungUp(err) {
			err = failure.ErrUnanswered
		}
		err = errors.Join(err, conn.Close())
	}
	d.Failed(server, err)
	return nil, "", 0, err
}

// Open opens a connection to server, and TLS on it, within limit.
func (c *Config) Open(ctx context.Context, server string, limit time.Duration) (conn net.Conn, err error) {
	bounded, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	if c.Dial != nil {
		conn, err = c.custom(ctx, server, limit)
	} else {
		conn, err = dialOne(bounded, server)
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
		return nil, errors.New("the function that returns the configuration has not returned in time")
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

// dialOne resolves the name anew and tries its addresses in random order, each with its share of
// the time: of a name with several addresses, such as a headless Kubernetes service, one dead
// member must not be the first choice for ever.
func dialOne(ctx context.Context, server string) (net.Conn, error) {
	host, port, err := net.SplitHostPort(server)
	if err != nil {
		return nil, err
	}
	addrs, err := net.DefaultResolver.LookupHost(ctx, host)
	if err != nil {
		return nil, err
	}
	rand.Shuffle(len(addrs), func(i, j int) { addrs[i], addrs[j] = addrs[j], addrs[i] })
	end, _ := ctx.Deadline() // open has set one
	for i, addr := range addrs {
		d := net.Dialer{Timeout: time.Until(end) / time.Duration(len(addrs)-i)}
		var conn net.Conn
		if conn, err = d.DialContext(ctx, "tcp", net.JoinHostPort(addr, port)); err == nil {
			return conn, nil
		}
	}
	return nil, err
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
			msgs = append(msgs, text.Short(server+": "+err.Error(), 2*text.Limit)) // the text of a certificate is its owner's
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
		return errors.New("closed the connection during the TLS handshake: a port without TLS, or a client certificate missing?")
	case errors.As(err, &record):
		return errors.New("answered the TLS handshake with something else: a port without TLS?")
	case failure.IsTimeout(err):
		return fmt.Errorf("no answer to the TLS handshake within %v: a port without TLS?", limit)
	}
	return fmt.Errorf("TLS: %w", failure.Plain(err))
}
