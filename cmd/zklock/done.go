package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/zklock/locker/internal/contender"
	"github.com/zklock/locker/zklock"
)

// runRecord is a record as --json shows it.
type runRecord struct {
	Path string    `json:"path"`
	Runs []runView `json:"runs"`
}

// runView is one run of a record as --json shows it.
type runView struct {
	Key   string    `json:"key,omitempty"`
	Owner string    `json:"owner,omitempty"`
	Host  string    `json:"host"`
	PID   int       `json:"pid"`
	Token int64     `json:"token"`
	Began time.Time `json:"began"`
}

// doneFlags are the flags of done.
type doneFlags struct {
	asJSON bool
	key    string        // of --forget
	last   bool          // --forget-last
	age    time.Duration // of --forget-older
}

// doneAction is what done does with a record. At most one flag chooses it.
type doneAction int

const (
	doneShow doneAction = iota
	doneForgetKey
	doneForgetLast
	doneForgetOlder
)

func (a *app) doneCommand() *cobra.Command {
	var d doneFlags
	cmd := &cobra.Command{
		Use:     "done [flags] PATH",
		GroupID: groupLook,
		Short:   "Show when a job was run, and by whom, or let it run again",
		Long: `Show the record of the job that zklock run --once-per or --every runs at PATH: for each run its key, when it began by the
ensemble's clock, its owner, and its token. A job run with --every has one record, of its last run, without a key. PATH is
the job's own lock: no other path has a record of it.

--forget KEY removes the run of that key, so that the next start for that key runs the job again. --forget-last removes the
run of --every. Both end with 1 if there is no such run.

A record forgets nothing by itself: --forget-older 2160h removes the runs with a key that began more than 90 days ago, by
this machine's clock.`,
		Example: `  zklock done /locks/nightly-report
  zklock done --forget 2026-11-22 /locks/nightly-report
  zklock done --forget-older 2160h /locks/nightly-report`,
		Args: onePath,
		RunE: func(cmd *cobra.Command, args []string) error {
			action, err := d.action(cmd.Flags().Changed)
			if err != nil {
				return err
			}
			return a.with(func(ctx context.Context, c *zklock.Client) error {
				ctx, cancel := context.WithTimeout(ctx, a.conn.patience)
				defer cancel()
				return a.done(ctx, c, args[0], &d, action)
			})
		},
	}
	jsonFlag(cmd, &d.asJSON)
	f := cmd.Flags()
	f.StringVar(&d.key, "forget", "", "let the job run again for this `key`")
	f.BoolVar(&d.last, "forget-last", false, "let the job of --every run again")
	f.DurationVar(&d.age, "forget-older", 0,
		"forget the runs with a key that are older than this")
	return cmd
}

// action returns what the flags choose. It refuses flags that can't be given together. changed
// reports whether a flag was given.
func (d *doneFlags) action(changed func(flag string) bool) (doneAction, error) {
	var chosen []doneAction
	if changed("forget") {
		chosen = append(chosen, doneForgetKey)
	}
	if d.last {
		chosen = append(chosen, doneForgetLast)
	}
	if changed("forget-older") {
		chosen = append(chosen, doneForgetOlder)
	}
	switch {
	case len(chosen) > 1:
		return 0, usagef("--forget, --forget-last and --forget-older: only one of them")
	case len(chosen) > 0 && d.asJSON:
		return 0, usagef("--json: only without --forget, --forget-last and --forget-older")
	case d.age < 0:
		return 0, usagef("--forget-older %v: must not be negative", d.age)
	case len(chosen) == 0:
		return doneShow, nil
	}
	return chosen[0], nil
}

// done shows the record of the job at path, or removes runs from it.
func (a *app) done(
	ctx context.Context, c *zklock.Client, path string, d *doneFlags, action doneAction,
) error {
	job := c.Job(path)
	switch action {
	case doneForgetKey:
		found, err := job.Forget(ctx, d.key)
		if err != nil {
			return err
		}
		return a.sayForgotten(path, fmt.Sprintf("run of the key %q", clean(d.key)), found)
	case doneForgetLast:
		found, err := job.ForgetLast(ctx)
		if err != nil {
			return err
		}
		return a.sayForgotten(path, "run of --every", found)
	case doneForgetOlder:
		n, err := job.ForgetBefore(ctx, time.Now().Add(-d.age))
		if err != nil || a.quiet {
			return err
		}
		_, err = fmt.Fprintf(a.out, "%s: %d runs forgotten\n", clean(path), n)
		return err
	}
	return a.showRuns(ctx, c, path, d.asJSON)
}

// sayForgotten prints that a run was removed from the record at path. It returns an error if there
// was no such run.
func (a *app) sayForgotten(path, run string, found bool) error {
	if !found {
		return fmt.Errorf("done %s: no %s is recorded", path, run)
	}
	if a.quiet {
		return nil
	}
	_, err := fmt.Fprintf(a.out, "%s: forgot the %s; the next start runs the job again\n",
		clean(path), run)
	return err
}

// showRuns prints the runs of the job at path, the earliest first.
func (a *app) showRuns(ctx context.Context, c *zklock.Client, path string, asJSON bool) error {
	var runs []zklock.JobRun
	for run, err := range c.Job(path).Runs(ctx) {
		if err != nil {
			return err
		}
		runs = append(runs, run)
	}
	slices.SortFunc(runs, func(a, b zklock.JobRun) int { return a.Began.Compare(b.Began) })
	if len(runs) == 0 {
		if err := a.noteNoRecord(ctx, c, path); err != nil {
			return err
		}
	}
	if asJSON {
		return a.printJSON(newRunRecord(path, runs))
	}
	return printRuns(a.out, runs)
}

// noteNoRecord tells the user if there is no record, as when path is misspelt. It says nothing of a
// record whose runs were all forgotten: that exists, and is empty.
func (a *app) noteNoRecord(ctx context.Context, c *zklock.Client, path string) error {
	missing, err := a.missing(ctx, c, path+contender.RecordSuffix)
	if missing && !a.quiet {
		notice(a.err, "%s has no record: no job was run there with --once-per or --every", path)
	}
	return err
}

func newRunRecord(path string, runs []zklock.JobRun) runRecord {
	r := runRecord{path, make([]runView, len(runs))}
	for i, run := range runs {
		r.Runs[i] = runView{
			Key:   run.Key,
			Owner: run.Owner,
			Host:  run.Host,
			PID:   run.PID,
			Token: int64(run.Token),
			Began: run.Began.UTC(),
		}
	}
	return r
}

// printRuns prints runs as a table.
func printRuns(out io.Writer, runs []zklock.JobRun) error {
	w := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	fmt.Fprintln(w, "BEGAN\tKEY\tOWNER\tHOST\tPID\tTOKEN")
	for _, r := range runs {
		began := r.Began.UTC().Format(time.RFC3339)
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%d\t%d\n",
			began, dash(short(r.Key, 128)), dash(short(r.Owner, 40)), short(r.Host, 60),
			r.PID, r.Token)
	}
	return w.Flush()
}
