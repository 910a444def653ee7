package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/spf13/cobra"

	"github.com/zklock/locker/internal/session"
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
		Long: `List the locks in use at PATH (default: $ZKLOCK_ROOT) and below it: the holder, how long it has been in line (including its
wait: the ensemble does not know when it got the lock), and how many wait. A znode counts as a lock when it has children
with names of contenders. ZooKeeper's own znodes are left out, and those that may not be read: it prints their number. It
reads at most --limit znodes, with a list for each, whether they belong to locks or not: / is the whole ensemble. With
--json, it shows --rows of each line. It ends with 77 when PATH itself may not be read.`,
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
		notice(a.err, "%d znodes may not be read with these credentials: "+
			"locks there are not shown", found.hidden)
	}
}

// lookRoot returns the path below which ls searches: its argument, or the one in the environment.
// There is no other default. An ensemble may have a million znodes that are no locks, and ls would
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
		"with --json, show this many contenders of a lock at most")
}

// walkLimits bounds how much of the tree is read.
type walkLimits struct{ znodes, depth int }

func (l *walkLimits) register(cmd *cobra.Command) {
	cmd.Flags().IntVar(&l.znodes, "limit", 10_000, "look at this many znodes at most")
	cmd.Flags().IntVar(&l.depth, "depth", 32, "look this many levels down at most")
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

// atOnce is how many znodes are read at a time.
const atOnce = 16

// walk is the result of walking a tree.
type walk struct {
	locks  []lockEntry
	hidden int  // znodes that may not be read
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

// readable returns nil if err says that one znode is gone, may not be read, or is too large to
// read. Such a znode is left out. Of any other error readable returns err itself.
func readable(err error) error {
	for _, one := range []error{zk.ErrNoNode, zk.ErrNoAuth, session.ErrTooLarge, session.ErrPath} {
		if errors.Is(err, one) {
			return nil
		}
	}
	return err
}

// each calls fn for all paths, at most atOnce at a time, and returns one of the errors. After an
// error it makes no more calls.
func each(paths []string, fn func(i int, path string) error) error {
	var (
		wg   sync.WaitGroup
		mu   sync.Mutex
		next int
		bad  error
	)
	// take returns the index of the next path, or false if no call is left to make.
	take := func() (int, bool) {
		mu.Lock()
		defer mu.Unlock()
		if bad != nil || next == len(paths) {
			return 0, false
		}
		next++
		return next - 1, true
	}
	fail := func(err error) {
		mu.Lock()
		defer mu.Unlock()
		bad = err
	}
	for range min(atOnce, len(paths)) {
		wg.Go(func() {
			for i, more := take(); more; i, more = take() {
				if err := fn(i, paths[i]); err != nil {
					fail(err)
				}
			}
		})
	}
	wg.Wait()
	return bad
}

func join(dir, name string) string { return strings.TrimSuffix(dir, "/") + "/" + name }

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
