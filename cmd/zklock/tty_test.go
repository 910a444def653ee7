//go:build linux

package main

import (
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/zklock/locker/tests/locktest"
	"github.com/zklock/locker/zktest"
	"github.com/zklock/locker/zktest/fault"
)

// console is a terminal with a program on it, as a user has it.
type console struct {
	testing.TB
	cmd   *exec.Cmd
	pty   *os.File
	fd    int // of pty
	out   *locktest.Buffer
	seen  int // how much of out was matched
	ended chan struct{}
}

// open starts cmd on a terminal of its own. It is killed with the test.
func open(t testing.TB, zk string, cmd *exec.Cmd) *console {
	t.Helper()
	c := &console{TB: t, cmd: cmd, out: &locktest.Buffer{}, ended: make(chan struct{})}
	cmd.Env = append(environ(t, zk), "PS1=$ ", "TERM=xterm", "HISTFILE=")
	tty, err := pty.StartWithSize(cmd, &pty.Winsize{Rows: 12, Cols: 100})
	require.NoError(t, err)
	// As a file of its own, so that closing it ends the read below.
	c.fd, err = unix.FcntlInt(tty.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	require.NoError(t, err)
	require.NoError(t, tty.Close())
	require.NoError(t, unix.SetNonblock(c.fd, true))
	c.pty = os.NewFile(uintptr(c.fd), "terminal")
	read := make(chan struct{})
	go func() { // ends with the terminal
		defer close(read)
		buf := make([]byte, 4096)
		for {
			n, err := c.pty.Read(buf)
			_, _ = c.out.Write(buf[:n])
			if err != nil {
				return
			}
		}
	}()
	go func() {
		_ = cmd.Wait()
		close(c.ended)
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-c.ended
		_ = c.pty.Close()
		<-read
	})
	return c
}

// shell is an interactive bash, with job control.
func shell(t testing.TB, zk string) *console {
	t.Helper()
	c := open(t, zk, exec.Command("bash", "--norc", "--noprofile", "-i"))
	c.types("stty -echo; bind 'set enable-bracketed-paste off'; echo rea''dy\n")
	c.sees("ready")
	return c
}

func (c *console) types(text string) {
	c.Helper()
	_, err := c.pty.WriteString(text)
	require.NoError(c, err)
}

// sees waits until text has appeared since the last match, and returns and discards what came
// before it.
func (c *console) sees(text string) (before string) {
	c.Helper()
	defer func() {
		if c.Failed() {
			c.Logf("on the terminal: %q", c.out)
		}
	}()
	until(c, "see "+text, func() bool {
		first, _, found := strings.Cut(c.out.String()[c.seen:], text)
		if found {
			before = first
			c.seen += len(first + text)
		}
		return found
	})
	return before
}

func (c *console) exits(code int) {
	c.Helper()
	select {
	case <-c.ended:
	case <-time.After(locktest.Bound):
		c.Fatalf("has not ended; on the terminal: %q", c.out)
	}
	require.Equal(c, code, c.cmd.ProcessState.ExitCode(), "%q", c.out)
}

func TestAnInteractiveCommandReadsTheTerminal(t *testing.T) {
	t.Parallel()
	s := server(t)
	c := shell(t, s.Addr())
	c.types("zklock run /l -- sh -c 'read x; echo \"got $x\"; " +
		"read y; echo \"then $y\"; exit 3'; echo \"code $?\"\n")
	queued(t, s, "/l", 1)
	c.types("one\n")
	c.sees("got one")
	c.types("two\n")
	c.sees("then two")
	c.sees("code 3")
	c.types("read z; echo \"shell $z\"\n")
	c.types("three\n")
	c.sees("shell three")

	// A shell under the lock has job control.
	c.types("zklock run /l -- bash --norc --noprofile -i; echo \"code $?\"\n")
	queued(t, s, "/l", 1)
	d := newDiary(t)
	c.types("echo in''side $ZKLOCK_PATH; " + testCommand + " diary " + string(d) + " live\n")
	c.sees("inside /l")
	d.alive(t, "child") // before, Ctrl-C might reach the shell instead
	c.types("\x03")
	c.types("echo interr''upted; exit 5\n")
	c.sees("interrupted")
	c.sees("code 5")
}

// In a pipeline the pager at the end needs the same terminal as the command.
func TestACommandInAPipelineGetsTheTerminalWhenItAsks(t *testing.T) {
	t.Parallel()
	s := server(t)
	c := shell(t, s.Addr())
	c.types("zklock run /l -- sh -c 'echo he''re; read x; echo \"got $x\"' " +
		"| (cat; echo end of pipe''line)\n")
	c.sees("here")
	c.types("one\n")
	c.sees("got one")
	c.sees("end of pipeline")
}

func TestCtrlCReachesTheCommandAndTheScriptAround(t *testing.T) {
	t.Parallel()
	// The command has the terminal from the start, or not.
	for _, stdin := range []string{"", " | cat"} {
		s, d := server(t), newDiary(t)
		c := shell(t, s.Addr())
		c.types("sh -c 'zklock run /l -- " + testCommand + " diary " + string(d) + " live" +
			stdin + "; touch " + string(d) + ".wenton'\n")
		d.alive(t, "child")
		c.types("\x03")
		queued(t, s, "/l", 0)
		c.types("echo \"code $?\"\n")
		c.sees("code 130")
		require.NoFileExists(t, string(d)+".wenton")
		d.silent(t, "child")
		queued(t, s, "/l", 0)
	}
}

