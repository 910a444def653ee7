package interop_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/tests/ensemble"
)

// process is a program with contenders of one kind.
type process struct {
	kind  string
	cmd   *exec.Cmd
	calls sync.WaitGroup // steps in goroutines of their own; they end with the process

	mu     sync.Mutex // guards the fields below
	stdin  io.WriteCloser
	answer map[string]chan string // by contender: the answer to its step in progress
	ended  error                  // why there are no more answers
}

// launch starts a program, which ends with the test at the latest.
func launch(t *testing.T, kind string, e *ensemble.Ensemble, timeout time.Duration) *process {
	t.Helper()
	cmd := command(t, kind, e, timeout)
	cmd.SysProcAttr = attributes()
	var stderr strings.Builder // read after Wait only
	cmd.Stderr = &stderr
	stdin, err := cmd.StdinPipe()
	require.NoError(t, err)
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	p := &process{kind: kind, cmd: cmd, stdin: stdin, answer: map[string]chan string{}}
	var reader sync.WaitGroup
	reader.Go(func() { p.listen(stdout) }) // ends with the process, which the cleanup ends
	t.Cleanup(func() {
		// It ends by itself with its input; but the cleanup must not wait for steps that a test
		// left waiting.
		err := errors.Join(ignore(stdin.Close()), ignore(cmd.Process.Kill()))
		reader.Wait()
		p.calls.Wait()
		_ = cmd.Wait() // it was killed
		if err != nil {
			t.Error(err)
		}
		if t.Failed() && stderr.Len() > 0 {
			t.Logf("%s said: %s", kind, stderr.String())
		}
	})
	return p
}

// listen passes answers to the steps that wait for them.
func (p *process) listen(stdout io.Reader) {
	lines := bufio.NewScanner(stdout)
	for lines.Scan() {
		id, text, _ := strings.Cut(lines.Text(), " ")
		p.mu.Lock()
		ch := p.answer[id]
		p.mu.Unlock()
		if ch == nil {
			break // not an answer to any contender: ignored
		}
		ch <- text // has room for the one answer
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ended = fmt.Errorf("the process of %s ended: %w", p.kind, errors.Join(io.EOF, lines.Err()))
	for _, ch := range p.answer {
		close(ch)
	}
}

// kill ends it with SIGKILL, as a crash would.
func (p *process) kill(t *testing.T) {
	t.Helper()
	require.NoError(t, p.cmd.Process.Kill())
}

// contender is one client with a session of its own.
type contender struct {
	*process
	id      string
	name    string // "Kazoo 2"
	session int64
}

// open has a process connect one more contender for the lock at path.
func (p *process) open(t *testing.T, id, path string) *contender {
	t.Helper()
	c := &contender{process: p, id: id, name: p.kind + " " + id}
	p.mu.Lock()
	p.answer[id] = make(chan string, 1)
	p.mu.Unlock()
	text, err := c.ask("open", path)
	require.NoError(t, err)
	number, found := strings.CutPrefix(text, "open ")
	require.True(t, found, text)
	c.session, err = strconv.ParseInt(number, 10, 64)
	require.NoError(t, err)
	return c
}

// ask makes the contender do a step and returns its answer. One step at a time.
func (c *contender) ask(words ...string) (string, error) {
	step := strings.Join(words, " ")
	c.mu.Lock()
	err, ch := c.ended, c.answer[c.id]
	if err == nil {
		_, err = fmt.Fprintln(c.stdin, c.id, step)
	}
	c.mu.Unlock()
	if err != nil {
		return "", fmt.Errorf("%s: %s: %w", c.name, step, err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), bound+10*time.Second)
	defer cancel()
	select {
	case text, open := <-ch:
		if !open {
			c.mu.Lock()
			defer c.mu.Unlock()
			return "", fmt.Errorf("%s: %s: %w", c.name, step, c.ended)
		}
		if reason, failed := strings.CutPrefix(text, "error "); failed {
			return "", fmt.Errorf("%s: %s: %s", c.name, step, reason)
		}
		return text, nil
	case <-ctx.Done():
		return "", fmt.Errorf("%s: %s: no answer: %w", c.name, step, ctx.Err())
	}
}

// want is ask for a step with one valid answer.
func (c *contender) want(answer string, words ...string) error {
	text, err := c.ask(words...)
	if err == nil && text != answer {
		err = fmt.Errorf("%s: %v: answered %q, not %q", c.name, words, text, answer)
	}
	return err
}

// Steps. A mode is "lock" for a mutex, "read" or "write" for a read/write lock.

func (c *contender) acquire(mode string) error {
	return c.want("held", mode, fmt.Sprint(bound.Milliseconds()))
}

func (c *contender) release(mode string) error { return c.want("free", "un"+mode) }

// must fails the test.
func must(t *testing.T, err error) {
	t.Helper()
	require.NoError(t, err)
}

// pending is an acquisition in progress.
type pending struct {
	*contender
	mode string
	done chan error
}

// start begins to acquire, and returns at once.
func (c *contender) start(mode string) *pending {
	p := &pending{c, mode, make(chan error, 1)}
	c.calls.Go(func() { p.done <- c.acquire(mode) })
	return p
}

// held waits until it holds.
func (p *pending) held(t *testing.T) {
	t.Helper()
	require.NoError(t, <-p.done) // which is bounded
}

// waits fails if it holds already.
func (p *pending) waits(t *testing.T) {
	t.Helper()
	select {
	case err := <-p.done:
		require.Failf(t, "does not wait", "%s: %s: ended with %v", p.name, p.mode, err)
	default:
	}
}

// ignore lets what is over already pass.
func ignore(err error) error {
	if errors.Is(err, os.ErrProcessDone) || errors.Is(err, os.ErrClosed) {
		return nil
	}
	return err
}
