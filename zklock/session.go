package zklock

import (
	"context"
	"errors"
	"fmt"
	"sync"
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
	work    work
}

// work counts the acquisitions of one session whose holds have not all been unlocked. What they
// protect may still run, also after the session has been lost.
type work struct {
	mu      sync.Mutex // guards what follows
	running int
	none    chan struct{} // closed when running becomes 0; nil if nobody waits for that
}

func (w *work) begin() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.running++
}

func (w *work) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.running--
	if w.running == 0 && w.none != nil {
		close(w.none)
		w.none = nil
	}
}

// isDone reports whether no work runs.
func (w *work) isDone() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.running == 0
}

// wait waits until no work runs. It returns an error if ctx ends first.
func (w *work) wait(ctx context.Context) error {
	select {
	case <-w.done():
		return nil
	case <-ctx.Done():
		return errWorkRuns
	}
}

var errWorkRuns = errors.New("work under a lost lock has not returned")

// done returns a channel that is closed once no work runs.
func (w *work) done() <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	none := w.none
	if none == nil {
		none = make(chan struct{})
		w.none = none
	}
	if w.running == 0 {
		close(none)
		w.none = nil
	}
	return none
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
		c.ends.Go(func() {
			_ = now.session.Close() // always nil; its own end, when it had one, stays its cause
			c.closeGivenUp(now)
		})
		if time.Since(began) < time.Second { // sessions that end at once must not become a storm
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
	return &present{session: s, next: make(chan struct{})}, nil
}

// closeGivenUp closes a session at the ensemble that is over for this client, so that nobody waits
// until the ensemble ends it. Nothing may run any more that its locks have protected: either all
// its holds have been unlocked, or the Client was closed, and their contexts have ended.
func (c *Client) closeGivenUp(given *present) {
	closed := errors.Is(given.session.Err(), ErrClosed)
	if !closed && c.closeWhenConnected(given) {
		return
	}
	if !closed && !given.work.isDone() {
		return // the Client was closed, but after this session was lost, when its work still ran
	}
	ctx, cancel := context.WithTimeout(context.Background(), closingTime)
	defer cancel()
	c.tellNotClosed(given.session.CloseGivenUp(ctx, ""))
}

// closeWhenConnected is closeGivenUp for a lost session, while the Client is open. It waits until
// the next session shows that a server answers, and then until all holds of the lost one have been
// unlocked. It gives up when the ensemble has certainly ended the lost session by itself. It
// returns false if the Client was closed first.
func (c *Client) closeWhenConnected(lost *present) bool {
	next, err := c.await(c.ctx)
	if err != nil {
		return c.ctx.Err() == nil
	}
	ctx, cancel := context.WithTimeout(c.ctx, lost.session.Timeout()+2*lost.session.TickTime())
	defer cancel()
	err = lost.work.wait(ctx)
	if err == nil {
		err = lost.session.CloseGivenUp(ctx, next.Server())
	}
	if err != nil && c.ctx.Err() != nil {
		return false
	}
	c.tellNotClosed(err)
	return true
}

// closingTime bounds the attempts to close the session of a Client that was closed while it had no
// connection.
const closingTime = time.Second

// tellNotClosed logs why a session that was given up could not be closed, if err says so.
func (c *Client) tellNotClosed(err error) {
	if err != nil {
		c.log.Debug("zklock: a session that was given up lasts until the ensemble ends it", "error", bare(err))
	}
}

// workOf returns the count to which an acquisition of session s belongs. It returns nil if s has
// ended and was replaced: then the acquisition's context has ended before it began.
func (c *Client) workOf(s *session.Session) *work {
	now := c.present.Load()
	if now.session != s {
		return nil
	}
	return &now.work
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
	unsealed.TermFailed = func(hold any) { hold.(*Hold).termFailed() }
	unsealed.Session = func(ctx context.Context, client any) (*session.Session, error) {
		c := client.(*Client)
		return c.await(ctx)
	}
}
