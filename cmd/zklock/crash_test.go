//go:build linux

package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/zktest"
	"github.com/zklock/locker/zktest/fault"
)

// These tests kill zklock. Sessions are so long that none ends by itself, but for the test that
// waits for that.

func crashFlags(more ...string) []string {
	return lossFlags(append([]string{"--session-timeout", calm}, more...)...)
}

// crash kills a zklock. Its exit code is known only later, when its command, which has the same
// standard output, has ended too.
func crash(t *testing.T, p *process) {
	t.Helper()
	require.NoError(t, p.Process.Kill())
	until(t, "zklock's end", func() bool { return dead(p.Process.Pid) })
}

// isStillHeld asserts that the lock /l is held now and for a while, in which it would have been
// freed.
func isStillHeld(t *testing.T, s *zktest.Server) {
	t.Helper()
	for end := time.Now().Add(500 * time.Millisecond); time.Now().Before(end); {
		require.Equal(t, 1, inLine(s, "/l"))
		time.Sleep(10 * time.Millisecond)
	}
}

func TestScenario84_TheLockOfAKilledZklockIsFreeAtOnce(t *testing.T) {
	t.Parallel()
	for name, flags := range map[string][]string{
		"run":         {"run", "/l"},
		"shared":      {"run", "--shared", "/l"},
		"permits":     {"run", "-n", "1", "--of", "2", "/l"},
		"elect":       {"elect", "/l"},
		"once":        {"run", "--every", "1h", "/l"},
		"credentials": {"run", "--auth", "digest:user:password", "/l"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, d := server(t), newDiary(t)
			args := append([]string{flags[0], "--session-timeout", calm, "--tick", tick.String()},
				flags[1:]...)
			p := launch(t, s.Addr(), append(args, "--", testCommand, "stubborn", "diary", string(d),
				"family", "live")...)
			d.alive(t, "child", "grandchild")
			crash(t, p)
			freed := free(t, s, "/l")
			require.LessOrEqual(t, d.late(t, freed), time.Duration(0))
			const said = "zklock: zklock was killed; " +
				"the command has ended, and zklock's session is closed\n"
			until(t, "said", func() bool { return p.err.String() == said })
		})
	}
}

func TestAZklockThatIsKilledWhileItWaitsLeavesTheLineAtOnce(t *testing.T) {
	t.Parallel()
	s, d := server(t), newDiary(t)
	holder := launchHold(t, s.Addr(), d, "--session-timeout", calm)
	d.alive(t, "child")
	waiter := launchHold(t, s.Addr(), d, "--session-timeout", calm)
	queued(t, s, "/l", 2)
	crash(t, waiter)
	queued(t, s, "/l", 1)
	require.Empty(t, waiter.err.String())
	require.False(t, holder.over())
}

// The command ignores SIGTERM, and nothing else may end it.
func TestScenario84_TheLockOfAKilledZklockStaysWhileTheCommandLives(t *testing.T) {
	t.Parallel()
	for _, onLoss := range []string{lossTerm, lossIgnore} {
		t.Run(onLoss, func(t *testing.T) {
			t.Parallel()
			s, d := server(t), newDiary(t)
			p := launchHold(t, s.Addr(), d, "--session-timeout", calm, "--on-loss", onLoss)
			d.alive(t, "child", "grandchild")
			crash(t, p)
			isStillHeld(t, s)
			d.kill(t, "child")
			isStillHeld(t, s)
			d.kill(t, "grandchild")
			queued(t, s, "/l", 0)
		})
	}
}

// A descendant has left the group, and so outlives it.
func TestScenario84_TheLockOfAKilledZklockStaysWhileADaemonOfTheCommandLives(t *testing.T) {
	t.Parallel()
	s, d := server(t), newDiary(t)
	p := launch(t, s.Addr(), append(crashFlags(), "/l", "--", testCommand, "diary", string(d),
		"daemon", "live")...)
	d.alive(t, "child", "grandchild")
	crash(t, p)
	d.silent(t, "child")
	isStillHeld(t, s)
	d.alive(t, "grandchild")
	d.kill(t, "grandchild")
	queued(t, s, "/l", 0)
}

