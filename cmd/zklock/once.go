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
	f.StringVar(&l.key, "once-per", "",
		"run the command once in the fleet for this `key`; 0 at once when it was run")
	f.DurationVar(&l.every, "every", 0,
		"run the command unless the last run began less than this long ago; 0 at once then")
	f.BoolVar(&l.atMost, "at-most-once", false,
		"with --once-per or --every: a run counts from its start, also when it fails")
}

// once reports whether the command is to run once in the fleet.
func (l *lockFlags) once() bool { return l.key != "" || l.everySet }

// checkOnce refuses invalid combinations of the flags of registerOnce.
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
		return usagef("--once-per and --every: " +
			"need a plain lock, not --shared, --exclusive or --of")
	}
	return nil
}

// onlyOnce returns the section of a job that runs once in the fleet. The section does not call the
// work if the job was run already.
func (a *app) onlyOnce(l *lockFlags, path string) section {
	return func(ctx context.Context, c *zklock.Client, left time.Duration, do work) error {
		opts := l.options(left)
		if l.try {
			opts = append(opts, zklock.WithMaxWait(0))
			// This bounds the wait for a connection. It does not end the command.
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, a.conn.patience)
			defer cancel()
		}
		job := c.Job(path, opts...)
		if l.atMost {
			job = job.AtMostOnce()
		}
		run, err := l.runJob(ctx, job, func(ctx context.Context) error {
			h, _ := zklock.HoldFrom(ctx, path)
			started, err := do(h)
			if l.atMost && !started {
				a.forgetUnstarted(h.Context(), l, job)
			}
			return err
		})
		if errors.Is(err, zklock.ErrNotRecorded) {
			return fmt.Errorf("the command has ended with 0, but its run could not be recorded, "+
				"so that it may be run again: %w", err)
		}
		if err == nil && !run.Mine {
			a.noteDone(path, run)
		}
		return err
	}
}

// runJob runs fn as the job, by the rule that the flags name.
func (l *lockFlags) runJob(
	ctx context.Context, job *zklock.Job, fn func(ctx context.Context) error,
) (zklock.JobRun, error) {
	if l.everySet {
		return job.Every(ctx, l.every, fn)
	}
	return job.Once(ctx, l.key, fn)
}

// forgetUnstarted removes a run from the record that --at-most-once has recorded before its start,
// and that was not started.
func (a *app) forgetUnstarted(ctx context.Context, l *lockFlags, job *zklock.Job) {
	var err error
	if l.everySet {
		_, err = job.ForgetLast(ctx)
	} else {
		_, err = job.Forget(ctx, l.key)
	}
	if err != nil {
		notice(a.err, "the command was not started, and its run stays recorded "+
			"(see zklock done --forget): %v", bare{err})
	}
}

// noteDone tells the user at a terminal that the job was run before. Elsewhere it prints nothing,
// so that cron sends no mail.
func (a *app) noteDone(path string, run zklock.JobRun) {
	if a.verbose || !a.quiet && term.IsTerminal(int(os.Stderr.Fd())) {
		notice(a.err, "%s: done already, %v", path, run)
	}
}
