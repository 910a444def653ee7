//go:build linux

package main

import (
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A command that holds a lock reports a request to release it, with its sender and reason, and goes on; queue shows
// that it was asked.
func TestAHolderIsAskedToLetGo(t *testing.T) {
	t.Parallel()
	s := server(t)
	hold := launch(t, s.Addr(), "run", "/l", "--", "sleep", "1000")
	queued(t, s, "/l", 1)
	until(t, "the line is read", func() bool { return strings.Contains(lookAt(t, s.Addr(), "queue", "/l"), "holds") })
	token := regexp.MustCompile(`(\d+)\n$`).FindStringSubmatch(lookAt(t, s.Addr(), "queue", "/l"))[1]
	launch(t, s.Addr(), "ask", "/l", "--token", token, "deploying", "at", "noon").exits(0)
	until(t, "it is told", func() bool { return strings.Contains(hold.err.String(), ": deploying at noon") })
	require.Contains(t, hold.err.String(), "/l: asked to release the lock by ")
	require.Regexp(t, `\n1 was asked to release the lock .* ago by .*: deploying at noon\n$`, lookAt(t, s.Addr(), "queue", "/l"))
	require.Contains(t, lookAt(t, s.Addr(), "queue", "--json", "/l"), `"why":"deploying at noon"`)

	launch(t, s.Addr(), "ask", "/l", "--token", "99999").exits(1)
	launch(t, s.Addr(), "ask", "/l").exits(exitUsage)
	launch(t, s.Addr(), "ask", "/l", "--token", "0").exits(exitUsage)
}

// lookAt runs a command that ends with 0, and returns what it wrote.
func lookAt(t *testing.T, zk string, args ...string) string {
	t.Helper()
	p := launch(t, zk, args...)
	p.exits(0)
	return p.out.String()
}
