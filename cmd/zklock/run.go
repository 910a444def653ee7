package main

import (
	"github.com/spf13/cobra"
)

func (a *app) runCommand() *cobra.Command {
	var l lockFlags
	cmd := &cobra.Command{
		Use:     "run [flags] PATH -- COMMAND [ARG…]",
		GroupID: groupRun,
		Short:   "Run a command while holding a lock",
		Long: `Run a command while holding the lock at PATH, a znode that is created if it is missing. The lock is released when the
command, and all that it left running in its process group, has ended.

The command is run as given, without a shell, with zklock's standard input, output and error, in a process group of its
own. zklock forwards every signal it gets to that group; one that arrives while zklock waits ends the wait. The command's
environment contains ZKLOCK_PATH, ZKLOCK_NODE, ZKLOCK_TOKEN (a number that grows from holder to holder: pass it on to what
you write to) and ZKLOCK_SESSION, and zklock's own flags for the ensemble, but no credentials: see zklock help environment.
A run inside it that would wait for the same lock, and so for itself, ends with 64 at once.

When the lock is about to be lost the group gets SIGTERM, and SIGKILL before another client can have the lock; the same
happens when zklock itself is killed, and then the lock is free at once (on Linux). See zklock help safety.

When many hosts start a job, a lock alone does not stop a host whose clock is late from running it again. With --once-per
KEY, a date for example, the command runs unless it has been run for that key; with --every 18h, unless the last run began
less than 18 h ago, by the ensemble's clock. The record of the runs is kept beside the lock, at PATH.done. If the job was run
already, zklock ends with 0 at once and says so on a terminal only, so that cron sends no mail.

A run counts when the command has ended with 0; with --at-most-once it counts from its start, so that a run that fails or
crashes is not repeated. A command that could not be started, with 126 or 127 for example, has not been run, and does not
count.

` + exitTable,
		Example: `  zklock run /locks/rebuild-index -- ./rebuild.sh --all
  zklock run --try /locks/rebuild-index -- ./rebuild.sh           # 75 when another client has it
  zklock run --wait 30s /locks/rebuild-index -- ./rebuild.sh      # 75 after 30 s in line
  zklock run -q --try -E 0 /locks/rebuild-index -- ./rebuild.sh   # busy is fine: no message, 0
  zklock run --shared /locks/config -- ./read-config.sh           # together with other readers …
  zklock run --exclusive /locks/config -- ./write-config.sh       # … and not with a writer
  zklock run --once-per "$(date -u +%F)" /locks/nightly-report -- ./report.sh  # on all hosts, by cron
  zklock run --every 18h /locks/nightly-report -- ./report.sh
  zklock run -n 2 --of 5 /locks/converters -- ./convert.sh big.mp4 # 2 of 5 permits
  zklock run /locks/deploy -- sh -c 'echo "token $ZKLOCK_TOKEN" && ./deploy.sh'`,
		Args:              pathAndCommand,
		ValidArgsFunction: a.completeCommand,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := l.check(a, cmd, args[1:]); err != nil {
				return err
			}
			return a.run(&l, args[0], args[1:])
		},
	}
	l.register(a, cmd)
	l.registerKind(cmd)
	l.registerOnce(cmd)
	return cmd
}

// pathAndCommand checks PATH -- COMMAND [ARG…].
func pathAndCommand(cmd *cobra.Command, args []string) error {
	switch dash := cmd.ArgsLenAtDash(); {
	case len(args) == 0:
		return usagef("no PATH")
	case dash < 0:
		return usagef("no -- before the command: want PATH -- COMMAND")
	case dash != 1:
		return usagef("%d words before --: want one, the PATH", dash)
	case len(args) == 1:
		return usagef("no COMMAND after --")
	}
	return nil
}
