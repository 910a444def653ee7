package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/zklock/locker/zklock"
)

// app is the state that the commands share.
type app struct {
	in       io.Reader
	out, err io.Writer
	conn     connFlags
	quiet    bool
	verbose  bool
	busy     uint8    // the exit code for a busy lock
	started  bool     // the command line was understood
	words    []string // the command line
}

// execute runs one command line and returns its exit code.
func execute(args []string) int {
	if len(args) > 0 && args[0] == guardCommand {
		return guardMain(args[1:])
	}
	stderr := newMessages(os.Stderr)
	defer stderr.flush()
	a := &app{in: os.Stdin, out: os.Stdout, err: stderr, busy: exitBusy, words: args}
	root := a.root()
	root.SetArgs(args)
	cmd, err := root.ExecuteC()
	var own *exitError
	if err != nil && !a.started && !errors.As(err, &own) {
		err = &exitError{exitUsage, err} // cobra's error about the command line
	}
	if codeOf(err) == exitUsage {
		err = fmt.Errorf("%w (see %s --help)", err, cmd.CommandPath())
	}
	isBusy := codeOf(err) == exitBusy && errors.Is(err, zklock.ErrBusy)
	if !isBusy || !a.quiet {
		report(a.err, err)
	}
	if isBusy {
		return int(a.busy)
	}
	return codeOf(err)
}

// noSuchCommand returns the error of an unknown command, with the commands that were perhaps meant.
func noSuchCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	cmd.SuggestionsMinimumDistance = 2
	meant := ""
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		meant = ": did you mean " + strings.Join(near, " or ") + "?"
	}
	return usagef("unknown command %q for %q%s", args[0], cmd.CommandPath(), meant)
}

// noSuchFlag adds to the error of an unknown flag the flags that were perhaps meant.
func noSuchFlag(cmd *cobra.Command, err error) error {
	var unknown *pflag.NotExistError
	if !errors.As(err, &unknown) || unknown.GetSpecifiedShortnames() != "" {
		return err
	}
	// Cobra suggests commands only, so each flag is made a command here.
	flags := &cobra.Command{SuggestionsMinimumDistance: 2}
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		near := &cobra.Command{Use: "--" + f.Name, Run: func(*cobra.Command, []string) {}}
		if f.Name == "wait" || strings.HasSuffix(f.Name, "-timeout") {
			near.SuggestFor = []string{"--timeout"}
		}
		flags.AddCommand(near)
	})
	if near := flags.SuggestionsFor("--" + unknown.GetSpecifiedName()); len(near) > 0 {
		return fmt.Errorf("%w: did you mean %s?", err, strings.Join(near, " or "))
	}
	return err
}

// onePath returns an error unless there is one argument, a lock's path.
func onePath(_ *cobra.Command, args []string) error {
	if len(args) > 1 {
		return usagef("one PATH, not %d", len(args))
	}
	if len(args) == 0 {
		return usagef("no PATH: name the lock, as in /locks/rebuild-index")
	}
	return nil
}

// helpCommand makes help fail for an unknown topic, as other commands do for an unknown word.
func helpCommand(root *cobra.Command) {
	help, _, err := root.Find([]string{"help"})
	if err != nil {
		return // can't happen: root adds the help command before
	}
	help.Run = nil
	help.RunE = func(cmd *cobra.Command, args []string) error {
		found, rest, err := root.Find(args)
		if err != nil || len(rest) > 0 {
			return usagef("no help for %q: zklock help lists the commands", strings.Join(args, " "))
		}
		return found.Help()
	}
}

// busyFlag lets the user choose the exit code for a busy lock, as flock(1) does.
func (a *app) busyFlag(cmd *cobra.Command) {
	cmd.Flags().Uint8VarP(&a.busy, "conflict-exit-code", "E", exitBusy,
		"exit `code` for a lock that is busy, 0 to 255")
}

// root returns the command zklock with all its subcommands.
func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "zklock",
		Short: "Locks on a ZooKeeper ensemble for shell scripts, cron jobs and operators",
		Long: `zklock takes locks on a ZooKeeper ensemble for shell scripts, cron jobs and operators.

A command that it runs under a lock is stopped before another client can have the lock, also when the network fails.

` + exitTable,
		Example: `  export ZKLOCK_ZK=zk1:2181,zk2:2181,zk3:2181
  zklock run --wait 30s /locks/rebuild-index -- ./rebuild.sh
  zklock ls /locks`,
		SilenceErrors: true,
		SilenceUsage:  true,
		Version:       versionText(),
		Args:          noSuchCommand,
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			a.started = true
			return a.conn.environment(cmd.Flags())
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetVersionTemplate("{{.Version}}\n")
	root.SetOut(a.out)
	root.SetErr(a.err)
	root.SetFlagErrorFunc(noSuchFlag)
	root.AddGroup(
		&cobra.Group{ID: groupRun, Title: "Under a lock:"},
		&cobra.Group{ID: groupLook, Title: "Looking at locks:"},
		&cobra.Group{ID: groupRest, Title: "The rest:"},
	)
	root.SetHelpCommandGroupID(groupRest)
	root.SetCompletionCommandGroupID(groupRest)
	flags := root.PersistentFlags()
	a.conn.register(flags)
	flags.BoolVarP(&a.quiet, "quiet", "q", false, "print only errors, no message for a busy lock "+
		"(its exit code tells), no place in line while waiting")
	flags.BoolVarP(&a.verbose, "verbose", "v", false,
		"log sessions, losses and retries to standard error")
	root.AddCommand(a.commands()...)
	root.AddCommand(topics()...)
	root.InitDefaultHelpCmd()
	helpCommand(root)
	completeFiles(root)
	return root
}

func (a *app) commands() []*cobra.Command {
	return []*cobra.Command{
		a.runCommand(),
		a.electCommand(),
		a.holdCommand(),
		a.lsCommand(),
		a.queueCommand(),
		a.leaderCommand(),
		a.evictCommand(),
		a.resizeCommand(),
		a.doneCommand(),
		a.pruneCommand(),
		a.doctorCommand(),
		a.serveCommand(),
		a.versionCommand(),
	}
}

// Groups of the list of commands.
const (
	groupRun  = "run"
	groupLook = "look"
	groupRest = "rest"
)
