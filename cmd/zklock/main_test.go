//go:build linux

package main

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/tests/ensemble"
	"github.com/zklock/locker/tests/locktest"
	"github.com/zklock/locker/zktest"
)

// The tests run this test binary as zklock, and as the commands that zklock runs: its name selects
// which.
func TestMain(m *testing.M) {
	testscript.Main(tests{m}, map[string]func(){
		"zklock":    main,
		testCommand: func() { os.Exit(testMain(os.Args[1:])) },
	})
}

// tests are the tests of m, with the ensembles that they share.
type tests struct{ m *testing.M }

func (t tests) Run() int {
	flag.Parse()
	// Signals that this process ignores, because of nohup or a shell that runs the tests in the
	// background, would stay ignored in all processes that it starts.
	for _, sig := range []os.Signal{
		syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM,
	} {
		if signal.Ignored(sig) {
			signal.Notify(make(chan os.Signal, 1), sig)
		}
	}
	// Most tests spend their time waiting for a session to end.
	if err := flag.Set("test.parallel", strconv.Itoa(max(6, runtime.GOMAXPROCS(0)))); err != nil {
		panic(err)
	}
	// A program with the race detector sleeps for a second before it ends, and here many end.
	if err := os.Setenv("GORACE", "atexit_sleep_ms=0 "+os.Getenv("GORACE")); err != nil {
		panic(err)
	}
	return ensemble.Run(t.m)
}

// tick is the in-process servers' tick.
const tick = 500 * time.Millisecond

// longSessions gives a test the session timeouts that it asks for. calm is the timeout of a session
// or of connecting where none may pass, however busy the machine is.
var longSessions = zktest.WithSessionTimeouts(2*tick, time.Hour)

const calm = "10m"

// until waits for a condition.
func until(t testing.TB, what string, cond func() bool) {
	t.Helper()
	for end := time.Now().Add(locktest.Bound); !cond(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("after %v still not: %s", locktest.Bound, what)
		}
	}
}

// server starts a ZooKeeper for one test.
func server(t testing.TB) *zktest.Server {
	t.Helper()
	return zktest.Run(t, zktest.WithTick(tick), longSessions)
}

// inLine is the number of contenders of a lock.
func inLine(s *zktest.Server, path string) int { return len(locktest.Contenders(s.Children(path))) }

// queued waits until the line has n contenders.
func queued(t testing.TB, s *zktest.Server, path string, n int) {
	t.Helper()
	ctx := locktest.Within(t, locktest.Bound)
	err := s.Await(ctx, func() bool { return inLine(s, path) == n })
	require.NoError(t, err, "%d in line of %s, want %d", inLine(s, path), path, n)
}

// self returns this test binary as the command name.
func self(t testing.TB, name string, args ...string) *exec.Cmd {
	t.Helper()
	exe, err := os.Executable()
	require.NoError(t, err)
	return &exec.Cmd{Path: exe, Args: append([]string{name}, args...)}
}

// process is a running zklock.
type process struct {
	testing.TB
	*exec.Cmd
	out, err *locktest.Buffer
	ended    chan struct{}
}

// launch starts zklock with the servers at zk; it is killed with the test.
func launch(t testing.TB, zk string, args ...string) *process {
	t.Helper()
	return launchAs(t, "zklock", zk, args...)
}

// launchAs is launch for a zklock with another name.
func launchAs(t testing.TB, name, zk string, args ...string) *process {
	t.Helper()
	return start(t, self(t, name, args...), zk)
}

// start is launch for a command of one's own.
func start(t testing.TB, cmd *exec.Cmd, zk string) *process {
	t.Helper()
	p := &process{
		TB:    t,
		Cmd:   cmd,
		out:   &locktest.Buffer{},
		err:   &locktest.Buffer{},
		ended: make(chan struct{}),
	}
	p.Stdout = p.out
	if p.Stderr == nil {
		p.Stderr = p.err
	}
	p.Env = environ(t, zk)
	// It has its own process group, and no terminal.
	p.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	require.NoError(t, p.Start())
	go func() {
		_ = p.Cmd.Wait() // its exit code is checked below
		close(p.ended)
	}()
	t.Cleanup(func() {
		_ = p.Process.Kill() // its guard ends the command
		<-p.ended
	})
	return p
}

