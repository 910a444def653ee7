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

// leaderEntry is what --json writes: a leader, or that there is none.
type leaderEntry struct {
	Path   string            `json:"path"`
	At     time.Time         `json:"at"`              // when it was read, by the local clock
	Leader *queuejson.Member `json:"leader"`          // nil if there is none
	Value  string            `json:"value,omitempty"` // if it is text; Leader.Data has every value
}

// leaderView shows the leader of the election at path.
type leaderView struct {
	*app
	path           string
	asJSON, follow bool
}

func (a *app) leaderCommand() *cobra.Command {
	v := leaderView{app: a}
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
			v.path = args[0]
			if v.follow {
				return a.with(v.showChanges)
			}
			return a.with(v.showNow)
		},
	}
	jsonFlag(cmd, &v.asJSON)
	cmd.Flags().BoolVarP(&v.follow, "follow", "f", false, "go on and show every change")
	return cmd
}

// showNow prints the present leader, or tells the user that there is none.
func (v *leaderView) showNow(ctx context.Context, c *zklock.Client) error {
	ctx, cancel := context.WithTimeout(ctx, v.conn.patience)
	defer cancel()
	l, err := c.Election(v.path).Leader(ctx)
	if !errors.Is(err, zklock.ErrNoLeader) {
		return v.print(l, err)
	}
	if err := v.noteMissing(ctx, c, v.path); err != nil {
		return err
	}
	if v.asJSON {
		return v.print(l, err)
	}
	if !v.quiet {
		notice(v.err, "%s", err)
	}
	return nil
}

// showChanges prints the present leader and every change, until ctx ends or nobody reads the
// output any more.
func (v *leaderView) showChanges(ctx context.Context, c *zklock.Client) error {
	ctx, cancel := whileRead(ctx, v.out)
	defer cancel(nil)
	for l, err := range c.Election(v.path).Observe(ctx) {
		if gone := context.Cause(ctx); gone != nil {
			return gone
		}
		if err := v.print(l, err); err != nil {
			return err
		}
	}
	return context.Cause(ctx)
}

// print prints a leader, or, if err is zklock.ErrNoLeader, that there is none. It returns any other
// err.
func (v *leaderView) print(l zklock.Leader, err error) error {
	isLed := err == nil
	if err != nil && !errors.Is(err, zklock.ErrNoLeader) {
		return err
	}
	now := time.Now()
	if v.asJSON {
		e := leaderEntry{Path: v.path, At: now.UTC()}
		if isLed {
			e.setLeader(l)
		}
		return v.printJSON(e)
	}
	stamp := ""
	if v.follow {
		stamp = now.Format("15:04:05.000") + "  "
	}
	text := "no leader"
	if isLed {
		text = leaderText(l)
	}
	_, err = fmt.Fprintf(v.out, "%s%s\n", stamp, text)
	return err
}

func (e *leaderEntry) setLeader(l zklock.Leader) {
	m := memberOf(l)
	e.Leader = &m
	if utf8.Valid(l.Value) {
		e.Value = string(l.Value)
	}
}

// leaderText returns a leader as one line for a terminal.
func leaderText(l zklock.Leader) string {
	m := memberOf(l)
	value := short(string(l.Value), 200)
	if value == "" {
		value = "(no value)"
	}
	return fmt.Sprintf("%s  %s  token %d", value, displayName(m), m.Token)
}

// memberOf returns the leader as the first in line.
func memberOf(l zklock.Leader) queuejson.Member {
	return newMember(1, admin.Contender{
		Node:    l.Node,
		Kind:    "election",
		Holds:   true,
		Token:   l.Token,
		Session: l.Session,
		Since:   l.Since,
		Owner:   l.Owner,
		Host:    l.Host,
		PID:     l.PID,
		Data:    l.Value,
	})
}
