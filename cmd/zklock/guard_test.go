//go:build linux

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/zktest"
)

// guards are the guard processes of a zklock.
func guards(zklock int) (pids []int) {
	for _, pid := range childrenOf(zklock) {
		args, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		if err == nil && strings.Contains(string(args), guardCommand) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// childrenOf are the child processes of a process, including those that have ended and were not
// reaped.
func childrenOf(parent int) (pids []int) {
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range dirs {
		pid, _ := strconv.Atoi(filepath.Base(dir))
		if p, ok := parentOf(pid); ok && p == parent {
			pids = append(pids, pid)
		}
	}
	return pids
}

// guardOf is the guard process of a zklock, once it has one.
func guardOf(t *testing.T, p *process) (pid int) {
	t.Helper()
	until(t, "a guard", func() bool {
		found := guards(p.Process.Pid)
		if len(found) == 1 {
			pid = found[0]
		}
		return len(found) == 1
	})
	return pid
}

// isStopped reports whether a signal has stopped the process.
func isStopped(pid int) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	return err == nil && strings.Contains(string(text), "State:\tT")
}

func TestAGuardThatIsStoppedIsContinued(t *testing.T) {
	t.Parallel()
	s, d := server(t), newDiary(t)
	p := hold(t, s.Addr(), d, "--session-timeout", calm)
	guard := guardOf(t, p)
	stop(t, p.Process.Pid) // first, so that it does not continue its guard
	stop(t, guard)
	require.NoError(t, p.Process.Signal(syscall.SIGCONT))
	until(t, "continued", func() bool { return !isStopped(guard) })
	require.NoError(t, p.Process.Kill())
	p.exits(-1)
	d.silent(t, "child", "grandchild")
}

// waiterTest is a zklock that waits for the lock /l behind another one.
type waiterTest struct {
	server *zktest.Server
	holder *process
	waiter *process
	diary  diary // of the waiter's command
}

// waitBehindHolder starts both. The actions of the waiter's command follow its diary.
func waitBehindHolder(t *testing.T, actions ...string) waiterTest {
	t.Helper()
	w := waiterTest{server: server(t), diary: newDiary(t)}
	w.holder = hold(t, w.server.Addr(), newDiary(t), "--session-timeout", calm)
	w.waiter = launch(t, w.server.Addr(), append(crashFlags(), append([]string{"/l", "--",
		testCommand, "diary", string(w.diary)}, actions...)...)...)
	queued(t, w.server, "/l", 2)
	return w
}

// A guard that was stopped while zklock waited in line is continued before it starts the command,
// also if the command line is longer than the pipe's buffer.
func TestAGuardThatWasStoppedDuringTheWaitStartsTheCommand(t *testing.T) {
	t.Parallel()
	for name, actions := range map[string][]string{
		"short command line": {"live"},
		"long command line":  {"live", strings.Repeat("x", 100_000)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := waitBehindHolder(t, actions...)
			stop(t, guardOf(t, w.waiter))
			crash(t, w.holder)
			w.diary.alive(t, "child")
		})
	}
}

func TestAGuardThatWasKilledDuringTheWaitIsReplaced(t *testing.T) {
	t.Parallel()
	w := waitBehindHolder(t, "live")
	killed := guardOf(t, w.waiter)
	require.NoError(t, syscall.Kill(killed, syscall.SIGKILL))
	until(t, "reaped", func() bool { return len(childrenOf(w.waiter.Process.Pid)) == 0 })
	crash(t, w.holder)
	w.diary.alive(t, "child")
	require.NotEqual(t, killed, guardOf(t, w.waiter))

	// The new one knows the session.
	crash(t, w.waiter)
	queued(t, w.server, "/l", 0)
}

// Without a guard the command could outlive zklock.
func TestTheCommandEndsWithAKilledGuard(t *testing.T) {
	t.Parallel()
	for _, onLoss := range []string{lossKill, lossTerm, lossIgnore} {
		t.Run(onLoss, func(t *testing.T) {
			t.Parallel()
			s, d := server(t), newDiary(t)
			p := launch(t, s.Addr(), append(crashFlags("--on-loss", onLoss),
				"/l", "--", testCommand, "diary", string(d), "family", "until-term")...)
			d.alive(t, "child", "grandchild")
			require.NoError(t, syscall.Kill(guardOf(t, p), syscall.SIGKILL))
			p.exits(exitLost)
			require.Contains(t, p.err.String(),
				"the guard process has ended by signal 9 (killed): SIG")
			d.silent(t, "child", "grandchild")
			require.Equal(t, onLoss != lossKill, d.has("grandchild", "told"))
			queued(t, s, "/l", 0)
		})
	}
}

// make, for example, gives the commands that it starts two files for its job server.
func TestTheCommandHasTheFilesThatZklockWasGiven(t *testing.T) {
	t.Parallel()
	s := server(t)
	file, err := os.Open("/dev/null")
	require.NoError(t, err)
	defer file.Close()
	extra := []*os.File{file, file} // they are 3 and 4
	alone := exec.Command("ls", "/proc/self/fd")
	alone.ExtraFiles = extra
	want, err := alone.Output()
	require.NoError(t, err)
	under := self(t, "zklock", "run", "/l", "--", "ls", "/proc/self/fd")
	under.ExtraFiles = extra
	p := start(t, under, s.Addr())
	p.exits(0)
	require.Equal(t, string(want), p.out.String())
}