func TestCtrlZStopsBothAndFgContinuesThem(t *testing.T) {
	t.Parallel()
	s, d := server(t), newDiary(t)
	c := shell(t, s.Addr())
	c.types("zklock run /l -- " + testCommand + " diary " + string(d) + " live\n")
	d.alive(t, "child")
	c.types("\x1a")
	c.sees("Stopped")
	c.types("echo pro''mpt\n")
	c.sees("prompt")
	seen := len(d.entries("child"))
	c.types("fg\n")
	until(t, "it goes on", func() bool { return len(d.entries("child")) > seen+10 })
	require.Equal(t, 1, inLine(s, "/l"))
	c.types("\x1a")
	c.sees("Stopped")
	seen = len(d.entries("child"))
	c.types("bg\n")
	until(t, "it goes on", func() bool { return len(d.entries("child")) > seen+10 })
	c.types("kill %1; wait %1; echo \"code $?\"\n")
	c.sees("code 143")
	queued(t, s, "/l", 0)
}

func TestABackgroundJobStopsWhenItReadsTheTerminalAndGoesOnInTheForeground(t *testing.T) {
	t.Parallel()
	s := server(t)
	c := shell(t, s.Addr())
	c.types("zklock run /l -- sh -c 'read x; echo \"got $x\"' &\n")
	queued(t, s, "/l", 1)
	until(t, "stopped", func() bool {
		c.types("jobs; echo \"looked $?\"\n")
		return strings.Contains(c.sees("looked 0"), "Stopped")
	})
	c.types("fg\n")
	c.types("one\n")
	c.sees("got one")
	queued(t, s, "/l", 0)
}

// A contender with --quiet shows nothing, though it waits for longer than one whose place is shown.
func TestThePlaceInLineIsShownLiveAndRemoved(t *testing.T) {
	t.Parallel()
	s, d := server(t), newDiary(t)
	holder := launch(t, s.Addr(), "run", "--owner", "evil\x1b[31m", "/l", "--", testCommand,
		"diary", string(d), "until-term")
	d.alive(t, "child")
	second := open(t, s.Addr(), self(t, "zklock", "run", "--quiet", "/l", "--", "true"))
	queued(t, s, "/l", 2)
	c := open(t, s.Addr(), self(t, "zklock", "run", "/l", "--", "sh", "-c", "echo my turn"))
	c.sees("waiting 3rd in line behind evil\\x1b[31m (")
	require.NoError(t, second.cmd.Process.Signal(syscall.SIGTERM))
	second.exits(128 + 15)
	require.Empty(t, second.out.String())
	c.sees("waiting 2nd in line behind evil\\x1b[31m (")
	require.NoError(t, holder.Process.Signal(syscall.SIGTERM))
	holder.exits(7)
	c.sees("\r\x1b[Kmy turn")
	c.exits(0)
}

// No server of the ensemble answers: each command that asks for something says what it waits for.
func TestEveryCommandSaysOnATerminalThatNoServerHasAnsweredYet(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{
		{"ls", "/"}, {"queue", "/l"}, {"leader", "/l"}, {"leader", "--follow", "/l"},
		{"done", "/l"}, {"prune", "/l"}, {"evict", "/l", "--token", "1"}, {"resize", "/l", "1"},
		{"hold", "/l"},
		{"run", "/l", "--", "true"}, {"elect", "/l", "--", "true"}, {"doctor", "/l"},
	} {
		t.Run(strings.Join(args, " "), func(t *testing.T) {
			t.Parallel()
			s := zktest.Run(t)
			s.Inject(fault.Hold().Op(fault.OpConnect))
			says := "zklock: connecting … "
			if args[0] == "doctor" {
				says = "zklock: examining the servers … "
			}
			c := open(t, s.Addr(), self(t, "zklock", args...))
			c.sees(says)
			require.NoError(t, c.cmd.Process.Signal(syscall.SIGTERM))
			c.sees("\r\x1b[K") // it is removed
			c.exits(128 + 15)
		})
	}
}

// There a hang-up means that the user has gone.
func TestAStandbyOnATerminalLeavesTheLineWhenThatHangsUp(t *testing.T) {
	t.Parallel()
	s, d := server(t), newDiary(t)
	leader := launch(t, s.Addr(), "elect", "/e", "--", testCommand, "diary", string(d), "live")
	d.alive(t, "child")
	c := open(t, s.Addr(), self(t, "zklock", "elect", "/e", "--", "true"))
	queued(t, s, "/e", 2)
	require.NoError(t, c.cmd.Process.Signal(syscall.SIGHUP))
	c.exits(128 + 1)
	queued(t, s, "/e", 1)
	require.NoError(t, leader.Process.Signal(syscall.SIGTERM))
	leader.exits(128 + 15)
}

func TestBreakAsksOnATerminal(t *testing.T) {
	t.Parallel()
	s, d := server(t), newDiary(t)
	holder := launch(t, s.Addr(), "run", "--owner", "hangs", "/l", "--", testCommand, "diary",
		string(d), "live")
	d.alive(t, "child")
	token := tokenOf(t, s, "/l")
	for _, c := range []struct {
		answer string
		code   int
		says   string
	}{
		{"n\n", 1, "zklock: not removed"},
		{"\n", 1, "zklock: not removed"},
		{"y\n", 0, "removed token"},
	} {
		ask := open(t, s.Addr(), self(t, "zklock", "evict", "/l", "--token", token))
		ask.sees("hangs (")
		ask.sees(", HOLDS the lock.")
		ask.sees("Remove it? [y/N] ")
		ask.types(c.answer)
		ask.sees(c.says)
		ask.exits(c.code)
	}
	holder.exits(exitLost)
}

func TestAJobThatWasDoneIsToldOnATerminal(t *testing.T) {
	t.Parallel()
	s := server(t)
	run := func() *console {
		return open(t, s.Addr(), self(t, "zklock", "run", "--once-per", "k", "/l", "--", "true"))
	}
	run().exits(0)
	again := run()
	again.sees("done already")
	again.exits(0)
}
