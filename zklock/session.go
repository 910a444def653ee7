package zklock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
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

	// hasOwnZnodes is set before the program makes an ephemeral znode of its own in the session.
	hasOwnZnodes atomic.Bool
}

// work counts the acquisitions of one session whose holds have not all been unlocked. What they
// protect may still run, also after the session has been lost.
type work struct {
	mu      sync.Mutex // guards what follows
	running int
	over    chan struct{} // what seal returns; nil before
}

// begin counts one more acquisition. After seal it returns false: the session may be closed.
func (w *work) begin() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.over != nil {
		return false
	}
	w.running++
	return true
}

func (w *work) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.running--
	if w.running == 0 && w.over != nil {
		close(w.over)
	}
}

// seal lets no acquisition begin any more. It returns a channel that is closed when no work runs.
// Call it once, when the session has ended.
func (w *work) seal() <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.over = make(chan struct{})
	if w.running == 0 {
		close(w.over)
	}
	return w.over
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
		// always nil; its own end, when it had one, stays its cause
		c.ends.Go(func() { _ = now.session.Close() })
		over := now.work.seal()
		c.ends.Go(func() { c.closeGivenUp(now, over) })
		if time.Since(began) < time.Second { // sessions that end at once must not become a storm
			c.rest(c.ctx, 500*time.Millisecond+jitter.Below(500*time.Millisecond))
		}
		if c.ctx.Err() != nil {
			return
		}
		fresh, err := c.start()
		if err != nil { // checked when we dialled, and no I/O is done
			c.log.Error(
				"zklock: can't open another session, so this client takes no more locks: restart the process", "error", err)
			return
		}
		c.present.Store(fresh)
		close(now.next)
	}
}

// start opens a session. The first one finds out the servers' tick, unless the program gave it.
func (c *Client) start() (*present, error) {
	conf := c.opts.session
	conf.Granted = c.granted
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

// granted is called with the key of each session, before its first use.
func (c *Client) granted(key session.Key) {
	if c.file != nil {
		c.noteSession(key)
	}
	if c.opts.onSession != nil {
		c.opts.onSession(key)
	}
}

// closeGivenUp closes a session at the ensemble that is over for this client, so that nobody
// waits until the ensemble ends it. Nothing may run any more that its znodes have protected:
//   - either the session was lost, all its holds have been unlocked, as over tells, and no
//     SafeUntil that they promised is still to come;
//   - or Client.Close itself ended the session, and so their contexts.
//
// A lost session in which the program has ephemeral znodes of its own lasts until the ensemble ends
// it, since only the program knows what they protect.
func (c *Client) closeGivenUp(given *present, over <-chan struct{}) {
	<-given.session.Cut()
	if errors.Is(given.session.Err(), ErrSessionExpired) {
		c.forgetSession(given.session.ID())
		return
	}
	wasClosed := errors.Is(given.session.Err(), ErrClosed)
	if given.hasOwnZnodes.Load() && !wasClosed {
		return
	}
	if !wasClosed && c.closeWhenConnected(given.session, over) {
		return
	}
	select {
	case <-over:
	default:
		if !wasClosed {
			return // the session was lost before Close, and its work still runs
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), closingTime)
	defer cancel()
	if !wasClosed {
		select {
		case <-time.After(time.Until(given.session.Promised())):
		case <-ctx.Done():
			return
		}
	}
	c.noteClosed(given.session.ID(), given.session.CloseGivenUp(ctx, ""))
}

// closeWhenConnected is closeGivenUp for a lost session, while the Client is open. It waits until
// no work runs under the session, and until a later session shows that a server answers. It returns
// false if the Client is closed first.
func (c *Client) closeWhenConnected(lost *session.Session, over <-chan struct{}) bool {
	select {
	case <-over:
	case <-c.ctx.Done():
		return false
	}
	c.rest(c.ctx, time.Until(lost.Promised())) // what was promised stays true after an Unlock too
	next, err := c.await(c.ctx)
	for err != nil && c.ctx.Err() == nil {
		// ErrAuth: the credentials may be mended for the session after it
		next, err = c.await(c.ctx)
	}
	if err != nil {
		return false
	}
	ctx, cancel := context.WithTimeout(c.ctx, lost.Timeout()+2*lost.TickTime())
	defer cancel()
	err = lost.CloseGivenUp(ctx, next.Server())
	if err != nil && c.ctx.Err() != nil {
		return false
	}
	c.noteClosed(lost.ID(), err)
	return true
}

// closingTime bounds the attempts to close the session of a Client that was closed while it had no
// connection.
const closingTime = time.Second

// noteClosed notes that a session that was given up is over for the ensemble too, or logs err,
// which says why it could not be closed.
func (c *Client) noteClosed(id int64, err error) {
	if err != nil {
		c.log.Debug("zklock: a session that was given up lasts until the ensemble ends it",
			"error", bare(err))
		return
	}
	c.forgetSession(id)
}

// beginWork counts an acquisition of session s to the work under it, and returns that. It returns
// nil if s was lost and replaced: then the acquisition must not begin, since s may be closed.
func (c *Client) beginWork(s *session.Session) *work {
	now := c.present.Load()
	if now.session != s || !now.work.begin() {
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
	unsealed.OnSession = func(fn func(session.Key)) any {
		return Option{func(o *options) error { o.onSession = fn; return nil }}
	}
	unsealed.Session = func(ctx context.Context, client any) (*session.Session, error) {
		c := client.(*Client)
		return c.await(ctx)
	}
}
