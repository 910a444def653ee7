package zklock

import (
	"context"
	"errors"
	"fmt"

	"github.com/zklock/locker/internal/trusted"
	"github.com/zklock/locker/recipe"
	"github.com/zklock/locker/session"
)

// WaitFree waits until nobody holds the lock at path or waits for it, whichever kind of lock it is. It takes no place in
// line and keeps nobody waiting; the lock may be taken again the moment after. A path that does not exist is free.
//
// Nil: nobody was in line at some time during the call. It blocks until then, across disconnects and sessions that end,
// or until ctx ends or the Client is closed; when ctx ends, the error matches ctx's. It watches the last contender in
// line, so that a long line that moves does not wake it; one that it may not read it polls for every few seconds. It
// costs a sync and a list for each look, and leaves nothing at the ensemble. It may be called concurrently.
//
// Errors: ErrClosed, ErrPath, zk.ErrNoAuth when the path may not be read, ErrTooLarge, session.ErrAuth. The error of a
// ctx that has ended matches ErrBusy as well if the line was not empty at the latest look.
func (c *Client) WaitFree(ctx context.Context, path string) error {
	c.need()
	needContext(ctx)
	fail := func(err error) error { return &lockError{"wait until free", path, err} }
	ahead := 0
	for {
		l, err := c.readLine(ctx, path)
		if err == nil {
			if ahead = len(l.names); ahead == 0 {
				return nil
			}
			err = recipe.AwaitGone(ctx, l.s, path, l.names[ahead-1])
		}
		switch {
		case errors.Is(err, ErrPath):
			return fail(err)
		case c.ctx.Err() != nil:
			return fail(closedError{})
		case ctx.Err() != nil:
			if !errors.Is(err, ctx.Err()) {
				err = session.Waited(ctx, trusted.Caller{}, errors.New("waiting until nobody is in line"))
			}
			if ahead > 0 {
				err = fmt.Errorf("%w: %d in line: %w", ErrBusy, ahead, err)
			}
			return fail(err)
		case err != nil && (l.s == nil || l.s.Err() == nil):
			return fail(err)
		} // else look again, if the session is over in the next one
	}
}
