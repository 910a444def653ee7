package main

import (
	"context"
	"fmt"
	"io"
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
	var asJSON bool
	var key string
	cmd := &cobra.Command{
		Use:     "done [flags] PATH",
		GroupID: groupLook,
		Short:   "Show when a job was run, and by whom, or let it run again",
		Long: `Show the record of the job that zklock run --once-per or --every runs at PATH: for each of the last runs its key, when it
began by the ensemble's clock, its owner, and its token. Only the job's own lock PATH has a record.

--forget KEY removes the runs of that key from the record, so that the next start for that key runs the job again;
--forget '' removes those of --every. It ends with 1 when there are none.`,
		Example: `  zklock done /locks/nightly-report
  zklock done --forget 2026-11-22 /locks/nightly-report`,
		Args: onePath,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.with(func(ctx context.Context, c *zklock.Client) error {
				ctx, cancel := context.WithTimeout(ctx, a.conn.patience)
				defer cancel()
				if cmd.Flags().Changed("forget") {
					return a.forget(ctx, c, args[0], key)
				}
				runs, err := c.Once(args[0]).Runs(ctx)
				if err != nil {
					return err
				}
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
	cmd.Flags().StringVar(&key, "forget", "", "let the job run again for this `key`")
	return cmd
}

// noteNoRecord says so when there is no record, as when path is misspelt. A record whose runs were all forgotten exists
// and is empty.
func (a *app) noteNoRecord(ctx context.Context, c *zklock.Client, path string) error {
	missing, err := a.missing(ctx, c, path+".done")
	if missing && !a.quiet {
		notice(a.err, "%s has no record: no job was run there with --once-per or --every", path)
	}
	return err
}

func (a *app) forget(ctx context.Context, c *zklock.Client, path, key string) error {
	found, err := c.Once(path).Forget(ctx, key)
	switch {
	case err != nil:
		return err
	case !found:
		return fmt.Errorf("done %s: no run of the key %q is recorded", path, key)
	case a.quiet:
		return nil
	}
	_, err = fmt.Fprintf(a.out, "%s: the next start for the key %q runs the job again\n", clean(path), clean(key))
	return err
}

func newRunRecord(path string, runs []zklock.Run) runRecord {
	r := runRecord{path, make([]runView, len(runs))}
	for i, run := range runs {
		r.Runs[i] = runView{run.Key, run.Owner, run.Host, run.PID, int64(run.Token), run.Began.UTC()}
	}
	return r
}

func printRuns(out io.Writer, runs []zklock.Run) error {
	w := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	fmt.Fprintln(w, "BEGAN\tKEY\tOWNER\tHOST\tPID\tTOKEN")
	for _, r := range runs {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%d\t%d\n", r.Began.UTC().Format(time.RFC3339), dash(short(r.Key, 128)), dash(short(r.Owner, 40)),
			short(r.Host, 60), r.PID, r.Token)
	}
	return w.Flush()
}
