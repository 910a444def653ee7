package main

import (
	"context"
	"errors"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/zklock/locker/internal/queuejson"
	"github.com/zklock/locker/zklock"
	"github.com/zklock/locker/zklock/admin"
)

// leaderEntry is a leader, or that there is none, as --json writes it.
type leaderEntry struct {
	Path   string            `json:"path"`
	At     time.Time         `json:"at"` // when it was seen; local clock
	Leader *queuejson.Member `json:"leader"`
	Value  string            `json:"value,omitempty"` // if it is text; else see leader.data
}

func (a *app) leaderCommand() *cobra.Command {
	var asJSON, follow bool
	cmd := &cobra.Command{
		Use:     "leader [flags] PATH",
		GroupID: groupLook,
		Short:   "Show the leader, and every change with --follow",
		Long: `Show the leader of the election at PATH and its value. When there is no leader,
standard error says so, and standard output stays empty. With --follow it shows every change,
including that there is no leader, until it is interrupted or nobody reads its output any more.`,
		Example: `  zklock leader /elections/scheduler
  zklock leader --follow --json /elections/scheduler`,
		Args: onePath,
		RunE: func(cmd *cobra.Command, args []string) error {
			show := func(l zklock.Leader, err error) error {
				return a.printLeader(args[0], l, err, asJSON, follow)
			}
			return a.with(func(ctx context.Context, c *zklock.Client) error {
				e := c.Election(args[0])
				if follow {
					ctx, cancel := whileRead(ctx, a.out)
					defer cancel(nil)
					for l, err := range e.Observe(ctx) {
						if gone := context.Cause(ctx); gone != nil {
							return gone
						}
						if err := show(l, err); err != nil {
							return err
						}
					}
					return context.Cause(ctx)
				}
				ctx, cancel := context.WithTimeout(ctx, a.conn.patience)
				defer cancel()
				l, err := e.Leader(ctx)
				if errors.Is(err, zklock.ErrNoLeader) {
					if err := a.noteMissing(ctx, c, args[0]); err != nil {
						return err
					}
				}
				return show(l, err)
			})
		},
	}
	jsonFlag(cmd, &asJSON)
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "go on and show every change")
	return cmd
}

// printLeader prints a leader, or that there is none; it returns any other error.
func (a *app) printLeader(path string, l zklock.Leader, err error, asJSON, follow bool) error {
	none := errors.Is(err, zklock.ErrNoLeader)
	switch {
	case err != nil && !none:
		return err
	case none && !asJSON && !follow:
		if !a.quiet {
			notice(a.err, "%s", err)
		}
		return nil
	}
	now := time.Now()
	if asJSON {
		e := leaderEntry{Path: path, At: now.UTC()}
		if !none {
			m := memberOf(l)
			if e.Leader = &m; utf8.Valid(l.Value) {
				e.Value = string(l.Value)
			}
		}
		return a.printJSON(e)
	}
	stamp := ""
	if follow {
		stamp = now.Format("15:04:05.000") + "  "
	}
	if none {
		_, err = fmt.Fprintf(a.out, "%sno leader\n", stamp)
		return err
	}
	m := memberOf(l)
	value := short(string(l.Value), 200)
	if value == "" {
		value = "(no value)"
	}
	_, err = fmt.Fprintf(a.out, "%s%s  %s  token %d\n", stamp, value, who(m), m.Token)
	return err
}

// memberOf is the leader as the first in line.
func memberOf(l zklock.Leader) queuejson.Member {
	return newMember(1, admin.Contender{Node: l.Node, Kind: "election", Holds: true, Token: l.Token, Session: l.Session,
		Since: l.Since, Owner: l.Owner, Host: l.Host, PID: l.PID, Data: l.Value})
}
