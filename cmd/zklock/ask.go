package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/zklock/locker/zklock"
)

func (a *app) askCommand() *cobra.Command {
	var token int64
	cmd := &cobra.Command{
		Use:     "ask [flags] PATH --token TOKEN [MESSAGE...]",
		GroupID: groupLook,
		Short:   "Ask a holder to release a lock",
		Long: `Ask the contender of PATH with this token to release the lock, and tell it why. zklock queue shows the tokens, and afterwards
the contenders that were asked and still hold. The lock is not taken away: zklock break does that.

A program with this library gets the request by Hold.Asked or a hook, and decides by itself; one with Curator, by its
revocation listener; other clients get nothing. A command under zklock run, hold or elect goes on: zklock writes the request
to standard error.

It ends with 1 when there is no such contender.`,
		Example: `  zklock queue /locks/nightly-report
  zklock ask /locks/nightly-report --token 4294967321 deploying at noon`,
		Args: onePathAtLeast,
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case !cmd.Flags().Changed("token"):
				return usagef("no --token: zklock queue shows the tokens")
			case token <= 0:
				return usagef("--token %d: must be more than 0", token)
			}
			return a.with(func(ctx context.Context, c *zklock.Client) error {
				ctx, cancel := context.WithTimeout(ctx, a.conn.patience)
				defer cancel()
				if err := c.Ask(ctx, args[0], zklock.Token(token), strings.Join(args[1:], " ")); err != nil {
					return err
				}
				if !a.quiet {
					fmt.Fprintf(a.out, "asked token %d of %s to release the lock\n", token, clean(args[0]))
				}
				return nil
			})
		},
	}
	cmd.Flags().Int64Var(&token, "token", 0, "the contender's token")
	return cmd
}

// tellAsked writes a request to release the lock to standard error.
func (a *app) tellAsked(i zklock.AskedToReleaseInfo) {
	if a.quiet {
		return
	}
	by, why := "an unnamed client", ""
	if i.By != "" {
		by = clean(i.By)
	}
	if i.Why != "" {
		why = ": " + clean(i.Why)
	}
	notice(a.err, "%s: asked to release the lock by %s%s", clean(i.Path), by, why)
}
