package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/zklock/locker/zklock"
)

func (a *app) waitCommand() *cobra.Command {
	var wait time.Duration
	var try bool
	cmd := &cobra.Command{
		Use:     "wait [flags] PATH",
		GroupID: groupRun,
		Short:   "Wait until no contender holds a lock or waits for it",
		Long: `Wait until no contender holds the lock at PATH or waits for it, and end with 0; with 75 if that takes longer than --wait, or
at once with --try if the lock is not free. It takes no place in line and delays no contender; the lock may be taken again a
moment later. Where there is no znode the lock is free: it ends with 0, and says so, since the path may be misspelt. A chroot
that does not exist is an error, 64.

` + exitTable,
		Example: `  zklock wait /locks/deploy && echo "no deployment under way"
  zklock wait --wait 5m /locks/deploy
  zklock wait --try /locks/deploy                     # only look: 0 free, 75 not`,
		Args: onePath,
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
					ctx, cancel = context.WithTimeout(ctx, a.conn.patience) // for answers: --try waits for no contender
					defer cancel()
				} else if err := nested(ctx, c, args[0], 0, 0); err != nil {
					return err
				}
				if err := a.noteMissing(ctx, c, args[0]); err != nil {
					return err
				}
				line.connected(c)
				line.follow(ctx)
				defer line.end()
				return untilFree(ctx, c, args[0], try)
			})
		},
	}
	a.busyFlag(cmd)
	cmd.Flags().DurationVar(&wait, "wait", 0, "for at most this long; default as long as it takes")
	cmd.Flags().BoolVar(&try, "try", false, "don't wait: 75 when the lock is not free")
	return cmd
}

var errWaited = errors.New("the wait timed out")

// untilFree returns nil when the line of path is empty.
func untilFree(ctx context.Context, c *zklock.Client, path string, try bool) error {
	page, err := c.QueuePage(ctx, path, 0, 0) // also returns the error of an invalid path
	ahead := page.Holding + page.Waiting
	switch {
	case err != nil || ahead == 0:
		return err
	case try:
		return fmt.Errorf("%w: %s: %d in line", zklock.ErrBusy, path, ahead)
	}
	err = c.WaitFree(ctx, path)
	if errors.Is(context.Cause(ctx), errWaited) && errors.Is(err, zklock.ErrBusy) {
		return fmt.Errorf("%w: %s: contenders are in line (%w)", zklock.ErrBusy, path, errWaited)
	}
	return err
}
