package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/zklock/locker/zklock"
)

// runRecord is a record as --json shows it.
type runRecord struct {
	Path string    `json:"path"`
	Runs []runView `json:"runs"`
}

type runView struct {
	Key   string    `json:"key,omitempty"`
	Owner string    `json:"owner,omitempty"`
	Host  string    `json:"host"`
	PID   int       `json:"pid"`
	Token int64     `json:"token"`
	Began time.Time `json:"began"`
}

func (a *app) doneCommand() *cobra.Command {
	var asJSON, last bool
	var key string
	var age time.Duration
	cmd := &cobra.Command{
		Use:     "done [flags] PATH",
		GroupID: groupLook,
		Short:   "Show when a job was run, and by whom, or let it run again",
		Long: `Show the record of the job that zklock run --once-per or --every runs at PATH: for each run its key, when it began by the
ensemble's clock, its owner, and its token; of --every the last run, without a key. Only the job's own lock PATH has a record.

--forget KEY removes the run of that key from the record, so that the next start for that key runs the job again, and
--forget-last the run of --every; it ends with 1 when there is none. A record forgets nothing by itself: --forget-older 2160h
removes the runs with a key that began more than 90 days ago.`,
		Example: `  zklock done /locks/nightly-report
  zklock done --forget 2026-11-22 /locks/nightly-report
  zklock done --forget-older 2160h /locks/nightly-report`,
		Args: onePath,
		RunE: func(cmd *cobra.Command, args []string) error {
			changed := cmd.Flags().Changed
			if changed("forget") && (last || changed("forget-older")) || last && changed("forget-older") {
				return usagef("--forget, --forget-last and --forget-older: only one of them")
			}
			if age < 0 {
				return usagef("--forget-older %v: must not be negative", age)
			}
			return a.with(func(ctx context.Context, c *zklock.Client) error {
				ctx, cancel := context.WithTimeout(ctx, a.conn.patience)
				defer cancel()
				job := c.Job(args[0])
				switch {
				case changed("forget"):
					found, err := job.Forget(ctx, key)
					return a.forgotten(args[0], fmt.Sprintf("run of the key %q", clean(key)), found, err)
				case last:
					found, err := job.ForgetLast(ctx)
					return a.forgotten(args[0], "run of --every", found, err)
				case changed("forget-older"):
					n, err := job.ForgetBefore(ctx, time.Now().Add(-age))
					if err == nil && !a.quiet {
						_, err = fmt.Fprintf(a.out, "%s: %d runs forgotten\n", clean(args[0]), n)
					}
					return err
				}
				var runs []zklock.JobRun
				for run, err := range job.Runs(ctx) {
					if err != nil {
						return err
					}
					runs = append(runs, run)
				}
				slices.SortFunc(runs, func(a, b zklock.JobRun) int { return a.Began.Compare(b.Began) })
				if len(runs) == 0 {
					if err := a.noteNoRecord(ctx, c, args[0]); err != nil {
						return err
					}
				}
				if asJSON {
					return a.printJSON(newRunRecord(args[0], runs))
				}
				return printRuns(a.out, runs)
			})
		},
	}
	jsonFlag(cmd, &asJSON)
	f := cmd.Flags()
	f.StringVar(&key, "forget", "", "let the job run again for this `key`")
	f.BoolVar(&last, "forget-last", false, "let the job of --every run again")
	f.DurationVar(&age, "forget-older", 0, "let the job run again for all keys whose runs began longer ago than this")
	return cmd
}

// noteNoRecord says so when there is no record, as when path is misspelt. A record whose runs were all forgotten
// exists and is empty.
func (a *app) noteNoRecord(ctx context.Context, c *zklock.Client, path string) error {
	missing, err := a.missing(ctx, c, path+".done")
	if missing && !a.quiet {
		notice(a.err, "%s has no record: no job was run there with --once-per or --every", path)
	}
	return err
}

// forgotten tells what has become of --forget.
func (a *app) forgotten(path, what string, found bool, err error) error {
	switch {
	case err != nil:
		return err
	case !found:
		return fmt.Errorf("done %s: no %s is recorded", path, what)
	case a.quiet:
		return nil
	}
	_, err = fmt.Fprintf(a.out, "%s: forgot the %s; the next start runs the job again\n", clean(path), what)
	return err
}

func newRunRecord(path string, runs []zklock.JobRun) runRecord {
	r := runRecord{path, make([]runView, len(runs))}
	for i, run := range runs {
		r.Runs[i] = runView{run.Key, run.Owner, run.Host, run.PID, int64(run.Token), run.Began.UTC()}
	}
	return r
}

func printRuns(out io.Writer, runs []zklock.JobRun) error {
	w := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	fmt.Fprintln(w, "BEGAN\tKEY\tOWNER\tHOST\tPID\tTOKEN")
	for _, r := range runs {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%d\t%d\n", r.Began.UTC().Format(time.RFC3339), dash(short(r.Key, 128)), dash(short(r.Owner, 40)),
			short(r.Host, 60), r.PID, r.Token)
	}
	return w.Flush()
}
