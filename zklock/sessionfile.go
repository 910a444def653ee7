package zklock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	zksession "github.com/zklock/locker/internal/session"
	"github.com/zklock/locker/zklock/internal/sessionfile"
)

// timeout returns the session timeout that the options ask for.
func (o *options) timeout() time.Duration {
	return cmp.Or(o.session.Timeout, zksession.DefaultTimeout)
}

// openFile opens the file of WithSessionFile, if there is one, and returns what earlier processes
// have left in it.
func (c *Client) openFile(
	ctx context.Context, servers []string, patience time.Duration,
) (sessionfile.Left, error) {
	if c.opts.sessionFile == "" {
		return sessionfile.Left{}, nil
	}
	file, left, err := sessionfile.Open(ctx, c.opts.sessionFile, servers, 0)
	isTaken := err != nil && !errors.Is(err, sessionfile.ErrRefused)
	if isTaken && patience > 0 && ctx.Err() == nil {
		c.log.Warn("zklock: waits for another process that has the session file; "+
			"each process needs its own", "why", err, "at_most", patience)
		file, left, err = sessionfile.Open(ctx, c.opts.sessionFile, servers, patience)
	}
	if errors.Is(err, sessionfile.ErrRefused) {
		return left, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	if err != nil {
		return left, err
	}
	c.file = file
	if left.Why != nil {
		c.log.Warn("zklock: the session file is of no use this time; "+
			"locks of a process that has crashed are free after its session timeout",
			"file", c.opts.sessionFile, "why", left.Why)
	}
	return left, nil
}

// noteSession adds a session to the file, before its first use.
func (c *Client) noteSession(k zksession.Key) { c.tellFile(c.file.Add(sessionfile.Key(k))) }

// forgetSession removes a session from the file, because the ensemble has ended it.
func (c *Client) forgetSession(id int64) {
	if c.file != nil {
		c.tellFile(c.file.Remove(id))
	}
}

// closeFile lets other processes have the file. The Client is closed. A session of it that lasts
// all the same is left to the ensemble: work that ignores the end of its context may still run.
func (c *Client) closeFile() {
	if c.file != nil {
		c.tellFile(c.file.Close())
	}
}

// tellFile logs why the file could not be written, if err says so.
func (c *Client) tellFile(err error) {
	if err != nil {
		c.log.Warn("zklock: the session file could not be written; "+
			"if this process crashes, its locks are free after the session timeout",
			"error", bare(err))
	}
}

// closeLeft closes the sessions that earlier processes have left in the file, as soon as a server
// answers. All these processes have ended: see package sessionfile.
func (c *Client) closeLeft(left sessionfile.Left) {
	if len(left.Keys) == 0 {
		return
	}
	present, err := c.await(c.ctx)
	for err != nil && c.ctx.Err() == nil { // ErrAuth: see closeWhenConnected
		present, err = c.await(c.ctx)
	}
	if err != nil {
		return // the Client is closed, and the next one finds them in the file
	}
	patience := present.Timeout() + 2*present.TickTime()
	for _, k := range left.Keys {
		ctx, cancel := context.WithTimeout(c.ctx, patience)
		err := zksession.CloseByKey(ctx, c.connect, c.opts.session, zksession.Key(k),
			present.Server())
		cancel()
		if c.ctx.Err() != nil {
			return
		}
		if err != nil {
			c.log.Warn("zklock: the locks of a process that has crashed are not free yet",
				"pid", left.PID, "session", fmt.Sprintf("%#x", k.ID), "error", bare(err))
			continue
		}
		c.forgetSession(k.ID)
		c.log.Info("zklock: the locks of a process that has crashed are free",
			"pid", left.PID, "session", fmt.Sprintf("%#x", k.ID))
	}
}

// SessionFile returns the open file of WithSessionFile, or nil without it, for the ExtraFiles of
// exec.Cmd: a child that has it counts as this process, so nobody closes this process's sessions
// early while the child lives. They still end a session timeout after the process. Don't close it
// or write to it.
func (c *Client) SessionFile() *os.File {
	if c.file == nil {
		return nil
	}
	return c.file.Descriptor()
}
