package zklock

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-zookeeper/zk"

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
	if err := checkLook(path); err != nil {
		return fail(err)
	}
	ahead := 0
	for {
		s, err := c.Session(ctx)
		if err == nil {
			err = c.waitOnce(ctx, s, path, &ahead)
		}
		switch {
		case err == nil && ahead == 0:
			return nil
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
		case err != nil && (s == nil || s.Err() == nil):
			return fail(err)
		} // else look again, if the session is over in the next one
	}
}

// waitOnce finds out how many are in line, and, if anybody is, waits until another look is due.
func (c *Client) waitOnce(ctx context.Context, s *session.Session, path string, ahead *int) error {
	if err := s.Sync(ctx, path); err != nil {
		return err
	}
	names, stat, err := s.List(ctx, path)
	if err == nil {
		names, err = recipe.InOrder(ctx, s, path, names, stat)
	}
	switch {
	case errors.Is(err, zk.ErrNoNode):
		names = nil
	case err != nil:
		return err
	}
	if *ahead = len(names); *ahead == 0 {
		return nil
	}
	return recipe.AwaitGone(ctx, s, path, names[*ahead-1])
}
