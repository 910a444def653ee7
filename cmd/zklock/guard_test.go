//go:build linux

package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/zklock/locker/zktest/fault"
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

func TestAGuardThatIsKilledOrStoppedIsReplaced(t *testing.T) {
	t.Parallel()
	s, d := server(t), newDiary(t)
	p := hold(t, s.Addr(), d, "--session-timeout", calm)
	for i, sig := range []syscall.Signal{syscall.SIGKILL, syscall.SIGSTOP} {
		var old []int
		until(t, "a guard", func() bool { old = guards(p.Process.Pid); return len(old) == 1 })
		require.NoError(t, syscall.Kill(old[0], sig))
		until(t, "another guard", func() bool {
			now := guards(p.Process.Pid)
			restarts := strings.Count(p.err.String(), "has been started again")
			return len(now) == 1 && now[0] != old[0] && restarts > i
		})
	}
	// The new one knows the group.
	require.NoError(t, p.Process.Kill())
	p.exits(-1)
	d.silent(t, "child", "grandchild")
}

func TestTheCommandGetsSIGTERMWhenEveryGuardHasDied(t *testing.T) {
	t.Parallel()
	s, d := server(t), newDiary(t)
	p := launch(t, s.Addr(), "run", "/l", "--", testCommand, "diary", string(d), "until-term")
	d.alive(t, "child")
	until(t, "the end", func() bool {
		for _, pid := range guards(p.Process.Pid) {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		select {
		case <-p.ended:
			return true
		default:
			return false
		}
	})
	p.exits(exitLost)
	require.Contains(t, p.err.String(),
		"the guard process keeps ending: ended by signal 9 (killed): SIGTERM to the command")
	require.True(t, d.has("child", "told"))
	queued(t, s, "/l", 0)
}

// The id of a group that is gone may be reused for another group, while zklock still tries to
// release the lock.
func TestTheGuardIsNotifiedAtOnceWhenTheGroupHasExited(t *testing.T) {
	s, d := server(t), newDiary(t)
	orders := filepath.Join(t.TempDir(), "orders")
	t.Setenv(notedOrders, orders)
	p := launchAs(t, notedGuard, s.Addr(), "run", "/l", "--", testCommand, "diary", string(d),
		"until-term")
	d.alive(t, "child")
	s.Inject(fault.Freeze()) // so that the release takes a while
	require.NoError(t, p.Process.Signal(syscall.SIGTERM))
	var text string
	until(t, "the word", func() bool {
		b, _ := os.ReadFile(orders)
		text = string(b)
		return strings.Contains(text, "group 0\n")
	})
	require.Regexp(t, `^group [1-9]\d*\n(until \d+\n)*group 0\n`, text)
	p.exits(7)
	b, err := os.ReadFile(orders)
	require.NoError(t, err)
	require.Regexp(t, `\ngroup 0\nend\n$`, string(b))
}

// notedGuard is the name of a zklock whose guard only writes its orders into the file
// $TESTGUARD_ORDERS.
const (
	notedGuard  = "zklock-noted-guard"
	notedOrders = "TESTGUARD_ORDERS"
)

func mainWithNotedGuard() {
	if len(os.Args) < 2 || os.Args[1] != guardCommand {
		main()
		return
	}
	f, err := os.Create(os.Getenv(notedOrders))
	if err == nil {
		_, err = io.Copy(f, os.Stdin)
	}
	if err != nil {
		panic(err)
	}
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
		orders []string
		gone   bool // before the last look
		killed []int
	}{
		"its time has come":             {[]string{"group 7", "until 100"}, false, []int{7}},
		"it has not":                    {[]string{"group 7", "until 101"}, false, nil},
		"no time is set":                {[]string{"group 7"}, false, nil},
		"no group":                      {[]string{"until 100"}, false, nil},
		"told that it is gone":          {[]string{"group 7", "until 100", "group 0"}, false, nil},
		"seen that it is gone":          {[]string{"group 7", "until 100"}, true, nil},
		"never the own group, or init":  {[]string{"group 1", "until 100"}, false, nil},
		"never all":                     {[]string{"group -1", "until 100"}, false, nil},
		"an order of a later time wins": {[]string{"group 7", "until 99", "until 200"}, false, nil},
	} {
		t.Run(name, func(t *testing.T) {
			var killed []int
			there := true
			w := watchman{
				exists: func(int) bool { return there },
				kill:   func(pgid int) { killed = append(killed, pgid) },
			}
			for _, order := range c.orders {
				w.obey(order)
			}
			if c.gone {
				there = false
				w.check(50)
				there = true // another one with the same id
			}
			w.check(100)
			w.check(100)
			require.Equal(t, c.killed, killed)
		})
	}
}

func TestAPollingGuardForgetsAGroupThatHasExited(t *testing.T) {
	t.Parallel()
	cmd := exec.Command("/bin/sleep", "1000")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	require.NoError(t, cmd.Start())
	pgid := cmd.Process.Pid
	require.True(t, groupExists(pgid))
	w := watchman{exists: groupExists, kill: func(int) { t.Error("killed") }}
	w.obey(fmt.Sprint("group ", pgid))
	w.check(0)
	require.Equal(t, pgid, w.group)
	require.NoError(t, cmd.Process.Kill())
	require.Error(t, cmd.Wait())
	w.check(0)
	require.Zero(t, w.group)
	w.end()
}

// A daemon's parent becomes the nearest process that has asked for it, which is zklock.
func TestOrphansOfTheCommandAreReapedWhileItRuns(t *testing.T) {
	t.Parallel()
	s := server(t)
	const n = 200
	p := launch(t, s.Addr(), "run", "/l", "--", "sh", "-c",
		fmt.Sprintf(`i=0; while [ $i -lt %d ]; do (true &); i=$((i+1)); done; `+
			`echo forked; exec sleep 1000`, n))
	until(t, "forked", func() bool { return p.out.String() == "forked\n" })
	until(t, "none but the command and the guard",
		func() bool { return len(childrenOf(p.Process.Pid)) == 2 })
	require.NoError(t, p.Process.Signal(syscall.SIGTERM))
	p.exits(128 + 15)
}

// As where /proc is not mounted.
func TestAGuardWhoseProgramIsMissingIsReportedWithTheFileAndWhatToDo(t *testing.T) {
	t.Parallel()
	missing := filepath.Join(t.TempDir(), "exe")
	r := &reaper{own: map[int]*subprocess{}} // reaps nothing: there is nothing to reap
	_, _, err := launchGuard(r, missing, syscall.SIGKILL)
	require.ErrorIs(t, err, syscall.ENOENT)
	require.EqualError(t, err, missing+": no such file or directory: zklock needs /proc: "+
		"mount it, in a chroot or container too (mount -t proc proc /proc)")
	self, err := ownProgram()
	require.NoError(t, err)
	require.Equal(t, "/proc/self/exe", self)
}
