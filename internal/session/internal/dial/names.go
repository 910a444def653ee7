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
// A name is looked up for each connection, since a server may come back at another address. But a
// name server that is silent must not cost a hold: a server that was reachable a moment ago most
// likely still is, at the same address. So if a look-up fails, or takes longer than lookupPatience,
// the addresses of the last one are tried. A look-up that succeeds meanwhile wins.

// lookupPatience is how long a look-up may take before the last known addresses are tried.
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

// found is the outcome of a look-up.
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

// dialName looks up the name in server, and dials one of its addresses. ctx has a deadline.
func dialName(ctx context.Context, server string) (net.Conn, error) {
	host, port, err := net.SplitHostPort(server)
	if err != nil {
		return nil, err
	}
	lookup := lookUp(ctx, host)
	last := known.last(host)
	if len(last) == 0 {
		f := <-lookup
		return dialFound(ctx, f, nil, port)
	}
	select {
	case f := <-lookup:
		return dialFound(ctx, f, last, port)
	case <-time.After(lookupPatience):
	}
	return dialLast(ctx, last, port, lookup)
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

// dialFound dials the addresses that a look-up has found, or else the last known ones.
func dialFound(ctx context.Context, f found, last []string, port string) (net.Conn, error) {
	switch {
	case f.err == nil:
		return dialAny(ctx, f.addrs, port)
	case len(last) == 0:
		return nil, f.err
	}
	conn, err := dialAny(ctx, last, port)
	if err != nil {
		return nil, errors.Join(f.err, err)
	}
	return conn, nil
}

// dialLast dials the last known addresses while a look-up goes on. If that finds other addresses
// first, dialLast dials those instead.
func dialLast(
	ctx context.Context, last []string, port string, lookup <-chan found,
) (net.Conn, error) {
	lasting, giveUp := context.WithCancel(ctx)
	defer giveUp()
	outcome := make(chan reached, 1)
	go func() { // ends with lasting
		conn, err := dialAny(lasting, last, port)
		outcome <- reached{conn, err}
	}()
	select {
	case r := <-outcome:
		if r.err == nil {
			return r.conn, nil
		}
		return dialFound(ctx, <-lookup, nil, port)
	case f := <-lookup:
		if f.err != nil || sameAddresses(f.addrs, last) {
			r := <-outcome
			return r.conn, r.err
		}
		giveUp()
		if r := <-outcome; r.conn != nil {
			_ = r.conn.Close() // nobody needs it
		}
		return dialAny(ctx, f.addrs, port)
	}
}

func sameAddresses(a, b []string) bool {
	return slices.Equal(slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b)))
}

// dialAny tries addresses in random order, each with its share of the time: of a name with several
// addresses, such as a headless Kubernetes service, one dead member must not be the first choice
// forever.
func dialAny(ctx context.Context, addrs []string, port string) (conn net.Conn, err error) {
	rand.Shuffle(len(addrs), func(i, j int) { addrs[i], addrs[j] = addrs[j], addrs[i] })
	end, _ := ctx.Deadline()
	for i, addr := range addrs {
		d := net.Dialer{Timeout: time.Until(end) / time.Duration(len(addrs)-i)}
		if conn, err = d.DialContext(ctx, "tcp", net.JoinHostPort(addr, port)); err == nil {
			return conn, nil
		}
	}
	return nil, err
}
