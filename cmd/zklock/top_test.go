//go:build linux

package main

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/zklock/locker/internal/locktest"
	"github.com/zklock/locker/internal/queuejson"
	"github.com/zklock/locker/zktest"
)

// tokenOf is the token of the first in line.
func tokenOf(t testing.TB, s *zktest.Server, lock string) string {
	t.Helper()
	first := locktest.Contenders(s.Children(lock))[0]
	n, ok := s.Node(lock + "/" + first)
	require.True(t, ok)
	return fmt.Sprint(n.Stat.Czxid)
}

// frame is the lines of the last complete frame.
func (c *console) frame() []string {
	text := c.out.String()
	end := strings.LastIndex(text, "\x1b[J")
	if end < 0 {
		return nil
	}
	begin := strings.LastIndex(text[:end], "\x1b[H")
	if begin < 0 {
		return nil
	}
	return strings.Split(strings.ReplaceAll(text[begin+len("\x1b[H"):end], "\x1b[K", ""), "\r\n")
}

// shows waits for a frame with a line that contains all the words.
func (c *console) shows(words ...string) {
	c.Helper()
	until(c, fmt.Sprintf("a frame with %q", words), func() bool {
		for _, line := range c.frame() {
			all := true
			for _, w := range words {
				all = all && strings.Contains(line, w)
			}
			if all {
				return true
			}
		}
		return false
	})
}

func TestTopShowsLocksAndQueuesOnATerminalAndGivesItBack(t *testing.T) {
	t.Parallel()
	s, d := server(t), newDiary(t)
	holder := launch(t, s.Addr(), "run", "--owner", "first\x1b[2J", "/locks/a", "--", testCommand, "diary", string(d), "live")
	d.alive(t, "child")
	for range 2 {
		launch(t, s.Addr(), "run", "--owner", "later", "/locks/a", "--", testCommand, "live")
	}
	launch(t, s.Addr(), "run", "--shared", "--owner", "reader", "/locks/b", "--", testCommand, "live")
	queued(t, s, "/locks/a", 3)
	queued(t, s, "/locks/b", 1)

	c := shell(t, s.Addr())
	c.types("zklock top --interval 100ms /locks; echo \"code $?\"\n")
	c.shows("> /locks/a", "mutex", `first\x1b[2J (`, "2")
	c.shows("  /locks/b", "read", "reader (")
	c.shows("locks: 2", "waiting: 2")
	require.Len(t, c.frame(), 12)

	c.types("\x1b[B") // down
	c.shows("> /locks/b")
	c.types("k") // up
	c.shows("> /locks/a")
	c.types("\r")
	c.shows("/locks/a: 1 holding, 2 waiting")
	c.shows("3", "waits", "mutex", "later")

	require.NoError(t, unix.IoctlSetWinsize(c.fd, unix.TIOCSWINSZ, &unix.Winsize{Row: 8, Col: 40}))
	until(t, "a frame of the new size", func() bool {
		f := c.frame()
		for _, line := range f {
			if len([]rune(line)) > 40 {
				return false
			}
		}
		return len(f) == 8
	})
	require.NoError(t, holder.Process.Signal(syscall.SIGTERM))
	c.shows("/locks/a: 1 holding, 1 waiting")
	c.types("\x1b") // back
	c.shows("> /locks/a")
	c.types("q")
	c.sees(leaveScreen)
	c.sees("code 0")
	c.types("echo li''nes\n")
	c.sees("lines")
}

func TestTopGivesTheTerminalBackHoweverItEnds(t *testing.T) {
	t.Parallel()
	s := server(t)
	for _, sig := range []syscall.Signal{0, syscall.SIGTERM, syscall.SIGHUP} {
		c := open(t, s.Addr(), self(t, "zklock", "top", "--interval", "100ms", "/"))
		c.shows("locks: 0")
		require.Equal(t, "raw", mode(t, c))
		want := 0
		if sig == 0 {
			c.types("\x03") // Ctrl-C
		} else {
			require.NoError(t, c.cmd.Process.Signal(sig))
			want = 128 + int(sig)
		}
		c.exits(want)
		c.sees(leaveScreen)
		require.Equal(t, "cooked", mode(t, c))
	}
}

// mode reports whether a terminal delivers lines or keys.
func mode(t testing.TB, c *console) string {
	t.Helper()
	mode, err := unix.IoctlGetTermios(c.fd, unix.TCGETS)
	require.NoError(t, err)
	if mode.Lflag&unix.ICANON == 0 {
		return "raw"
	}
	return "cooked"
}

// entry is a mutex at path with that many waiting contenders.
func entry(path string, waiting int) lockEntry {
	return lockEntry{Queue: queuejson.Queue{Path: path, Kind: "mutex", Waiting: waiting}}
}

func TestTopReportsThatTheServersDoNotAnswer(t *testing.T) {
	t.Parallel()
	v := view{root: "/locks", began: time.Unix(0, 0)}
	require.Contains(t, v.render(time.Unix(1, 0), 100, 10)[0], "looking")
	v.saw(sight{at: time.Unix(2, 0), walk: walk{locks: []lockEntry{entry("/locks/a", 7)}}})
	require.Contains(t, v.render(time.Unix(3, 0), 100, 10)[0], "locks: 1   waiting: 7")
	require.Contains(t, v.render(time.Unix(63, 0), 100, 10)[0], "no answer for 1m01s")
	v.saw(sight{at: time.Unix(64, 0), err: fmt.Errorf("no server\x1b[2J")})
	require.Contains(t, v.render(time.Unix(65, 0), 100, 10)[0], `NOT UP TO DATE: no server\x1b[2J`)
	require.Contains(t, strings.Join(v.render(time.Unix(65, 0), 100, 10), "\n"), "> /locks/a", "the last look")
}

func TestTopFitsIntoAnyTerminal(t *testing.T) {
	t.Parallel()
	v := view{root: "/"}
	var locks []lockEntry
	for i := range 50 {
		locks = append(locks, entry(fmt.Sprintf("/l/%02d", i), 0))
	}
	v.saw(sight{at: time.Unix(2, 0), walk: walk{locks: locks}})
	for range 60 {
		require.False(t, v.key(keyDown))
	}
	for _, open := range []bool{false, true} {
		v.open = open
		for width := 1; width < 120; width += 7 {
			for height := 1; height < 70; height += 3 {
				lines := v.render(time.Unix(3, 0), width, height)
				require.LessOrEqual(t, len(lines), height)
				for _, line := range lines {
					require.LessOrEqual(t, len([]rune(line)), width)
				}
			}
		}
	}
	v.open = false
	require.Contains(t, strings.Join(v.render(time.Unix(3, 0), 80, 20), "\n"), "> /l/49", "the chosen one is in sight")
	v.saw(sight{at: time.Unix(2, 0), walk: walk{locks: locks[:10]}})
	require.Equal(t, "/l/09", v.chosen, "it is gone: the last one")
	require.Equal(t, []key{keyUp, keyDown, keyEnter, keyBack, keyQuit, keyOther, keyUp}, parseKeys([]byte("\x1b[A\x1b[B\r\x1b\x03x\x1bOA")))
}