// exit waits for the end and returns the exit code.
func (p *process) exit() int {
	p.Helper()
	select {
	case <-p.ended:
	case <-time.After(locktest.Bound):
		p.Fatalf("zklock %q has not ended after %v\nstdout: %s\nstderr: %s",
			p.Args, locktest.Bound, p.out, p.err)
	}
	return p.ProcessState.ExitCode()
}

// over reports whether zklock has ended.
func (p *process) over() bool {
	select {
	case <-p.ended:
		return true
	default:
		return false
	}
}

// exits asserts the exit code.
func (p *process) exits(code int) {
	p.Helper()
	require.Equal(p, code, p.exit(), "stdout: %s\nstderr: %s", p.out, p.err)
}

// environ is the environment of a zklock: the servers at zk, and timeouts that do not pass.
func environ(t testing.TB, zk string) []string {
	t.Helper()
	return append(os.Environ(), envZK+"="+zk, envTimeout+"="+calm,
		variable("connect-timeout")+"="+calm, "PATH="+commands(t)+":"+os.Getenv("PATH"))
}

// commands is a directory with zklock and the test command in it.
func commands(t testing.TB) string {
	t.Helper()
	exe, err := os.Executable()
	require.NoError(t, err)
	dir := t.TempDir()
	for _, name := range []string{testCommand, "zklock"} {
		require.NoError(t, os.Symlink(exe, filepath.Join(dir, name)))
	}
	return dir
}

// diary is a file in which a test command records when it was alive, and what happened to it.
type diary string

func newDiary(t testing.TB) diary { return diary(filepath.Join(t.TempDir(), "diary")) }

// entries are the lines of one member of the command's family, "child" or "grandchild".
func (d diary) entries(who string) (all []string) {
	text, err := os.ReadFile(string(d))
	if err != nil {
		return nil
	}
	for line := range strings.Lines(string(text)) {
		rest, ok := strings.CutPrefix(strings.TrimSpace(line), who+" ")
		if ok && strings.HasSuffix(line, "\n") {
			all = append(all, rest)
		}
	}
	return all
}

// has reports whether something happened, and count how often.
func (d diary) has(who, what string) bool { return d.count(who, what) > 0 }

func (d diary) count(who, what string) (n int) {
	for _, e := range d.entries(who) {
		if e == what {
			n++
		}
	}
	return n
}

// last is when a member was last seen alive.
func (d diary) last(t testing.TB, who string) time.Time {
	t.Helper()
	at := d.seen(who)
	require.False(t, at.IsZero(), "%s was never alive", who)
	return at
}

// alive waits until the members are alive, and so have done all that comes before.
func (d diary) alive(t testing.TB, who ...string) {
	t.Helper()
	for _, w := range who {
		until(t, w+" alive", func() bool { return !d.seen(w).IsZero() })
	}
}

// seen is when a member was last seen alive; the zero time if never.
func (d diary) seen(who string) (at time.Time) {
	for _, e := range d.entries(who) {
		if n, err := strconv.ParseInt(e, 10, 64); err == nil {
			at = time.Unix(0, n)
		}
	}
	return at
}

// silent waits until the members are gone.
func (d diary) silent(t testing.TB, who ...string) {
	t.Helper()
	for _, w := range who {
		until(t, w+" gone", func() bool { return dead(d.pid(t, w)) })
	}
}

// kill ends the members.
func (d diary) kill(t testing.TB, who ...string) {
	t.Helper()
	for _, w := range who {
		require.NoError(t, syscall.Kill(d.pid(t, w), syscall.SIGKILL))
	}
}

// pid is that of the last one with that name.
func (d diary) pid(t testing.TB, who string) (pid int) {
	t.Helper()
	for _, e := range d.entries(who) {
		fmt.Sscanf(e, "pid %d", &pid)
	}
	require.NotZero(t, pid)
	return pid
}

// dead reports whether a process has ended, reaped or not.
func dead(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return true
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	return strings.HasPrefix(rest, "Z") || strings.HasPrefix(rest, "X")
}

// tokenOf is the token of the first in line.
func tokenOf(t testing.TB, s *zktest.Server, lock string) string {
	t.Helper()
	first := locktest.Contenders(s.Children(lock))[0]
	n, ok := s.Node(lock + "/" + first)
	require.True(t, ok)
	return fmt.Sprint(n.Stat.Czxid)
}
