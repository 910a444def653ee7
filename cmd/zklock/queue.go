package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/spf13/cobra"

	"github.com/zklock/locker/internal/queuejson"
	"github.com/zklock/locker/internal/unsealed"
	"github.com/zklock/locker/zklock"
)

// queueFlags are the flags of queue.
type queueFlags struct {
	asJSON     bool
	from, rows int
}

func (a *app) queueCommand() *cobra.Command {
	var q queueFlags
	cmd := &cobra.Command{
		Use:     "queue [flags] PATH",
		GroupID: groupLook,
		Short:   "Show who holds a lock and who waits for it",
		Long: `Show the holders of the lock at PATH and the contenders that wait for it, in order of arrival: kind, owner, host and process,
how long each has been in line, its ZooKeeper session, and its token, by which zklock evict removes it. An empty line is an
empty table; when there is no znode at PATH, standard error says so. Contenders of other clients (Curator, Kazoo,
go-zookeeper) are shown as well; their semaphores are not.

It skips the first --from contenders and shows at most --rows of the rest. Only the data of those that it shows are read.

It shows who has a right to the lock by the current line. When a semaphore has shrunk, its latest holders are shown as
waiting until they release: they may still be at work.`,
		Example: `  zklock queue /locks/rebuild-index
  zklock queue --from 1000 /locks/rebuild-index
  zklock queue --json /locks/rebuild-index | jq .waiting`,
		Args: onePath,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := q.check(); err != nil {
				return err
			}
			return a.with(func(ctx context.Context, c *zklock.Client) error {
				ctx, cancel := context.WithTimeout(ctx, a.conn.patience)
				defer cancel()
				return a.queue(ctx, c, args[0], &q)
			})
		},
	}
	jsonFlag(cmd, &q.asJSON)
	cmd.Flags().IntVar(&q.from, "from", 0, "skip this many at the front")
	cmd.Flags().IntVar(&q.rows, "rows", 1000, "show at most this many")
	return cmd
}

func (q *queueFlags) check() error {
	switch {
	case q.from < 0:
		return usagef("--from %d: must not be less than 0", q.from)
	case q.rows < 1:
		return usagef("--rows %d: must be more than 0", q.rows)
	}
	return nil
}

// queue prints the line of the lock at path.
func (a *app) queue(ctx context.Context, c *zklock.Client, path string, q *queueFlags) error {
	e, err := readEntry(ctx, c, path, q.from, q.rows)
	if err != nil {
		return err
	}
	if e.Holding+e.Waiting == 0 {
		if err := a.noteMissing(ctx, c, path); err != nil {
			return err
		}
	}
	if !a.quiet {
		a.noteAbout(e, q)
	}
	if q.asJSON {
		return a.printJSON(e)
	}
	return printQueue(a.out, e, time.Now())
}

// noteAbout tells the user what the output of queue does not show.
func (a *app) noteAbout(e lockEntry, q *queueFlags) {
	all := e.Holding + e.Waiting
	switch {
	case len(e.Line) < all:
		notice(a.err, "%d of %d in line are shown: --from %d --rows %d",
			len(e.Line), all, q.from, q.rows)
	case all > 0 && e.Permits > 0 && !q.asJSON:
		notice(a.err, "%s has %d permits", e.Path, e.Permits)
	}
	hidden := 0
	for _, k := range e.Line {
		if k.Token == 0 {
			hidden++
		}
	}
	if hidden > 0 {
		notice(a.err, "%d of these may not be read with these credentials, and have no token "+
			"to evict them by: --auth; their znodes are in --json", hidden)
	}
}

// noteMissing tells the user if there is no znode at path: it was never used as a lock, or it is
// misspelt.
func (a *app) noteMissing(ctx context.Context, c *zklock.Client, path string) error {
	missing, err := a.missing(ctx, c, path)
	if missing && !a.quiet {
		notice(a.err, "%s does not exist: it was never used as a lock, "+
			"or it was removed since", path)
	}
	return err
}

// missing reports whether there is no znode at path. It returns an error if the chroot is missing,
// because that says nothing about the locks that the user meant.
func (a *app) missing(ctx context.Context, c *zklock.Client, path string) (bool, error) {
	s, err := unsealed.Session(ctx, c)
	if err != nil {
		return false, err
	}
	_, err = s.Exists(ctx, path)
	switch {
	case errors.Is(err, zk.ErrNoAuth):
		return false, nil // it exists, and may not be read
	case !errors.Is(err, zk.ErrNoNode):
		return false, err
	}
	if _, err := s.Exists(ctx, "/"); errors.Is(err, zk.ErrNoNode) {
		return false, usagef("the chroot of --zk %s does not exist", a.conn.zk)
	}
	return true, nil
}

func jsonFlag(cmd *cobra.Command, on *bool) {
	cmd.Flags().BoolVar(on, "json", false, "write JSON: see zklock help json")
}

func (a *app) printJSON(v any) error {
	b, err := queuejson.Marshal(v, "")
	if err != nil {
		return err
	}
	_, err = a.out.Write(b)
	return err
}

// with connects, calls fn with a context that ends with the first terminating signal, and closes
// the client. On a terminal it shows that it is connecting while no server answers.
func (a *app) with(
	fn func(ctx context.Context, c *zklock.Client) error, more ...zklock.Option,
) error {
	return a.interruptible(func(ctx context.Context) error {
		var c *zklock.Client
		err := a.telling(ctx, "connecting", func() (err error) {
			c, err = a.dial(ctx, more...)
			return err
		})
		if err != nil {
			return err
		}
		defer c.Close() // always nil
		return fn(ctx, c)
	})
}

// printQueue prints the contenders of a line as a table.
func printQueue(out io.Writer, e lockEntry, now time.Time) error {
	w := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	fmt.Fprintln(w, "POS\tSTATE\tKIND\tOWNER\tHOST\tPID\tIN LINE\tSESSION\tTOKEN")
	for _, m := range e.Line {
		state := "waits"
		if m.Holds {
			state = "holds"
		}
		kind := m.Kind
		if m.Permits > 0 {
			kind = fmt.Sprintf("%s %d", kind, m.Permits)
		}
		waited := "-"
		if !m.Since.IsZero() {
			waited = age(now.Sub(m.Since))
		}
		fmt.Fprintf(w, "%d\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n",
			m.Position, state, kind, dash(short(m.Owner, 40)), dash(short(m.Host, 60)),
			number(m.PID), waited, sessionOf(m), number(m.Token))
	}
	return w.Flush()
}

// dash returns s, or "-" if s is empty.
func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// number returns the text of a process id or token, or "-" for 0, which stands for unknown.
func number[N int | int64](n N) string {
	if n == 0 {
		return "-"
	}
	return fmt.Sprint(n)
}

// sessionOf returns the text of a contender's session, or "-" if it is unknown. From ZooKeeper
// 3.8.4 on, the session of a znode that may not be read is unknown.
func sessionOf(m queuejson.Member) string {
	if m.Token == 0 {
		return "-"
	}
	return m.Session
}
