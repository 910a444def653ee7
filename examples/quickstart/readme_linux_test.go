package main

import (
	"context"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/tests/ensemble"
	"github.com/zklock/locker/zklock"
)

// The servers to try things out that need no Docker, started as their page says, but for the port
// and the folder.
func TestTheServersToTryThingsOutServe(t *testing.T) {
	text, err := os.ReadFile(root + "/docs/how-to/testing.md")
	require.NoError(t, err)
	_, sh, _ := strings.Cut(string(text), "```sh\n")
	sh, _, _ = strings.Cut(sh, "```\n")
	if l, err := net.Listen("tcp", ":8080"); err == nil {
		// the port of ZooKeeper's admin server, in use on many a machine
		defer l.Close()
	}
	for _, begins := range []string{"go -C cmd/zklock run . serve ", "java "} {
		t.Run(begins, func(t *testing.T) {
			if begins == "java " && ensemble.InProcess() {
				t.Skip("a real server, and the tests run on the in-process one")
			}
			start := strings.Index(sh, begins)
			require.GreaterOrEqual(t, start, 0, sh)
			line, _, _ := strings.Cut(sh[start:], "\n")
			port := ensemble.Port(t)
			line = strings.NewReplacer("2181", port, "/tmp/zookeeper", t.TempDir()).Replace(line)
			if jars := os.Getenv("ZOOKEEPER_HOME"); jars != "" {
				line = strings.Replace(line, "/usr/share/java/*", jars+"/*:"+jars+"/lib/*", 1)
			}
			server := exec.Command("bash", "-c", line)
			server.Dir = root
			server.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // go run has a child
			require.NoError(t, server.Start())
			defer func() {
				require.NoError(t, syscall.Kill(-server.Process.Pid, syscall.SIGKILL))
				_ = server.Wait() // that it was killed
			}()
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()
			c, err := zklock.Dial(ctx, "127.0.0.1:"+port, zklock.WithSessionTimeout(time.Second))
			require.NoError(t, err, line)
			defer c.Close()
			require.NoError(t, c.Mutex("/l").Do(ctx, func(context.Context) error { return nil }))
		})
	}
}