// A daemon's daemon, whose parents have ended before zklock is killed.
func TestScenario84_TheLockOfAKilledZklockStaysWhileAnAdoptedDaemonLives(t *testing.T) {
	t.Parallel()
	s, d := server(t), newDiary(t)
	p := launch(t, s.Addr(), append(crashFlags(), "/l", "--", "sh", "-c",
		`(setsid "$0" "$@" &) & sleep 1000`, testCommand, "diary", string(d),
		"live")...)
	d.alive(t, "child")
	crash(t, p)
	isStillHeld(t, s)
	d.kill(t, "child")
	queued(t, s, "/l", 0)
}

// Nothing is left that could close the session.
func TestTheLockOfAKilledZklockAndGuardIsFreeAfterItsTimeout(t *testing.T) {
	t.Parallel()
	s, d := server(t), newDiary(t)
	p := hold(t, s.Addr(), d)
	guard := guardOf(t, p)
	stop(t, p.Process.Pid) // neither of them acts on the other's death
	stop(t, guard)
	require.NoError(t, syscall.Kill(guard, syscall.SIGKILL))
	require.NoError(t, syscall.Kill(p.Process.Pid, syscall.SIGKILL))
	isStillHeld(t, s)
	d.silent(t, "child") // by the kernel
	d.kill(t, "grandchild")
	queued(t, s, "/l", 0)
}

// zklock was stopped for a while when it is killed.
func TestTheLockOfAStoppedAndKilledZklockIsFreeAtOnce(t *testing.T) {
	t.Parallel()
	s, d := server(t), newDiary(t)
	p := hold(t, s.Addr(), d, "--session-timeout", calm)
	stop(t, p.Process.Pid)
	crash(t, p)
	require.LessOrEqual(t, d.late(t, free(t, s, "/l")), time.Duration(0))
}

// The inner zklock, its guard and its command are descendants of the outer guard.
func TestTheLocksOfANestedZklockAreFreeInTurn(t *testing.T) {
	t.Parallel()
	s, d := server(t), newDiary(t)
	p := launch(t, s.Addr(), append(crashFlags(), "/l", "--", "zklock", "run", "--session-timeout",
		calm, "--tick", tick.String(), "/inner", "--", testCommand, "stubborn",
		"diary", string(d), "family", "live")...)
	d.alive(t, "child", "grandchild")
	crash(t, p)
	queued(t, s, "/inner", 0)
	require.LessOrEqual(t, d.late(t, free(t, s, "/l")), time.Duration(0))
}

// A server that is not there for a while, when zklock is killed.
func TestTheLockOfAKilledZklockIsFreeWhenAServerIsBack(t *testing.T) {
	t.Parallel()
	s, d := server(t), newDiary(t)
	p := hold(t, s.Addr(), d, "--session-timeout", calm)
	outage := s.Inject(fault.Refuse())
	crash(t, p)
	d.silent(t, "child", "grandchild")
	isStillHeld(t, s)
	outage.Remove()
	queued(t, s, "/l", 0)
}

// zklock is process 1, as in a container: if it is killed, the kernel kills all others.
func TestZklockAsProcess1(t *testing.T) {
	t.Parallel()
	s, d := server(t), newDiary(t)
	p := start(t, inContainer(t, "zklock", append(crashFlags(), "/l", "--", testCommand, "diary",
		string(d), "daemon", "live")...), s.Addr())
	d.alive(t, "child", "grandchild")
	first := childrenOf(p.Process.Pid)
	require.Len(t, first, 1)
	require.NoError(t, syscall.Kill(first[0], syscall.SIGKILL))
	p.exit() // known when no process has its standard output any more
	isStillHeld(t, s)
	require.NoError(t, s.Expire(s.Sessions()[0].ID))
	queued(t, s, "/l", 0)
}

// stop stops a process.
func stop(t *testing.T, pid int) {
	t.Helper()
	require.NoError(t, syscall.Kill(pid, syscall.SIGSTOP))
	until(t, "stopped", func() bool { return isStopped(pid) })
}

// A process that is stopped gets no SIGTERM before it is continued.
func TestTheStoppedCommandOfAKilledZklockGetsSIGTERM(t *testing.T) {
	t.Parallel()
	s, d := server(t), newDiary(t)
	p := launch(t, s.Addr(), append(crashFlags("--on-loss", "term"), "/l", "--", testCommand,
		"diary", string(d), "until-term")...)
	d.alive(t, "child")
	stop(t, d.pid(t, "child"))
	crash(t, p)
	d.silent(t, "child")
	queued(t, s, "/l", 0)
}

