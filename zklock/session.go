package zklock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/zklock/locker/internal/jitter"
	"github.com/zklock/locker/internal/session"
	"github.com/zklock/locker/internal/unsealed"
)

// present is the Client's ZooKeeper session. When one has ended, the next takes its place, until
// the Client is closed.
type present struct {
	session *session.Session
	next    chan struct{} // closed when the next has taken its place
}

// keep replaces the session whenever it has ended, until Close, which joins it. The old one is
// closed in the background: its hook may wait for the next.
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
			c.log.Error("zklock: can't open another session, so this client takes no more locks: restart the process", "error", err)
			return
		}
		c.present.Store(fresh)
		close(now.next)
	}
}

// start opens a session. The first one finds out the servers' tick, unless the program gave it.
func (c *Client) start() (*present, error) {
	conf := c.opts.session
	if before := c.present.Load(); before != nil {
		conf.TickTime = before.session.TickTime()
		conf.Replaces = true
	}
	s, err := session.Start(c.connect, conf)
	if err != nil {
		return nil, err
	}
	return &present{s, make(chan struct{})}, nil
}

// await returns the present session, once it is established. It returns ErrAuth if the credentials
// are refused while it waits. A refusal before that says nothing about now: they may have been
// mended, and the next session finds out.
func (c *Client) await(ctx context.Context) (*session.Session, error) {
	for {
		now := c.present.Load()
		wasOver := now.session.Err() != nil
		err := now.session.Established(ctx)
		switch {
		case c.ctx.Err() != nil:
			return nil, c.ended(ctx, closedError{})
		case err == nil:
			return now.session, nil
		case ctx.Err() != nil, errors.Is(err, ErrAuth) && !wasOver:
			return nil, c.ended(ctx, err)
		}
		select {
		case <-now.next:
		case <-c.ctx.Done():
		case <-ctx.Done():
			return nil, c.ended(ctx, fmt.Errorf("waiting for the next session (the last one ended: %v)", now.session.Err())) //nolint:errorlint // as text
		}
	}
}

// unreachable returns why there is no connection, once ctx has ended; nil when there is one.
func (c *Client) unreachable(ctx context.Context, path string) error {
	s, err := c.await(ctx)
	if err == nil && s.State() != session.Connected {
		err = s.Sync(ctx, path)
	}
	return err
}

func init() {
	unsealed.SessionConfig = func(opts any) (session.Config, error) {
		o, err := chosen(opts.([]Option))
		return o.session, err
	}
	unsealed.Session = func(ctx context.Context, client any) (*session.Session, error) {
		c := client.(*Client)
		return c.await(ctx)
	}
}
