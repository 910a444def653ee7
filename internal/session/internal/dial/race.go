package dial

import (
	"context"
	"net"
	"time"
)

// # A search under a deadline
//
// A session that is retained has to reach a server while its lease lasts. When its server has
// fallen silent, little of the lease is left once that has been noticed: 0.4 s at worst. Another
// server may be silent too, and the one that is well may be far away. So
//
//   - connections are opened to several servers at a time: to the next one when the one before has
//     not answered for overlap. That is what RFC 8305 does for the addresses of a name.
//   - The handshake goes to one server at a time, since it moves the session, and one that is not
//     answered shortens the lease. It leaves each server that is still to be tried its share of the
//     time. Meanwhile the other attempts go on, and the next handshake goes to the first of them.
//   - An attempt does not last longer than Attempt: a server that swallows SYNs must not keep the
//     session from trying the others again.
//   - The server that has just failed is tried last.
//
// A session that is not retained tries one server after the other. It has time, and a thousand
// clients that come back at once should not open several connections each.

const (
	overlap  = 200 * time.Millisecond
	minShare = 100 * time.Millisecond // more than a round trip, and a TLS handshake takes two
)

// race is a set of attempts to connect that are under way.
type race struct {
	ctx      context.Context
	giveUp   context.CancelFunc
	outcomes chan opened
	running  int // attempts whose outcome has not been taken; of the goroutine that connects
}

// opened is the outcome of one attempt to open a connection.
type opened struct {
	conn   net.Conn
	server string
	err    error
}

// connectInTime opens a connection for a session that lasts for left, and returns the limit of the
// handshake.
func (d *Dialer) connectInTime(left time.Duration) (net.Conn, string, time.Duration, error) {
	r := d.race()
	server := ""
	if r.running == 0 {
		var err error
		if server, err = d.next(); err != nil {
			return nil, "", 0, err
		}
		d.try(r, server, left)
	}
	next := time.NewTicker(overlap)
	defer next.Stop()
	for {
		select {
		case o := <-r.outcomes:
			r.running--
			if o.err == nil {
				return o.conn, o.server, d.share(r), nil
			}
			if !d.tryAnother(r) && r.running == 0 {
				return nil, o.server, 0, o.err
			}
			d.Failed(o.server, o.err)
			next.Reset(overlap)
		case <-next.C:
			d.tryAnother(r)
		case <-d.life.Done():
			return nil, server, 0, ErrStopped
		}
	}
}

// race returns the race that is under way, or a new one.
func (d *Dialer) race() *race {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.racing == nil {
		r := &race{outcomes: make(chan opened)}
		r.ctx, r.giveUp = context.WithCancel(d.life)
		d.racing = r
	}
	return d.racing
}

// try begins an attempt to connect to server, for a session that lasts for left.
func (d *Dialer) try(r *race, server string, left time.Duration) {
	limit := min(max(left, minShare), Attempt(d.Timeout))
	r.running++
	d.attempts.Go(func() { d.attempt(r, server, limit) })
}

// attempt opens a connection to server, and keeps it until it is needed, or the race is over.
func (d *Dialer) attempt(r *race, server string, limit time.Duration) {
	conn, err := d.Open(r.ctx, server, limit)
	select {
	case r.outcomes <- opened{conn, server, err}:
	case <-r.ctx.Done():
		if conn != nil {
			_ = conn.Close() // nobody needs it
		}
	}
}

// tryAnother begins an attempt at the next server of this round. It returns false if there is none.
func (d *Dialer) tryAnother(r *race) bool {
	d.mu.Lock()
	if len(d.order) == 0 {
		d.mu.Unlock()
		return false
	}
	server := d.order[0]
	d.order = d.order[1:]
	d.mu.Unlock()
	left, _ := d.lease()
	d.try(r, server, left)
	return true
}

// share bounds the handshake with one server: each server that is still to be tried, or to answer,
// has an equal share of what is left of the lease. The last one has all of it.
func (d *Dialer) share(r *race) time.Duration {
	d.mu.Lock()
	others := len(d.order) + r.running
	d.mu.Unlock()
	left, _ := d.lease()
	if others == 0 {
		return max(left, Attempt(d.Timeout))
	}
	return max(min(left/time.Duration(others+1), Attempt(d.Timeout)), minShare)
}

// Settle gives up the attempts that are under way: the session has a connection, or has ended.
func (d *Dialer) Settle() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.racing != nil {
		d.racing.giveUp()
		d.racing = nil
	}
}

// Wait waits for the attempts that were given up. Call it when the session has ended.
func (d *Dialer) Wait() {
	d.Settle()
	d.attempts.Wait()
}