// An upgrade removes the file that a running zklock was started from, or puts another program
// there.
func TestAZklockWhoseFileWasReplacedGuardsWithItsOwnProgram(t *testing.T) {
	t.Parallel()
	for name, replace := range map[string]func(file string) error{
		"removed": os.Remove,
		"replaced": func(file string) error {
			return errors.Join(os.Remove(file), os.Symlink("/bin/false", file))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, d := server(t), newDiary(t)
			exe, err := os.Executable()
			require.NoError(t, err)
			file := filepath.Join(t.TempDir(), "zklock")
			require.NoError(t, exec.Command("cp", exe, file).Run())
			p := start(t, &exec.Cmd{Path: file, Args: []string{
				"zklock", "elect", "--again", "/e", "--",
				testCommand, "diary", string(d), "family", "until-term",
			}}, s.Addr())
			d.alive(t, "child", "grandchild")
			require.NoError(t, replace(file))
			require.NoError(t, s.Delete("/e/"+s.Children("/e")[0]))
			until(t, "the second term, or the end",
				func() bool { return d.count("grandchild", "ready") == 2 || p.over() })
			require.False(t, p.over(), "%s", p.err)
			require.NotContains(t, p.err.String(), "guard process")
			require.NoError(t, p.Process.Kill())
			d.silent(t, "child", "grandchild") // the guard knows the group
		})
	}
}

func TestTheGuardKillsItsGroupAndNoOther(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		group  int
		empty  bool
		untils []int64
		killed []int
	}{
		"its time has come":               {7, false, []int64{100}, []int{7}},
		"it has not":                      {7, false, []int64{101}, nil},
		"no time is set":                  {7, false, nil, nil},
		"no group, and never the own one": {0, false, []int64{100}, nil},
		"it is gone":                      {7, true, []int64{100}, nil},
		"never every process: kill(-1)":   {1, false, []int64{100}, nil},
		"never init: kill(1)":             {-1, false, []int64{100}, nil},
		"an order of a later time wins":   {7, false, []int64{99, 200}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			var killed []int
			w := watchman{
				group:  c.group,
				exists: func(int) bool { return true }, // perhaps another one with the same id
				kill:   func(pgid int) { killed = append(killed, pgid) },
			}
			if c.empty {
				w.empty = make(chan struct{})
				close(w.empty)
				_, more := w.next(nil)
				require.True(t, more)
			}
			for _, at := range c.untils {
				w.obey(order{Until: at})
			}
			w.check(100)
			w.check(100)
			require.Equal(t, c.killed, killed)
		})
	}
}

func TestACommandIsNotStartedAfterItsTime(t *testing.T) {
	t.Parallel()
	r, out, err := os.Pipe()
	require.NoError(t, err)
	defer r.Close()
	defer out.Close()
	w := newWatchman(nil, syscall.SIGKILL, out)
	w.fork = func(commandLine) (*subprocess, error) {
		t.Error("started")
		return nil, syscall.EINVAL
	}
	w.obey(order{Until: bootTime()})
	w.obey(order{Command: &commandLine{File: "/bin/true"}})
	e := <-readEvents(r)
	require.Equal(t, event{Kind: commandLate}, e)
	_, err = e.group()
	require.Equal(t, exitLost, codeOf(err))
}

// The guard hears of each confirmation of the lease, however long the command runs, and at last
// that the command has ended.
func TestACommandThatOutlivesManyLeasesIsLeftAlone(t *testing.T) {
	t.Parallel()
	s := server(t)
	const runs = startPatience + 2*lossTimeout
	began := time.Now()
	p := launch(t, s.Addr(), append(lossFlags(), "/l", "--", "sleep",
		fmt.Sprint(runs.Seconds()))...)
	p.exits(0)
	require.Less(t, time.Since(began), runs+endPatience, "zklock waits for its guard in vain")
	require.Empty(t, p.err.String())
}

// Arguments, variables and file names are bytes, and need not be UTF-8.
func TestAnOrderHasTheCommandAsItIs(t *testing.T) {
	t.Parallel()
	sent := commandLine{
		File:       "/bin/\xff",
		Args:       []string{"\xfe", "", "ü\n"},
		Env:        []string{"A=\xfd"},
		Foreground: true,
	}
	text, err := json.Marshal(order{Command: &sent})
	require.NoError(t, err)
	var got order
	require.NoError(t, json.Unmarshal(text, &got))
	require.Equal(t, order{Command: &sent}, got)
}

// A daemon's parent becomes the nearest process that has asked for it, which is the guard.
func TestOrphansOfTheCommandAreReapedWhileItRuns(t *testing.T) {
	t.Parallel()
	s := server(t)
	const n = 200
	p := launch(t, s.Addr(), "run", "/l", "--", "sh", "-c",
		fmt.Sprintf(`i=0; while [ $i -lt %d ]; do (true &); i=$((i+1)); done; `+
			`echo forked; exec sleep 1000`, n))
	until(t, "forked", func() bool { return p.out.String() == "forked\n" })
	guard := guardOf(t, p)
	until(t, "none but the command", func() bool { return len(childrenOf(guard)) == 1 })
	require.NoError(t, p.Process.Signal(syscall.SIGTERM))
	p.exits(128 + 15)
}

// As where /proc is not mounted. It is not parallel: the processes of other tests would inherit the
// guard's pipes.
func TestAGuardWhoseProgramIsMissingIsReportedWithTheFileAndWhatToDo(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "exe")
	r := &reaper{own: map[int]*subprocess{}} // reaps nothing: there is nothing to reap
	err := (&guard{reaper: r, death: syscall.SIGKILL}).launch(missing)
	require.ErrorIs(t, err, syscall.ENOENT)
	require.EqualError(t, err, missing+": no such file or directory: zklock needs /proc: "+
		"mount it, in a chroot or container too (mount -t proc proc /proc)")
	self, err := ownProgram()
	require.NoError(t, err)
	require.Equal(t, "/proc/self/exe", self)
}
