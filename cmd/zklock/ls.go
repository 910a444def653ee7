package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/zklock/locker/zklock"
	"github.com/zklock/locker/zklock/admin"
)

// lsFlags are the flags of ls.
type lsFlags struct {
	asJSON bool
	rows   int
	limits walkLimits
}

func (a *app) lsCommand() *cobra.Command {
	var l lsFlags
	cmd := &cobra.Command{
		Use:     "ls [flags] PATH",
		GroupID: groupLook,
		Short:   "List the locks that are in use",
		Long: `List the locks in use at PATH (default: $ZKLOCK_ROOT) and below it: the holder, how long it has been in line, and how many
wait. The time in line includes the wait, because the ensemble does not know when the holder got the lock.

A znode counts as a lock when it has children with names of contenders. ZooKeeper's own znodes are left out. So are those
that may not, or can't, be read; it prints their number. When PATH itself may not be read, it ends with 77.

Each znode costs one request, whether it belongs to a lock or not, and / is the whole ensemble. It reads at most --limit
znodes. With --json, it shows at most --rows contenders of each lock.`,
		Example: `  zklock ls /locks
  zklock ls --json /locks | jq -r '.[] | select(.waiting > 10) | .path'`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			root, err := lookRoot(cmd, args)
			if err != nil {
				return err
			}
			if err := l.check(); err != nil {
				return err
			}
			return a.with(func(ctx context.Context, c *zklock.Client) error {
				ctx, cancel := context.WithTimeout(ctx, max(time.Minute, a.conn.patience))
				defer cancel()
				return a.ls(ctx, c, root, &l)
			})
		},
	}
	jsonFlag(cmd, &l.asJSON)
	rowsFlag(cmd, &l.rows)
	l.limits.register(cmd)
	return cmd
}

func (l *lsFlags) check() error {
	if err := l.limits.check(); err != nil {
		return err
	}
	if l.rows < 1 {
		return usagef("--rows %d: must be more than 0", l.rows)
	}
	return nil
}

// ls prints the locks at root and below it.
func (a *app) ls(ctx context.Context, c *zklock.Client, root string, l *lsFlags) error {
	rows := l.rows
	if !l.asJSON {
		rows = 1 // the table shows the holder only, which is the first in line
	}
	found, err := findLocks(ctx, c, root, l.limits, rows)
	if err != nil {
		return err
	}
	if !a.quiet {
		a.noteLeftOut(found, l.limits)
	}
	if len(found.locks) == 0 {
		if err := a.noteMissing(ctx, c, root); err != nil {
			return err
		}
	}
	if l.asJSON {
		return a.printJSON(found.locks)
	}
	return printLocks(a.out, found.locks, time.Now())
}

// noteLeftOut tells the user which znodes the walk did not read.
func (a *app) noteLeftOut(found walk, limits walkLimits) {
	if found.cut {
		notice(a.err, "some znodes were left out: --limit %d znodes, --depth %d",
			limits.znodes, limits.depth)
	}
	if found.hidden > 0 {
		notice(a.err, "%d znodes %s: locks there are not shown", found.hidden, unread)
	}
}

// unread says of znodes why ls and prune could not read them.
const unread = "may not be read with these credentials, or have too many children"

// lookRoot returns the path below which ls searches: its argument, or the one in the environment.
// There is no other default. An ensemble may have a million znodes that are not locks, and ls would
// list each of them.
func lookRoot(cmd *cobra.Command, args []string) (string, error) {
	if len(args) == 1 {
		return slashless(args[0]), nil
	}
	if root := os.Getenv(envRoot); root != "" {
		return slashless(root), nil
	}
	return "", usagef("no PATH: name the directory of the locks, or set %s; "+
		"%s / looks at the whole ensemble", envRoot, cmd.CommandPath())
}

// slashless returns path without the slash that a shell's completion leaves at its end.
func slashless(path string) string {
	if cut := strings.TrimRight(path, "/"); cut != "" {
		return cut
	}
	return path
}

func rowsFlag(cmd *cobra.Command, rows *int) {
	cmd.Flags().IntVar(rows, "rows", 100,
		"with --json, show at most this many contenders of each lock")
}

// walkLimits bounds how much of the tree is read.
type walkLimits struct{ znodes, depth int }

func (l *walkLimits) register(cmd *cobra.Command) {
	cmd.Flags().IntVar(&l.znodes, "limit", 10_000, "read at most this many znodes")
	cmd.Flags().IntVar(&l.depth, "depth", 32, "look at most this many levels down")
}

func (l *walkLimits) check() error {
	switch {
	case l.znodes < 1:
		return usagef("--limit %d: must be more than 0", l.znodes)
	case l.depth < 1:
		return usagef("--depth %d: must be more than 0", l.depth)
	}
	return nil
}

// walk is the result of walking a tree.
type walk struct {
	locks  []lockEntry
	hidden int  // znodes that may not, or can't, be read
	cut    bool // the limits left something out
}

// findLocks searches for the locks at root and below it, and reads rows contenders of each.
func findLocks(
	ctx context.Context, c *zklock.Client, root string, limits walkLimits, rows int,
) (walk, error) {
	search := admin.Search{Znodes: limits.znodes, Depth: limits.depth, Rows: rows}
	found, err := admin.Locks(ctx, c, root, search)
	w := walk{locks: []lockEntry{}, hidden: found.Hidden, cut: found.Truncated}
	for _, page := range found.Locks {
		w.locks = append(w.locks, newEntry(page))
	}
	return w, err
}

// printLocks prints a table of locks.
func printLocks(out io.Writer, locks []lockEntry, now time.Time) error {
	w := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	fmt.Fprintln(w, "LOCK\tKIND\tHOLDER\tIN LINE\tWAITING")
	for _, e := range locks {
		held := "-"
		if since := e.since(); !since.IsZero() {
			held = age(now.Sub(since))
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%d\n",
			short(e.Path, 200), e.kind(), dash(e.holder()), held, e.Waiting)
	}
	return w.Flush()
}
