package zklock

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"

	zksession "github.com/zklock/locker/internal/session"
	"github.com/zklock/locker/internal/session/failure"
	"github.com/zklock/locker/internal/text"
	"github.com/zklock/locker/session"
	"github.com/zklock/locker/zklock/internal/sessionfile"
)

// Client is a program's access to its locks. It keeps one ZooKeeper session, and opens the next
// when that has ended. One Client serves a whole program, unless that has more locks than a session
// has room for (ErrSessionFull).
type Client struct {
	connect string
	chroot  string // of connect
	opts    options
	log     *slog.Logger

	ctx    context.Context // ends with Close; its cause is closedError
	cancel context.CancelCauseFunc

	present atomic.Pointer[present]
	file    *sessionfile.File // nil without WithSessionFile

	use   inUse       // what Status shows
	local localQueues // of WithLocalHandoff

	unlockBounds unlockBounds // of Unlock's waits for the answer

	// what Close waits for: acquisitions that have not ended, and goroutines of spawn
	ends sync.WaitGroup
	// held to cancel ctx, and to add to ends before that: afterwards Close may be waiting for ends
	mu sync.Mutex
}

// Dial connects to an ensemble: "zk1:2181,zk2:2181,zk3:2181/chroot". Nil error: a session exists.
// It blocks until then, or until ctx ends, which bounds this call only. It logs from time to time
// which servers it can't reach: see WithLogger.
//
// Errors: ErrInvalid, ErrPath: the connect string or an option is wrong; no I/O has been done.
// ErrAuth: credentials were refused. ErrUnreachable, with ctx's: what each server has answered.
// Nothing is left behind.
func Dial(ctx context.Context, connect string, opts ...Option) (*Client, error) {
	c, err := open(ctx, connect, opts, (*options).timeout)
	if err != nil {
		return nil, err
	}
	if _, err := c.await(ctx); err != nil {
		c.cancel(closedError{}) // what was started ends by itself
		c.closeFile()           // no lock was made in a session of this Client
		return nil, fmt.Errorf("zklock: dial %q: %w", connect, err)
	}
	return c, nil
}

// Open is Dial that does not wait: the Client connects in the background, and its calls wait for
// that, so that a service can start while the ensemble is down. Credentials that the ensemble
// refuses are the error of every call.
func Open(connect string, opts ...Option) (*Client, error) {
	return open(context.Background(), connect, opts, func(*options) time.Duration { return 0 })
}

// open is Open. patience bounds its wait for a session file that another process has, and ctx does.
func open(
	ctx context.Context, connect string, opts []Option, patience func(*options) time.Duration,
) (*Client, error) {
	o, err := chosen(opts)
	if err != nil {
		return nil, fmt.Errorf("zklock: dial: %w", err)
	}
	o.session.OnState = o.hooks.Session
	if o.session.Logger == nil {
		o.session.Logger = slog.New(newDefaultLog())
	}
	c := &Client{connect: connect, opts: o, log: o.session.Logger,
		use: inUse{waits: map[*waiting]struct{}{}, holds: map[*acquisition]struct{}{}}}
	servers, chroot, err := zksession.ParseConnect(connect)
	if err != nil {
		return nil, fmt.Errorf("zklock: dial %q: %w", connect, err)
	}
	c.chroot = chroot
	left, err := c.openFile(ctx, servers, patience(&o))
	if err != nil {
		return nil, fmt.Errorf("zklock: dial %q: %w", connect, err)
	}
	c.ctx, c.cancel = context.WithCancelCause(context.Background())
	first, err := c.start()
	if err != nil {
		c.cancel(closedError{})
		c.closeFile()
		return nil, fmt.Errorf("zklock: dial %q: %w", connect, err)
	}
	c.present.Store(first)
	c.spawn(c.keep)
	c.spawn(func() { c.closeLeft(left) })
	return c, nil
}

// Close ends the session, and with it every hold and wait of the Client (ErrClosed). The locks are
// free at once if a server is connected, or can be reached within a second, else when the ensemble
// expires the session. It returns nil once everything that it ran has ended, within about 2 s plus
// the hooks' time. It may be called again.
//
// Call it before the process exits; log.Fatal and os.Exit skip deferred calls. Without it, a lock
// may stay until the session times out.
func (c *Client) Close() error {
	c.mu.Lock()
	c.cancel(closedError{})
	c.mu.Unlock()
	c.ends.Wait() // the acquisitions end with the session; their hooks may still run
	c.closeFile()
	return nil
}

// Session returns the current session, for the program's own znodes, and waits for one as long as
// ctx lasts. When that session ends the Client opens another: don't keep it, ask again. ErrClosed:
// the Client was closed.
//
// A session that was lost in an outage is closed as soon as a server is reached, and so are its
// locks freed, unless the program has made an ephemeral znode in it: then it lasts until the
// ensemble ends it.
func (c *Client) Session(ctx context.Context) (session.Session, error) {
	s, err := c.await(ctx)
	if err != nil {
		return nil, err
	}
	return ownZnodes{s, c}, nil
}

// ownZnodes is a session without what its locks rely on. It notes that the program makes ephemeral
// znodes: see Client.closeGivenUp.
type ownZnodes struct {
	session.Session
	c *Client
}

// Create implements session.Session.
func (o ownZnodes) Create(
	ctx context.Context, path string, data []byte, mode session.Mode, acl []zk.ACL,
) (session.Created, error) {
	o.noteMode(mode)
	return o.Session.Create(ctx, path, data, mode, acl)
}

// Multi implements session.Session.
func (o ownZnodes) Multi(ctx context.Context, ops ...session.Op) ([]zk.MultiResponse, error) {
	for _, op := range ops {
		if create, ok := op.(session.OpCreate); ok {
			o.noteMode(create.Mode)
		}
	}
	return o.Session.Multi(ctx, ops...)
}

// noteMode notes that the program is about to make a znode of that mode.
func (o ownZnodes) noteMode(mode session.Mode) {
	if mode != session.Ephemeral && mode != session.EphemeralSequential {
		return
	}
	if now := o.c.present.Load(); now.session.ID() == o.ID() {
		now.hasOwnZnodes.Store(true)
	} // otherwise the session has ended, and the create will fail
}

// String returns the connect string, which has no credentials, and the state of the session.
func (c *Client) String() string {
	return "client of " + text.Foreign(c.connect) + " (" +
		c.present.Load().session.State().String() + ")"
}

// spawn runs fn in a goroutine that Close joins; fn must end soon after the Client was closed. If
// Close came first, spawn returns false.
func (c *Client) spawn(fn func()) bool {
	if !c.reserveEnd() {
		return false
	}
	defer c.ends.Done() // only after Go, which counts fn itself
	c.ends.Go(fn)
	return true
}

// reserveEnd makes Close wait until the caller has called ends.Done, which it owes from then on. If
// Close came first, reserveEnd returns false, and nothing is owed.
func (c *Client) reserveEnd() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ctx.Err() != nil {
		return false
	}
	c.ends.Add(1)
	return true
}

// ended is failure.Ended for the end of ctx, or else of the Client.
func (c *Client) ended(ctx context.Context, what error) error {
	return failure.Ended(ctx, context.Cause(c.ctx), what)
}

// rest waits for d, or until ctx ends or the Client is closed.
func (c *Client) rest(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	case <-c.ctx.Done():
	}
}

// giveUp leaves a ticket that is no longer wanted. Whatever it returns, the deletion goes on in the
// background.
func (c *Client) giveUp(ctx context.Context, t ticket) { _ = t.Leave(ctx) }
