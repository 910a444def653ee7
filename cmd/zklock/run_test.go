//go:build linux

package main

import (
	"fmt"
	"net"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestASignalWhileWaitingEndsTheWaitAndLeavesNothingInLine(t *testing.T) {
	t.Parallel()
	s, d := server(t), newDiary(t)
	holder := launch(t, s.Addr(), "run", "/l", "--", testCommand, "diary", string(d), "live")
	d.alive(t, "child")
	for _, sig := range []syscall.Signal{
		syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGUSR1,
	} {
		waiter := launch(t, s.Addr(), "run", "/l", "--", testCommand, "exit", "0")
		queued(t, s, "/l", 2)
		require.NoError(t, waiter.Process.Signal(syscall.SIGWINCH), "which ends nothing")
		require.NoError(t, waiter.Process.Signal(sig))
		waiter.exits(128 + int(sig))
		require.Empty(t, waiter.err.String())
		queued(t, s, "/l", 1)
	}
	require.NoError(t, holder.Process.Signal(syscall.SIGTERM))
	holder.exits(128 + int(syscall.SIGTERM))
	queued(t, s, "/l", 0)
	d.silent(t, "child")
}

// Rotated logs and new configurations are announced on all hosts by these signals. Only the one
// after them ends the standby.
func TestASignalForTheLeaderDoesNotEndAStandbyWithoutATerminal(t *testing.T) {
	t.Parallel()
	s, d := server(t), newDiary(t)
	leader := launch(t, s.Addr(), "elect", "/e", "--", testCommand, "diary", string(d), "note",
		"until-term")
	d.alive(t, "child")
	standby := launch(t, s.Addr(), "elect", "/e", "--", "true")
	queued(t, s, "/e", 2)
	for _, sig := range []syscall.Signal{syscall.SIGHUP, syscall.SIGUSR1, syscall.SIGUSR2} {
		require.NoError(t, standby.Process.Signal(sig))
		require.NoError(t, leader.Process.Signal(sig))
		until(t, "passed on to the leader's command",
			func() bool { return d.has("child", fmt.Sprint("signal ", int(sig))) })
	}
	require.NoError(t, standby.Process.Signal(syscall.SIGTERM))
	standby.exits(128 + int(syscall.SIGTERM))
	require.NoError(t, leader.Process.Signal(syscall.SIGTERM))
	leader.exits(7)
}

func TestASignalWhileConnectingEndsTheCommand(t *testing.T) {
	t.Parallel()
	mute, err := net.Listen("tcp", "127.0.0.1:0") // accepts, and sends nothing
	require.NoError(t, err)
	defer mute.Close()
	p := launch(t, mute.Addr().String(), "run", "--connect-timeout", "1h", "/l", "--", testCommand,
		"exit", "0")
	conn, err := mute.Accept()
	require.NoError(t, err)
	defer conn.Close()
	require.NoError(t, p.Process.Signal(syscall.SIGINT))
	p.exits(130)
}

func TestEverySignalReachesTheWholeGroup(t *testing.T) {
	t.Parallel()
	s, d := server(t), newDiary(t)
	p := launch(t, s.Addr(), "run", "/l", "--", testCommand, "diary", string(d), "note", "family",
		"live")
	d.alive(t, "child", "grandchild")
	for _, sig := range []syscall.Signal{
		syscall.SIGHUP, syscall.SIGINT, syscall.SIGTERM, syscall.SIGUSR1, syscall.SIGUSR2,
		syscall.SIGWINCH, syscall.SIGCONT, 40,
	} {
		require.NoError(t, p.Process.Signal(sig))
		for _, who := range []string{"child", "grandchild"} {
			until(t, fmt.Sprintf("%s has heard of %v", who, sig),
				func() bool { return d.has(who, fmt.Sprint("signal ", int(sig))) })
		}
	}
	require.Equal(t, 1, inLine(s, "/l"), "still held")
	require.NoError(t, p.Process.Signal(syscall.SIGQUIT))
	p.exits(2) // what a Go program makes of it
	d.silent(t, "child", "grandchild")
	queued(t, s, "/l", 0)
}

func TestTheLockIsHeldUntilTheLastOfTheGroupIsGone(t *testing.T) {
	t.Parallel()
	s, d := server(t), newDiary(t)
	p := launch(t, s.Addr(), "run", "/l", "--", testCommand, "diary", string(d), "orphan",
		"until-term")
	d.alive(t, "grandchild")
	d.silent(t, "child")
	launch(t, s.Addr(), "run", "--try", "/l", "--", testCommand, "exit", "0").exits(exitBusy)
	require.NoError(t, p.Process.Signal(syscall.SIGTERM), "is passed on still")
	p.exits(0)
	require.True(t, d.has("grandchild", "told"))
	queued(t, s, "/l", 0)
}

// nohup, and shells that run jobs in the background, ignore signals for their commands.
func TestASignalThatWasIgnoredStaysIgnored(t *testing.T) {
	t.Parallel()
	s, d := server(t), newDiary(t)
	p := launch(t, s.Addr(), "run", "/l", "--", "nohup", testCommand, "diary", string(d), "live")
	d.alive(t, "child")
	inner := launch(t, s.Addr(), "run", "/m", "--", "sh", "-c",
		`trap "" HUP; exec zklock run /n -- `+testCommand+` diary `+string(d)+`2 until-term`)
	d2 := d + "2"
	d2.alive(t, "child")
	require.NoError(t, inner.Process.Signal(syscall.SIGHUP))
	require.NoError(t, inner.Process.Signal(syscall.SIGTERM), "later, and heard of")
	inner.exits(7)
	require.NoError(t, p.Process.Signal(syscall.SIGTERM))
	p.exits(128 + 15)
}

// A stopped command would hear of the signal only when somebody continues it, and zklock would keep
// the lock until then.
func TestACommandThatIsStoppedHearsThatItIsToEnd(t *testing.T) {
	t.Parallel()
	s := server(t)
	p := launch(t, s.Addr(), "run", "/l", "--", "sh", "-c", "echo ready; kill -STOP $$; echo on")
	until(t, "the command has begun",
		func() bool { return strings.Contains(p.out.String(), "ready") })
	require.NoError(t, p.Process.Signal(syscall.SIGTERM))
	p.exits(128 + 15)
}
