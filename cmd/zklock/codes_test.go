//go:build linux

package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// Each row of the table of exit codes has commands here that end with its code. The table of the
// help has these rows, and docs/operate/command-line.md has the same ones with the same texts.
func TestZklockEndsWithTheCodesOfItsTable(t *testing.T) {
	t.Parallel()
	s, d := server(t), newDiary(t)
	launch(t, s.Addr(), "run", "/held", "--", testCommand, "diary", string(d), "live")
	d.alive(t, "child")
	run := func(path string, command ...string) *process {
		return launch(t, s.Addr(), append([]string{"run", path, "--"}, command...)...)
	}
	var rows []string
	for _, c := range []struct {
		row  string
		code int
		how  func() *process
	}{
		{"0-255", 0, func() *process { return run("/l", "true") }},
		{"0-255", 255, func() *process { return run("/l", testCommand, "exit", "255") }},
		{"0-255", 128 + 9, func() *process { return run("/l", "sh", "-c", "kill -9 $$") }},
		{"1", exitFailed, func() *process {
			return launch(t, s.Addr(), "done", "--forget", "k", "/l")
		}},
		{"64", exitUsage, func() *process { return run("relative", "true") }},
		{"69", exitUnreachable, func() *process {
			return launch(t, "127.0.0.1:1", "run", "--connect-timeout", "300ms", "/l", "--", "true")
		}},
		{"70", exitLost, func() *process {
			d := newDiary(t)
			p := run("/lost", testCommand, "diary", string(d), "live")
			d.alive(t, "child")
			require.NoError(t, s.Delete("/lost/"+s.Children("/lost")[0]))
			return p
		}},
		{"75", exitBusy,
			func() *process { return launch(t, s.Addr(), "run", "--try", "/held", "--", "true") }},
		{"77", exitRefused, func() *process {
			launch(t, s.Addr(), "run", "--auth", "digest:user:secret", "--acl", "auth::cdrwa",
				"/private/l", "--", "true").exits(0)
			return run("/private/l", "true")
		}},
		{"126", exitNoExec, func() *process { return run("/l", "/dev/null") }},
		{"127", exitNotFound, func() *process { return run("/l", "no-such-command") }},
		{"127", exitNotFound, func() *process {
			script := filepath.Join(t.TempDir(), "script")
			require.NoError(t, os.WriteFile(script, []byte("#!/no/such/interpreter\n"), 0o700))
			return run("/l", script)
		}},
		{"128+N", exitSignal + 15, func() *process {
			p := run("/held", "true")
			queued(t, s, "/held", 2)
			require.NoError(t, p.Process.Signal(syscall.SIGTERM))
			return p
		}},
	} {
		c.how().exits(c.code)
		if len(rows) == 0 || rows[len(rows)-1] != c.row {
			rows = append(rows, c.row)
		}
	}
	page, err := os.ReadFile("../../docs/operate/command-line.md")
	require.NoError(t, err)
	help := regexp.MustCompile(`(?m)^  (\S+) +(.+)$`).FindAllStringSubmatch(exitTable, -1)
	row := regexp.MustCompile(`(?m)^\| (\d\S*) \| (.+) \|$`)
	docs := row.FindAllStringSubmatch(string(page), -1)
	require.Len(t, help, len(rows))
	require.Len(t, docs, len(rows))
	plain := strings.Join(strings.Fields(strings.ReplaceAll(string(page), "`", "")), " ")
	for rule := range strings.SplitSeq(exitRules, "\n\n") {
		require.Contains(t, plain, strings.Join(strings.Fields(rule), " "))
	}
	for i, row := range rows {
		require.Equal(t, row, help[i][1])
		require.Equal(t, help[i][1:], []string{docs[i][1], strings.ReplaceAll(docs[i][2], "`", "")})
	}
}
