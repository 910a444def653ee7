package dial

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"time"
)

// # Names and addresses
//
// A name is resolved for each connection, since a server may come back at another address. But a
// name server that is silent must not cost a hold: a server that was reachable a moment ago most
// likely still is, at the same address. So if the name server fails, or takes longer than
// lookupPatience, the last known addresses are tried. If it answers meanwhile, its answer counts,
// also if it says that there is no such name.

// lookupPatience is how long the name server may take before the last known addresses are tried.
const lookupPatience = 200 * time.Millisecond

// known has the addresses that each name had when it was last looked up, in this process. There are
// as many names as servers.
var known addresses

type addresses struct {
	mu sync.Mutex // guards of
	of map[string][]string
}

func (a *addresses) remember(host string, addrs []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.of == nil {
		a.of = map[string][]string{}
	}
	a.of[host] = slices.Clone(addrs)
}

func (a *addresses) last(host string) []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.of[host])
}

// found is what the name server has answered.
type found struct {
	addrs []string
	err   error
}

// reached is the outcome of dialling.
type reached struct {
	conn net.Conn
	err  error
}

// lookupHost looks up the addresses of a name. Tests replace it.
var lookupHost = func(ctx context.Context, host string) ([]string, error) {
	return net.DefaultResolver.LookupHost(ctx, host)
}

// unknownNow says that a name could not be looked up, and that its last known addresses could not
// be reached.
type unknownNow struct{ lookup, dial error }

func (e unknownNow) Error() string {
	return e.lookup.Error() + "; its last known address: " + e.dial.Error()
}

// naming is one call of dialName.
type naming struct {
	ctx    context.Context
	port   string
	last   []string     // the last known addresses; nil if there are none
	lookup <-chan found // nil once it has answered

	dialling <-chan reached // nil if no address is being dialled
	giveUp   context.CancelFunc

	lookupErr, dialErr error
}

// dialName looks up the name in server, and dials one of its addresses. ctx has a deadline.
func dialName(ctx context.Context, server string) (net.Conn, error) {
	host, port, err := net.SplitHostPort(server)
	if err != nil {
		return nil, err
	}
	n := &naming{ctx: ctx, port: port, last: known.last(host), lookup: lookUp(ctx, host)}
	defer func() { n.stop() }()
	patience := time.NewTimer(lookupPatience)
	defer patience.Stop()
	for {
		select {
		case f := <-n.lookup:
			n.lookup = nil
			if err := n.found(f); err != nil {
				return nil, err
			}
		case <-patience.C:
			n.dialLast()
		case r := <-n.dialling:
			n.dialling = nil
			if r.err == nil {
				return r.conn, nil
			}
			n.dialErr = r.err
			if n.lookup == nil {
				return nil, n.failed()
			}
		}
	}
}

// found takes the outcome of the lookup. It returns an error if there is nothing left to be tried.
func (n *naming) found(f found) error {
	if f.err == nil {
		if n.dialling == nil || !sameAddresses(f.addrs, n.last) {
			n.dial(f.addrs)
		}
		return nil
	}
	var dns *net.DNSError
	if errors.As(f.err, &dns) && dns.IsNotFound {
		return f.err // the name is gone, and its address may be another's by now
	}
	n.lookupErr = f.err
	n.dialLast()
	if n.dialling == nil {
		return n.failed()
	}
	return nil
}

// dialLast dials the last known addresses, once, if there are any.
func (n *naming) dialLast() {
	if len(n.last) > 0 && n.dialling == nil && n.dialErr == nil {
		n.dial(n.last)
	}
}

// dial dials addrs, and no others any more.
func (n *naming) dial(addrs []string) {
	n.stop()
	ctx, giveUp := context.WithCancel(n.ctx)
	outcome := make(chan reached, 1)
	go func() { // ends with ctx
		conn, err := dialAny(ctx, addrs, n.port)
		outcome <- reached{conn, err}
	}()
	n.dialling, n.giveUp = outcome, giveUp
}

// stop gives up what is being dialled, if something is.
func (n *naming) stop() {
	if n.giveUp == nil {
		return
	}
	n.giveUp()
	n.giveUp = nil
	if n.dialling == nil {
		return
	}
	if r := <-n.dialling; r.conn != nil {
		_ = r.conn.Close() // nobody needs it
	}
	n.dialling = nil
}

// failed returns why no address could be reached.
func (n *naming) failed() error {
	switch {
	case n.dialErr == nil:
		return n.lookupErr
	case n.lookupErr == nil:
		return n.dialErr
	}
	return unknownNow{n.lookupErr, n.dialErr}
}

// lookUp looks host up in the background. It remembers the addresses. It ends with ctx at the
// latest.
func lookUp(ctx context.Context, host string) <-chan found {
	outcome := make(chan found, 1)
	go func() { // ends with ctx
		addrs, err := lookupHost(ctx, host)
		if err == nil {
			known.remember(host, addrs)
		}
		outcome <- found{addrs, err}
	}()
	return outcome
}

func sameAddresses(a, b []string) bool {
	return slices.Equal(slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b)))
}

// dialAny tries addresses in random order, each with its share of the time: of a name with several
// addresses, such as a headless Kubernetes service, one dead member must not be the first choice
// forever.
func dialAny(ctx context.Context, addrs []string, port string) (conn net.Conn, err error) {
	end, _ := ctx.Deadline()
	for tried, i := range rand.Perm(len(addrs)) {
		d := net.Dialer{Timeout: time.Until(end) / time.Duration(len(addrs)-tried)}
		conn, err = d.DialContext(ctx, "tcp", net.JoinHostPort(addrs[i], port))
		if err == nil {
			return conn, nil
		}
	}
	return nil, err
}
