package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/zklock/locker/zklock"
)

// registerOnce adds the flags of a command that runs once in the fleet.
func (l *lockFlags) registerOnce(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&l.key, "once-per", "", "run the command once in the fleet for this `key`; 0 at once when it was run")
	f.DurationVar(&l.every, "every", 0, "run the command unless the last run began less than this long ago; 0 at once then")
	f.BoolVar(&l.atMost, "at-most-once", false, "with --once-per or --every: a run counts from its start, also when it fails")
}

// once reports whether the command is to run once in the fleet.
func (l *lockFlags) once() bool { return l.key != "" || l.everySet }

func (l *lockFlags) checkOnce(changed func(string) bool) error {
	l.everySet = changed("every")
	switch {
	case changed("once-per") && l.key == "":
		return usagef("--once-per: the key is empty")
	case changed("once-per") && l.everySet:
		return usagef("--once-per and --every: only one of them")
	case l.everySet && l.every <= 0:
		return usagef("--every %v: must be more than 0", l.every)
	case l.atMost && !l.once():
		return usagef("--at-most-once: needs --once-per or --every")
	case l.once() && (l.shared || l.exclusive || l.size > 0):
		return usagef("--once-per and --every: need a plain lock, not --shared, --exclusive or --of")
	}
	return nil
}

// section calls fn, which runs the command, while the lock is held; left is the rest of --wait.
type section func(ctx context.Context, c *zklock.Client, left time.Duration, fn func(h *zklock.Hold) (started bool, err error)) error

// onlyOnce is the section of a job that runs once in the fleet.
func (a *app) onlyOnce(l *lockFlags, path string) section {
	return func(ctx context.Context, c *zklock.Client, left time.Duration, fn func(h *zklock.Hold) (started bool, err error)) error {
		opts := l.options(left)
		if l.try {
			opts = append(opts, zklock.WithMaxWait(0))
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, a.conn.patience) // for a connection; it does not end the command
			defer cancel()
		}
		job := c.Job(path, opts...)
		forget := func(ctx context.Context) (bool, error) { return job.Forget(ctx, l.key) }
		if l.everySet {
			forget = job.ForgetLast
		}
		if l.atMost {
			job = job.AtMostOnce()
		}
		work := func(ctx context.Context) error {
			h, _ := zklock.HoldFrom(ctx, path)
			started, err := fn(h)
			if l.atMost && !started { // recorded, and not made
				if _, err := forget(h.Context()); err != nil {
					notice(a.err, "the command was not started, and its run stays recorded (see zklock done --forget): %v", bare{err})
				}
			}
			return err
		}
		var run zklock.JobRun
		var err error
		if l.everySet {
			run, err = job.Every(ctx, l.every, work)
		} else {
			run, err = job.Once(ctx, l.key, work)
		}
		switch {
		case errors.Is(err, zklock.ErrNotRecorded):
			return fmt.Errorf("the command has ended with 0, but its run could not be recorded, so that it may be run again: %w", err)
		case err != nil || run.Mine:
		case a.verbose || !a.quiet && term.IsTerminal(int(os.Stderr.Fd())):
			notice(a.err, "%s: done already, %v", path, run)
		}
		return err
	}
}
