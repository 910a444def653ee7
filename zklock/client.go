package zklock

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/zklock/locker/internal/jitter"
	"github.com/zklock/locker/internal/trusted"
	"github.com/zklock/locker/recipe"
	"github.com/zklock/locker/session"
)

// Client is a program's access to its locks: one ZooKeeper session, and the next one when it has ended. One Client
// serves a whole program; its methods may be called concurrently.
type Client struct {
	connect string
	opts    options
	log     *slog.Logger

	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	joined chan struct{} // closed when run has ended

	holds sync.WaitGroup // grips that have not ended
	use   inUse          // what Status shows
	lines lines          // of goroutines that share a place: see handoff.go
	heads *recipe.Heads  // who heads the lines that are waited in

	bg sync.WaitGroup // see spawn

	mu     sync.Mutex // guards what follows
	closed bool
	cur    *session.Session
	next   chan struct{} // closed when cur is replaced
}

// Dial connects to an ensemble: "zk1:2181,zk2:2181,zk3:2181/chroot". Nil error: a session exists. It blocks until
// then, or until ctx ends, which bounds this call only; the error then matches ctx's and says which servers were tried
// and what each answered, and nothing is left behind. A malformed connect string or option is refused before any I/O
// (ErrOption, ErrPath). Refused credentials: session.ErrAuth.
//
// The Client keeps a session for as long as it lives: when one has ended it opens the next, and waiting calls queue
// again in that.
func Dial(ctx context.Context, connect string, opts ...Option) (*Client, error) {
	var o options
	for _, opt := range opts {
		if opt.set == nil {
			return nil, fmt.Errorf("zklock: dial: %w: option: is the zero value", ErrOption)
		}
		if err := opt.set(&o); err != nil {
			return nil, fmt.Errorf("zklock: dial: %w", err)
		}
	}
	c := &Client{connect: connect, opts: o, log: o.session.Logger, joined: make(chan struct{}), next: make(chan struct{}),
		heads: recipe.NewHeads(describe)}
	if c.log == nil {
		c.log = slog.New(slog.DiscardHandler)
	}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	s, err := c.start()
	if err != nil {
		c.cancel()
		return nil, fmt.Errorf("zklock: dial %q: %w", connect, err)
	}
	for err := s.Established(ctx); err != nil; err = s.Established(ctx) {
		s.Abandon(trusted.Caller{}) // what was started ends by itself
		if ctx.Err() != nil || errors.Is(err, session.ErrAuth) {
			c.cancel()
			return nil, fmt.Errorf("zklock: dial %q: %w", connect, err)
		}
		// The session has ended before we could hear of it: its first connection broke at once, and there was no other.
		c.rest(ctx, time.Second)
		if s, err = c.start(); err != nil { // checked above, and no I/O is done
			c.cancel()
			return nil, fmt.Errorf("zklock: dial %q: %w", connect, err)
		}
	}
	c.cur = s
	go c.run(s)
	return c, nil
}

func (c *Client) start() (*session.Session, error) {
	conf := c.opts.session
	if hook := c.opts.hooks.Session; hook != nil {
		conf.OnState = func(ch session.Change) { hook(SessionInfo(ch)) }
	}
	return session.Start(c.connect, conf)
}

// run replaces the session whenever it has ended, until Close. The old one is joined in the background, since what
// still runs in it may be a hook that asks for the next.
func (c *Client) run(s *session.Session) {
	defer close(c.joined)
	var old sync.WaitGroup
	defer old.Wait()
	for {
		began := time.Now()
		select {
		case <-s.Done():
		case <-c.ctx.Done():
		}
		ended := s
		old.Go(func() {
			if err := ended.Close(); err != nil { // its own end, when it had one, stays its cause
				c.log.Warn("closing a session", "error", err)
			}
		})
		if c.ctx.Err() != nil {
			return
		}
		// Sessions that end at once must not become a storm.
		if time.Since(began) < time.Second && !c.pause(500*time.Millisecond+jitter.Below(500*time.Millisecond)) {
			return
		}
		fresh, err := c.start()
		if err != nil { // checked when we dialled, and no I/O is done
			c.log.Error("opening the next session", "error", err)
			return
		}
		c.mu.Lock()
		c.cur = fresh
		close(c.next)
		c.next = make(chan struct{})
		c.mu.Unlock()
		s = fresh
	}
}

func (c *Client) pause(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-c.ctx.Done():
		return false
	}
}

// Close ends the session, and with it every hold and every wait of the Client's: their errors are ErrClosed. Locks
// that were held are free at once when a server is connected, else when the ensemble expires the session. It returns
// when everything that the Client had running has ended, after about 2 s at the latest. It may be called more than
// once, and always returns nil.
func (c *Client) Close() error {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.cancel()
	<-c.joined
	c.bg.Wait()
	c.holds.Wait() // they have ended with the session; their hooks may still run
	return nil
}

// enter counts a hold that Close has to wait for; false when Close came first.
func (c *Client) enter() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return false
	}
	c.holds.Add(1)
	return true
}

// spawn runs fn, which ends soon after the Client was closed, in a goroutine that Close joins; false when Close came first.
func (c *Client) spawn(fn func()) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return false
	}
	c.bg.Go(fn)
	return true
}

// Session returns the current session, for the program's own reads and writes beside its locks; it waits for one as
// long as ctx lasts. The session may end at any time, and the Client then opens another: ask again, and don't keep it.
// Don't close it. ErrClosed: the Client was closed.
func (c *Client) Session(ctx context.Context) (*session.Session, error) {
	for {
		if c.ctx.Err() != nil {
			return nil, closedError{}
		}
		c.mu.Lock()
		s, next := c.cur, c.next
		c.mu.Unlock()
		err := s.Established(ctx)
		if err == nil {
			if s.Err() == nil {
				return s, nil
			}
			err = s.Err()
		}
		if ctx.Err() != nil {
			return nil, err
		}
		if errors.Is(err, session.ErrAuth) {
			return nil, err // waiting would not help
		}
		select {
		case <-next:
		case <-c.ctx.Done():
		case <-ctx.Done():
			return nil, session.Waited(ctx, errors.New("waiting for the next session"))
		}
	}
}
