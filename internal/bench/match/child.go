package match

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/zklock/locker/internal/bench/stats"
)

// child is a contestant's process: package load describes its protocol.
type child struct {
	cmd    *exec.Cmd
	in     io.WriteCloser
	lines  chan string // closed at the end of its output
	stderr *tail
	reader sync.WaitGroup
}

func start(c Contestant, t tools) (*child, error) {
	cmd, err := c.command(t)
	if err != nil {
		return nil, err
	}
	ch := &child{cmd: cmd, lines: make(chan string, 1024), stderr: &tail{}}
	cmd.Stderr = ch.stderr
	if ch.in, err = cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting %s: %w", c.Name, err)
	}
	ch.reader.Go(func() { // ends with the process's output, which end closes or waits for
		defer close(ch.lines)
		scan := bufio.NewScanner(out)
		for scan.Scan() {
			ch.lines <- scan.Text()
		}
	})
	return ch, nil
}

func (ch *child) send(format string, args ...any) error {
	_, err := fmt.Fprintf(ch.in, format+"\n", args...)
	return err
}

// answer is one line of the child's: a word and numbers.
type answer struct {
	word    string
	numbers []int64
}

// expect returns the next answer, which must begin with word.
func (ch *child) expect(ctx context.Context, word string) (answer, error) {
	a, err := ch.next(ctx)
	if err == nil && a.word != word {
		err = fmt.Errorf("%q instead of %q", a.word, word)
	}
	return a, err
}

func (ch *child) next(ctx context.Context) (answer, error) {
	select {
	case line, ok := <-ch.lines:
		if !ok {
			return answer{}, fmt.Errorf("the contestant ended: %s", ch.stderr)
		}
		if why, is := strings.CutPrefix(line, "error "); is {
			return answer{}, errors.New(why)
		}
		words := strings.Split(line, " ")
		a := answer{word: words[0]}
		for _, w := range words[1:] {
			n, err := strconv.ParseInt(w, 10, 64)
			if err != nil {
				return a, fmt.Errorf("unexpected answer %q", line)
			}
			a.numbers = append(a.numbers, n)
		}
		return a, nil
	case <-ctx.Done():
		return answer{}, fmt.Errorf("waiting for the contestant: %w", context.Cause(ctx))
	}
}

// ops reads cycles until done.
func (ch *child) ops(ctx context.Context) (ops []stats.Op, done answer, err error) {
	for {
		a, err := ch.next(ctx)
		switch {
		case err != nil:
			return nil, a, err
		case a.word == "done":
			return ops, a, nil
		case a.word != "op" || len(a.numbers) != 5:
			return nil, a, fmt.Errorf("%q with %d numbers instead of a cycle", a.word, len(a.numbers))
		}
		ops = append(ops, stats.Op{Lock: int(a.numbers[0]), Asked: a.numbers[1], Got: a.numbers[2], Leaving: a.numbers[3], Left: a.numbers[4]})
	}
}

// resident is the process's current resident memory, by the kernel's count; −1 if that can't be read.
func (ch *child) resident() int64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", ch.cmd.Process.Pid))
	if err != nil {
		return -1
	}
	for line := range strings.SplitSeq(string(text), "\n") {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			if n, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64); err == nil {
				return n << 10
			}
		}
	}
	return -1
}

// patience is how long a process may take to close its sessions.
const patience = 20 * time.Second

// end ends the process, gracefully if possible, and joins it.
func (ch *child) end() {
	killer := time.AfterFunc(patience, ch.kill)
	defer killer.Stop()
	_ = ch.in.Close() // it may be closed, or the process gone, already
	for range ch.lines {
	}
	ch.reader.Wait()
	_ = ch.cmd.Wait() // its exit code does not matter any more
}

// kill ends the process as a crash would.
func (ch *child) kill() { _ = ch.cmd.Process.Kill() }

// tail is the end of what was written to it.
type tail struct {
	mu sync.Mutex // guards b
	b  []byte
}

func (t *tail) Write(p []byte) (int, error) {
	const most = 2000
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.b = append(t.b, p...); len(t.b) > most {
		t.b = t.b[len(t.b)-most:]
	}
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(bytes.TrimSpace(t.b))
}
