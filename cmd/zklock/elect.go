package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/zklock/locker/zklock"
)

func (a *app) electCommand() *cobra.Command {
	l := lockFlags{elect: true}
	var value string
	cmd := &cobra.Command{
		Use:     "elect [flags] PATH -- COMMAND [ARG…]",
		GroupID: groupRun,
		Short:   "Run a command as the leader of an election",
		Long: `Stand for election at PATH, and run the command when, and as long as, this process leads. zklock leader shows the leader's
value to others. The command is run, supervised and stopped as by zklock run. When it ends, zklock resigns.

While zklock waits without a terminal, as a service does, HUP, USR1 and USR2 have no effect: on the leader's host they are
for the command. Other signals end the wait.

` + exitTable,
		Example: `  zklock elect /elections/scheduler -- ./scheduler
  zklock elect --again --value "$(hostname):8080" /elections/scheduler -- ./scheduler --listen :8080`,
		Args:              pathAndCommand,
		ValidArgsFunction: a.completeCommand,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := l.check(a, cmd, args[1:]); err != nil {
				return err
			}
			if !cmd.Flags().Changed("value") {
				value = hostAndPID()
			}
			return a.elect(&l, args[0], args[1:], value)
		},
	}
	l.register(a, cmd)
	f := cmd.Flags()
	f.StringVar(&value, "value", "",
		"the leader's value, which others can read; default host:pid")
	f.BoolVar(&l.again, "again", false,
		"stand for election again after the leadership was lost, instead of ending with 70;\n"+
			"zklock help exit-codes says what it does with the other codes")
	f.IntVar(&l.rank, "rank", 0,
		"the highest rank in line leads next, equal ranks by arrival; a leader is never\n"+
			"pre-empted: a number that grows from release to release hands over to the new one")
	return cmd
}

// hostAndPID is the default value of a leader.
func hostAndPID() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown-host"
	}
	return fmt.Sprintf("%s:%d", host, os.Getpid())
}

// campaign returns the taker of elect, which waits for the leadership.
func campaign(path, value string, l *lockFlags) taker {
	return func(ctx context.Context, c *zklock.Client, left time.Duration) (*zklock.Hold, error) {
		e := c.Election(path, l.options(left)...).WithRank(l.rank)
		_, h, err := e.Campaign(ctx, []byte(value))
		return h, err
	}
}
