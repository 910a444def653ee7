package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/spf13/cobra"

	"github.com/zklock/locker/recipe"
	"github.com/zklock/locker/session"
	"github.com/zklock/locker/zklock"
)

func (a *app) lsCommand() *cobra.Command {
	var asJSON bool
	var rows int
	var limits walkLimits
	cmd := &cobra.Command{
		Use:     "ls [flags] [PATH]",
		GroupID: groupLook,
		Short:   "List the locks that are in use",
		Long: `List the locks at PATH and below it (default: all) that somebody holds or waits for: who holds, for how long it has
stood in line, and how many wait. A znode is taken for a lock when it has children that are named as a lock's contenders
are. ZooKeeper's own znodes are left out, and those that may not be read: it says how many. At most --limit znodes are
looked at, a list for each: name the PATH of the locks where many others use the ensemble. With --json, --rows of each
line are shown. It ends with 77 when PATH itself may not be read.`,
		Example: `  zklock ls
  zklock ls /locks
  zklock ls --json /locks | jq -r '.[] | select(.waiting > 10) | .path'`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			root := "/"
			if len(args) == 1 {
				root = args[0]
			}
			if err := limits.check(); err != nil {
				return err
			}
			if rows < 1 {
				return usagef("--rows %d: must be more than 0", rows)
			}
			if !asJSON {
				rows = 1 // it holds, if anybody does
			}
			return a.with(func(ctx context.Context, c *zklock.Client) error {
				ctx, cancel := context.WithTimeout(ctx, max(time.Minute, a.conn.patience))
				defer cancel()
				found, err := findLocks(ctx, c, root, limits, rows)
				if err != nil {
					return err
				}
				if found.cut && !a.quiet {
					notice(a.err, "not everything was looked at: --limit %d znodes, --depth %d", limits.znodes, limits.depth)
				}
				if found.refused > 0 && !a.quiet {
					notice(a.err, "%d znodes may not be read with these credentials: locks there are not shown", found.refused)
				}
				if asJSON {
					return a.printJSON(found.locks)
				}
				return printLocks(a.out, found.locks, time.Now())
			})
		},
	}
	jsonFlag(cmd, &asJSON)
	rowsFlag(cmd, &rows)
	limits.register(cmd)
	return cmd
}

func rowsFlag(cmd *cobra.Command, rows *int) {
	cmd.Flags().IntVar(rows, "rows", 100, "with --json, show this many contenders of a lock at most")
}

// walkLimits bound how much of the tree is read.
type walkLimits struct{ znodes, depth int }

func (l *walkLimits) register(cmd *cobra.Command) {
	cmd.Flags().IntVar(&l.znodes, "limit", 10_000, "look at this many znodes at most")
	cmd.Flags().IntVar(&l.depth, "depth", 32, "look this many levels down at most")
}

func (l *walkLimits) check() error {
	switch {
	case l.znodes < 1:
		return usagef("--limit %d: must be more than 0", l.znodes)
	case l.depth < 0:
		return usagef("--depth %d: must not be less than 0", l.depth)
	}
	return nil
}

// atOnce is how many znodes are read at a time.
const atOnce = 16

// walk is what findLocks has found.
type walk struct {
	locks   []lockEntry
	znodes  int  // that were looked at
	refused int  // of these, that may not be read
	cut     bool // the limits left something out
}

// findLocks walks the tree below root, level by level, and reads rows contenders of each lock.
func findLocks(ctx context.Context, c *zklock.Client, root string, limits walkLimits, rows int) (w walk, err error) {
	if err := session.CheckPath(root); err != nil {
		return w, err
	}
	s, err := c.Session(ctx)
	if err == nil {
		err = s.Sync(ctx, "/")
	}
	if err != nil {
		return w, err
	}
	var locks []string
	level := []string{root}
	for depth := 0; len(level) > 0; depth++ {
		if depth > limits.depth || w.znodes+len(level) > limits.znodes {
			w.cut = true
			level = level[:max(0, min(len(level), limits.znodes-w.znodes))]
			if depth > limits.depth || len(level) == 0 {
				break
			}
		}
		w.znodes += len(level)
		children := make([][]string, len(level))
		refused := make([]bool, len(level))
		if err := each(level, func(i int, dir string) error {
			names, _, err := s.List(ctx, dir)
			children[i] = names
			if dir == root && errors.Is(err, zk.ErrNoAuth) {
				return err // an empty table would say that nobody holds anything
			}
			refused[i] = errors.Is(err, zk.ErrNoAuth)
			return readable(err)
		}); err != nil {
			return w, err
		}
		for _, is := range refused {
			if is {
				w.refused++
			}
		}
		var next []string
		for i, dir := range level {
			contenders := 0
			for _, name := range children[i] {
				if _, ok := recipe.Parse(name); ok {
					contenders++
				} else if p := join(dir, name); p != "/zookeeper" {
					next = append(next, p)
				}
			}
			if contenders > 0 && dir != "/" {
				locks = append(locks, dir)
			}
		}
		level = next
	}
	slices.Sort(locks)
	all := make([]lockEntry, len(locks))
	err = each(locks, func(i int, dir string) error {
		var err error
		all[i], err = readEntry(ctx, c, dir, 0, rows)
		return readable(err)
	})
	w.locks = slices.DeleteFunc(all, func(e lockEntry) bool { return e.Holding+e.Waiting == 0 }) // gone meanwhile
	return w, err
}

// readable is err, unless it says that one znode is gone, may not be read, or has more than can be read: that one is left
// out.
func readable(err error) error {
	for _, one := range []error{zk.ErrNoNode, zk.ErrNoAuth, session.ErrTooLarge, session.ErrPath} {
		if errors.Is(err, one) {
			return nil
		}
	}
	return err
}

// each calls fn for all paths, several at a time, and returns one of the errors.
func each(paths []string, fn func(i int, path string) error) error {
	var (
		wg   sync.WaitGroup
		mu   sync.Mutex
		next int
		bad  error
	)
	for range min(atOnce, len(paths)) {
		wg.Go(func() {
			for {
				mu.Lock()
				i := next
				next++
				stop := bad != nil || i >= len(paths)
				mu.Unlock()
				if stop {
					return
				}
				if err := fn(i, paths[i]); err != nil {
					mu.Lock()
					bad = err
					mu.Unlock()
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
	fmt.Fprintln(w, "LOCK\tKIND\tHOLDER\tAGE\tWAITING")
	for _, e := range locks {
		held := "-"
		if since := e.since(); !since.IsZero() {
			held = age(now.Sub(since))
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%d\n", short(e.Path, 200), e.kind(), dash(e.holder()), held, e.Waiting)
	}
	return w.Flush()
}
