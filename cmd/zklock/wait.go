package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/spf13/cobra"

	"github.com/zklock/locker/recipe"
	"github.com/zklock/locker/zklock"
)

func (a *app) waitCommand() *cobra.Command {
	var wait time.Duration
	var try bool
	cmd := &cobra.Command{
		Use:     "wait [flags] PATH",
		GroupID: groupRun,
		Short:   "Wait until nobody holds a lock or waits for it",
		Long: `Wait until nobody holds the lock at PATH or waits for it, and end with 0; 75 when that is not so within --wait, or at once with --try. It takes no
place in line and keeps nobody waiting; the lock may be taken again the moment after.

` + exitTable,
		Example: `  zklock wait /locks/deploy && echo "no deployment under way"
  zklock wait --wait 5m /locks/deploy
  zklock wait --try /locks/deploy                     # only look: 0 free, 75 not`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			set := cmd.Flags().Changed("wait")
			switch {
			case set && try:
				return usagef("--try and --wait: only one of them")
			case set && wait <= 0:
				return usagef("--wait %v: must be more than 0; not to wait at all is --try", wait)
			}
			if set {
				a.conn.patience = min(a.conn.patience, wait)
			}
			line := a.newLine(args[0])
			line.aside = true
			began := time.Now()
			return a.with(func(ctx context.Context, c *zklock.Client) error {
				if set {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeoutCause(ctx, wait-time.Since(began), errWaited)
					defer cancel()
				}
				if try {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, a.conn.patience) // for answers: it waits for nobody
					defer cancel()
				} else if err := nested(ctx, c, args[0], 0, 0); err != nil {
					return err
				}
				line.follow(ctx)
				defer line.end()
				return untilFree(ctx, c, args[0], try, line)
			})
		},
	}
	a.busyFlag(cmd)
	cmd.Flags().DurationVar(&wait, "wait", 0, "for at most this long; default as long as it takes")
	cmd.Flags().BoolVar(&try, "try", false, "don't wait: 75 when the lock is not free")
	return cmd
}

var errWaited = errors.New("the time to wait is over")

// untilFree returns nil when nobody is in the line of path. It watches the last one there, so that a long line that
// moves does not wake it.
func untilFree(ctx context.Context, c *zklock.Client, path string, try bool, l *line) error {
	if _, err := c.QueuePage(ctx, path, 0, 0); err != nil { // says what is wrong with the path
		return waited(ctx, path, err, 0)
	}
	ahead := 0
	for {
		s, err := c.Session(ctx)
		if err != nil {
			return waited(ctx, path, err, ahead)
		}
		if err = s.Sync(ctx, path); err == nil {
			var names []string
			var stat zk.Stat
			if names, stat, err = s.List(ctx, path); err == nil {
				names, err = recipe.InOrder(ctx, s, path, names, stat)
			}
			switch ahead = len(names); {
			case errors.Is(err, zk.ErrNoNode), err == nil && ahead == 0:
				return nil
			case err == nil && try:
				return busy(path, ahead)
			case err == nil:
				l.set(ahead, join(path, names[0]), describe(ctx, s, path, names[0]))
				err = gone(ctx, s, join(path, names[ahead-1]))
			}
		}
		if err != nil && (ctx.Err() != nil || s.Err() == nil) {
			return waited(ctx, path, err, ahead)
		} // else the session is over, and there will be another
	}
}

func busy(path string, ahead int) error {
	return fmt.Errorf("%w: %s: %d in line", zklock.ErrBusy, path, ahead)
}

// waited is err, or, when --wait is over, that somebody is still there; if anybody was seen.
func waited(ctx context.Context, path string, err error, ahead int) error {
	if errors.Is(context.Cause(ctx), errWaited) && ahead > 0 {
		return fmt.Errorf("%w (%w)", busy(path, ahead), errWaited)
	}
	return err
}