// The kernel continues a stopped guard only if its process group becomes orphaned. In a container
// it does not: the guard's next parent, process 1, is in the same terminal session.
func TestTheStoppedGuardOfAKilledZklockEndsTheCommand(t *testing.T) {
	t.Parallel()
	s := server(t)
	out := filepath.Join(t.TempDir(), "beats")
	beat := `while :; do date +%s%N >>"$0"; sleep 0.01; done`
	container := inContainer(t, "sh", append([]string{"-c", `"$@"; sleep 1000`, "sh", "zklock"},
		append(crashFlags(), "/l", "--", "sh", "-c", beat, out)...)...)
	p := start(t, container, s.Addr())
	until(t, "the command runs", func() bool {
		_, err := os.Stat(out)
		return err == nil
	})
	process1 := childrenOf(p.Process.Pid)
	require.Len(t, process1, 1)
	zklock := childrenOf(process1[0])
	require.Len(t, zklock, 1)
	guard := guards(zklock[0])
	require.Len(t, guard, 1)
	command := childrenOf(guard[0])
	require.Len(t, command, 1)
	stop(t, zklock[0]) // first, so that it does not continue its guard
	stop(t, guard[0])
	require.NoError(t, syscall.Kill(zklock[0], syscall.SIGKILL))
	queued(t, s, "/l", 0)
	require.True(t, dead(command[0]))
}

// inContainer is a command that runs in a PID namespace of its own, as process 1.
func inContainer(t *testing.T, name string, args ...string) *exec.Cmd {
	t.Helper()
	unshare, err := exec.LookPath("unshare")
	if err != nil || os.Getuid() != 0 {
		t.Skip("needs root, and unshare")
	}
	return &exec.Cmd{Path: unshare, Args: append([]string{"unshare", "--pid", "--fork",
		"--mount-proc", "--kill-child", name}, args...)}
}

func TestZklockMayBeStartedWithItsStandardFilesClosed(t *testing.T) {
	t.Parallel()
	s, d := server(t), newDiary(t)
	p := start(t, &exec.Cmd{Path: "/bin/sh", Args: append([]string{"sh", "-c",
		`exec "$@" <&- >&- 2>&-`, "sh", "zklock"}, append(crashFlags(), "/l", "--", testCommand,
		"stubborn", "diary", string(d), "family", "live")...)}, s.Addr())
	d.alive(t, "child", "grandchild")
	crash(t, p)
	require.LessOrEqual(t, d.late(t, free(t, s, "/l")), time.Duration(0))
}

// --auth replaces the credentials of the environment, for the guard, too.
func TestTheGuardDoesNotReadAFileThatZklockDoesNotRead(t *testing.T) {
	t.Parallel()
	s, d := server(t), newDiary(t)
	p := start(t, &exec.Cmd{Path: "/usr/bin/env", Args: append([]string{"env",
		envAuthFile + "=/missing", "zklock"}, append(crashFlags("--auth", "digest:a:b"), "/l", "--",
		testCommand, "diary", string(d), "live")...)}, s.Addr())
	d.alive(t, "child")
	crash(t, p)
	queued(t, s, "/l", 0)
}

// The guard connects as zklock does, with the flags' files, and with a secret that the command does
// not get.
func TestTheGuardConnectsAsZklockDoes(t *testing.T) {
	t.Parallel()
	s, cert, key := serverWithTLS(t)
	d := newDiary(t)
	p := launchHold(t, s.Addr(), d, "--session-timeout", calm, "--tls-ca", cert, "--tls-cert", cert,
		"--tls-key", key, "--auth", "digest:user:password")
	d.alive(t, "child", "grandchild")
	guard, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", guardOf(t, p)))
	require.NoError(t, err)
	require.Contains(t, string(guard), envAuth+"=digest:user:password\x00")
	command, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", d.pid(t, "child")))
	require.NoError(t, err)
	require.NotContains(t, string(command), "password")
	crash(t, p)
	require.LessOrEqual(t, d.late(t, free(t, s, "/l")), time.Duration(0))
}
