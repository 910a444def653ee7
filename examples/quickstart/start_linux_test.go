package main

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/zktest"
)

// tutorial writes the tutorial's two files to a folder, and has the program use the server at addr.
func tutorial(t *testing.T, addr string) (dir string, env []string) {
	t.Helper()
	page, dir := root+"/docs/start.md", t.TempDir()
	worker := block(t, page, "package main\n\nimport (\n\t\"context\"")
	require.Equal(t, 1, strings.Count(worker, "127.0.0.1:2181"))
	require.NoError(t,
		os.WriteFile(filepath.Join(dir, "worker.go"),
			[]byte(strings.Replace(worker, "127.0.0.1:2181", addr, 1)), 0o644))
	test := block(t, page, "package main\n\nimport (\n\t\"testing\"")
	require.NoError(t, os.WriteFile(filepath.Join(dir, "worker_test.go"), []byte(test), 0o644))
	return dir, os.Environ()
}

// inside runs the go command on the tutorial's files, which may import what this module may.
func inside(t *testing.T, dir string, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", args...)
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "go %s: %s", strings.Join(args, " "), out)
	require.NotEmpty(t, dir)
}

type student struct {
	*exec.Cmd
	said  bytes.Buffer // read after Wait
	token chan string
}

// Write sends the token when the worker has said that it holds.
func (w *student) Write(p []byte) (int, error) {
	if text, mine := strings.CutPrefix(string(p), "mine, with token "); mine {
		w.token <- strings.TrimSpace(text)
	}
	return w.said.Write(p)
}

func TestTheTutorialDoesWhatItSays(t *testing.T) {
	server, err := zktest.Start()
	require.NoError(t, err)
	defer server.Close()
	dir, env := tutorial(t, server.Addr())
	inside(t, dir, "test", "-count=1", filepath.Join(dir, "worker.go"),
		filepath.Join(dir, "worker_test.go"))
	inside(t, dir, "build", "-o", filepath.Join(dir, "worker"), filepath.Join(dir, "worker.go"))
	start := func() *student {
		w := &student{Cmd: exec.CommandContext(t.Context(), filepath.Join(dir, "worker")),
			token: make(chan string, 1)}
		w.Dir, w.Env, w.Stdout, w.Stderr = dir, env, w, w
		require.NoError(t, w.Start())
		t.Cleanup(func() { _ = w.Process.Kill() }) // it may have ended
		return w
	}
	holds := func(w *student) (token string) {
		t.Helper()
		select {
		case token = <-w.token:
		case <-time.After(time.Minute):
			require.Fail(t, "a worker waits for too long")
		}
		return token
	}
	queued := func(n int) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		require.NoError(t, server.Await(ctx, func() bool {
			return len(server.Children("/locks/report")) == n
		}))
	}
	first := start()
	holds(first)
	second := start()
	queued(2)
	require.NoError(t, first.Process.Kill())
	_ = first.Wait() // that it was killed
	holds(second)

	third := start()
	queued(2)
	require.NoError(t, second.Process.Signal(syscall.SIGSTOP))
	token := holds(third)
	require.Eventually(t, func() bool {
		text, err := os.ReadFile(filepath.Join(dir, "report.txt"))
		return err == nil && strings.HasPrefix(string(text), token+" ")
	}, time.Minute, 10*time.Millisecond, "the third one has written")
	require.NoError(t, second.Process.Signal(syscall.SIGCONT))
	require.Error(t, second.Wait())
	require.Contains(t, second.said.String(), "refused: token ")
	require.Contains(t, second.said.String(), "the lock: session: ")
}
