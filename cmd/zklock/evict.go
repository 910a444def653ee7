package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/zklock/locker/internal/queuejson"
	"github.com/zklock/locker/zklock"
	"github.com/zklock/locker/zklock/admin"
)

// evictFlags are the flags of evict.
type evictFlags struct {
	token int64
	yes   bool
}

func (a *app) evictCommand() *cobra.Command {
	var e evictFlags
	cmd := &cobra.Command{
		Use:     "evict [flags] PATH --token TOKEN",
		GroupID: groupLook,
		Short:   "Remove a contender from a lock's line by force",
		Long: `Remove the contender with this token from the line of PATH, usually a holder that hangs. zklock queue shows the tokens.
On a terminal it asks first; elsewhere it requires --yes.

A holder of this library is notified at once, and a command under zklock run is killed. But the removed holder may still work
for a moment, for the rest of the session timeout if zklock or its machine is stopped or cut off (SIGSTOP, no network), or
for long if it is another client's: the next holder is only safe if what both write to refuses the older token. If you can
reach the machine, end the process there instead: its session's end releases the lock.

It ends with 1 when there is no such contender, or when the answer was no.`,
		Example: `  zklock queue /locks/rebuild-index
  zklock evict /locks/rebuild-index --token 4294967321
  zklock evict --yes /locks/rebuild-index --token 4294967321`,
		Args: onePath,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := e.check(cmd.Flags().Changed); err != nil {
				return err
			}
			return a.with(func(ctx context.Context, c *zklock.Client) error {
				return a.evict(ctx, c, args[0], &e)
			})
		},
	}
	cmd.Flags().Int64Var(&e.token, "token", 0, "the contender's token")
	cmd.Flags().BoolVarP(&e.yes, "yes", "y", false, "don't ask")
	return cmd
}

// check refuses invalid flags. changed reports whether a flag was given.
func (e *evictFlags) check(changed func(flag string) bool) error {
	switch {
	case !changed("token"):
		return usagef("no --token: zklock queue shows the tokens")
	case e.token <= 0:
		return usagef("--token %d: must be more than 0", e.token)
	case !e.yes && !term.IsTerminal(int(os.Stdin.Fd())):
		return usagef("standard input is not a terminal to ask on: give --yes")
	}
	return nil
}

// evict asks the user, unless --yes is given, and removes the contender.
func (a *app) evict(ctx context.Context, c *zklock.Client, path string, e *evictFlags) error {
	if !e.yes {
		if err := a.ask(ctx, c, path, e.token); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, a.conn.patience)
	defer cancel()
	if err := admin.Evict(ctx, c, path, zklock.Token(e.token)); err != nil {
		return err
	}
	if a.quiet {
		return nil
	}
	_, err := fmt.Fprintf(a.out, "removed token %d from %s\n", e.token, clean(path))
	return err
}

// ask shows the contender to be removed, and asks whether to remove it. It returns nil if the
// answer is yes, and errDeclined if it is no.
func (a *app) ask(ctx context.Context, c *zklock.Client, path string, token int64) error {
	bounded, cancel := context.WithTimeout(ctx, a.conn.patience)
	defer cancel()
	m, err := inLineWith(bounded, c, path, token)
	if err != nil {
		return err
	}
	does := "waits"
	if m.Holds {
		does = "HOLDS the lock"
	}
	fmt.Fprintf(a.err, "%s: %s, %s in line since %s, %s.\nRemove it? [y/N] ",
		clean(path), displayName(m), ordinal(m.Position),
		m.Since.Local().Format("2006-01-02 15:04:05"), does)
	return answer(ctx, a)
}

// inLineWith returns the contender with that token. It reads the line page by page from the front,
// where the contender usually is.
func inLineWith(
	ctx context.Context, c *zklock.Client, path string, token int64,
) (queuejson.Member, error) {
	const rows = 100
	for from := 0; ; from += rows {
		page, err := admin.ReadQueue(ctx, c, path, from, rows)
		if err != nil {
			return queuejson.Member{}, err
		}
		for i, k := range page.Contenders {
			if int64(k.Token) == token {
				return newMember(from+i+1, k), nil
			}
		}
		if from+rows >= page.Holding+page.Waiting {
			return queuejson.Member{},
				fmt.Errorf("evict %s: nobody in line has the token %d", path, token)
		}
	}
}

var errDeclined = errors.New("not removed")

// answer reads one line from the standard input. It returns nil for a yes, and errDeclined for
// anything else.
func answer(ctx context.Context, a *app) error {
	text := make(chan string, 1)
	go func() { // ends with the line, or with the process
		in := bufio.NewScanner(a.in)
		in.Scan()
		text <- in.Text()
	}()
	select {
	case t := <-text:
		t = strings.ToLower(strings.TrimSpace(t))
		if t == "y" || t == "yes" {
			return nil
		}
		return errDeclined
	case <-ctx.Done():
		return ctx.Err()
	}
}
