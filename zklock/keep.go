package zklock

import (
	"time"

	"github.com/zklock/locker/internal/jitter"
	"github.com/zklock/locker/internal/session"
)

// present is the Client's ZooKeeper session. When one has ended, the next takes its place, until the Client is closed.
type present struct {
	session *session.Session
	next    chan struct{} // closed when the next has taken its place
}

// start opens a session. The first one finds out the servers' tick, unless the program gave it.
func (c *Client) start() (*present, error) {
	conf := c.opts.session
	if before := c.present.Load(); before != nil {
		conf.TickTime = before.session.TickTime()
	}
	s, err := session.Start(c.connect, conf)
	if err != nil {
		return nil, err
	}
	return &present{s, make(chan struct{})}, nil
}

// keep replaces the session whenever it has ended, until Close, which joins it. The old one is closed in the background: its
// hook may wait for the next.
func (c *Client) keep() {
	for {
		now, began := c.present.Load(), time.Now()
		select {
		case <-now.session.Done():
		case <-c.ctx.Done():
		}
		c.ends.Go(func() { _ = now.session.Close() }) // always nil; its own end, when it had one, stays its cause
		if time.Since(began) < time.Second {          // sessions that end at once must not become a storm
			c.rest(c.ctx, 500*time.Millisecond+jitter.Below(500*time.Millisecond))
		}
		if c.ctx.Err() != nil {
			return
		}
		fresh, err := c.start()
		if err != nil { // checked when we dialled, and no I/O is done
			c.log.Error("opening the next session", "error", err)
			return
		}
		c.present.Store(fresh)
		close(now.next)
	}
}
