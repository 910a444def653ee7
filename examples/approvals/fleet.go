package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"
)

// member is one instance, as its parent sees it.
type member struct {
	name   string
	addr   string
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	stderr strings.Builder // to be read after exited only

	exited chan struct{} // closed when the process has ended and all its output has been read
	up     chan string   // its address; these three channels have room for a single message
	closed chan struct{}
	ready  chan []lateWrite

	mu      sync.Mutex // guards the fields below
	changed chan struct{}
	stale   []staleWrite
	lost    int64
	failure string
	killed  bool // by us: its end is no failure
}

// startMember starts the program once more, as an instance.
func startMember(o orders) (*member, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(o)
	if err != nil {
		return nil, err
	}
	m := &member{name: o.Name, cmd: exec.Command(self), exited: make(chan struct{}), up: make(chan string, 1),
		closed: make(chan struct{}, 1), ready: make(chan []lateWrite, 1), changed: make(chan struct{})}
	m.cmd.Env = append(os.Environ(), instanceEnv+"="+string(text))
	m.cmd.SysProcAttr = attributes()
	m.cmd.Stderr = &m.stderr
	if m.stdin, err = m.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	stdout, err := m.cmd.StdoutPipe()
	if err != nil {
		return nil, errors.Join(err, m.stdin.Close())
	}
	if err := m.cmd.Start(); err != nil {
		return nil, err
	}
	go m.listen(stdout) // until the process ends, which stop sees to; stop joins it
	return m, nil
}

// listen reads the instance's output and reaps it in the end.
func (m *member) listen(stdout io.Reader) {
	defer close(m.exited)
	for lines := bufio.NewScanner(stdout); lines.Scan(); {
		var w word
		if err := json.Unmarshal(lines.Bytes(), &w); err != nil {
			w.Err = fmt.Sprintf("said %q", lines.Text())
		}
		switch {
		case w.Up != "":
			m.up <- w.Up
		case w.Closed:
			m.closed <- struct{}{}
		case w.Ready != nil:
			m.ready <- w.Ready
		}
		m.mu.Lock()
		if w.Stale != nil {
			m.stale = append(m.stale, *w.Stale)
		}
		m.lost += w.Lost
		if w.Err != "" {
			m.failure = w.Err
		}
		close(m.changed)
		m.changed = make(chan struct{})
		m.mu.Unlock()
	}
	err := m.cmd.Wait()
	m.mu.Lock()
	defer m.mu.Unlock()
	if err != nil && m.failure == "" && !m.killed {
		m.failure = strings.TrimSpace(err.Error() + " " + m.stderr.String())
	}
}

// hear waits for a message that an instance sends once.
func hear[T any](ctx context.Context, m *member, from <-chan T, what string) (said T, err error) {
	select {
	case said = <-from:
		return said, nil
	case <-m.exited:
		return said, errors.Join(fmt.Errorf("%s: ended; waited for %s", m.name, what), m.err())
	case <-ctx.Done():
		return said, fmt.Errorf("%s: waited for %s: %w", m.name, what, context.Cause(ctx))
	}
}

// err returns why the instance failed, or nil.
func (m *member) err() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.failure == "" {
		return nil
	}
	return fmt.Errorf("%s: %s", m.name, m.failure)
}

// tell writes an order.
func (m *member) tell(order string) error {
	_, err := fmt.Fprintln(m.stdin, order)
	return err
}

// refused returns the writes that the database refused the instance, and a channel that is closed when there is news.
func (m *member) refused() ([]staleWrite, <-chan struct{}) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return append([]staleWrite(nil), m.stale...), m.changed
}

// kill ends the process as a crash would.
func (m *member) kill() error {
	m.mu.Lock()
	m.killed = true
	m.mu.Unlock()
	return m.cmd.Process.Kill()
}

// freeze stops the process where it is; thaw lets it go on.
func (m *member) freeze() error { return m.cmd.Process.Signal(syscall.SIGSTOP) }
func (m *member) thaw() error   { return m.cmd.Process.Signal(syscall.SIGCONT) }

// stop ends the instance, gracefully if possible, and returns when it is gone: within twice the time that an instance
// may take.
func (m *member) stop() error {
	err := m.stdin.Close()
	if errors.Is(err, fs.ErrClosed) {
		err = nil
	}
	select {
	case <-m.exited:
	case <-time.After(2 * stopping):
		err = errors.Join(err, fmt.Errorf("%s: did not end by itself", m.name), m.kill())
		<-m.exited // SIGKILL ends a process that was stopped, too
	}
	return errors.Join(err, m.err())
}

// fleet is all instances of the service.
type fleet []*member

// startFleet starts n instances and waits until they serve.
func startFleet(ctx context.Context, o orders, n int) (f fleet, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	defer func() {
		if err != nil {
			err = errors.Join(err, f.stop())
		}
	}()
	for i := range n {
		o.Name = fmt.Sprintf("instance-%d", i+1)
		m, err := startMember(o)
		if err != nil {
			return f, err
		}
		f = append(f, m)
	}
	for _, m := range f {
		if m.addr, err = hear(ctx, m, m.up, "its address"); err != nil {
			return f, err
		}
	}
	return f, nil
}

// stop ends all instances, whatever state they are in.
func (f fleet) stop() error {
	errs := make([]error, len(f))
	var all sync.WaitGroup
	for i, m := range f {
		all.Go(func() { errs[i] = m.stop() })
	}
	all.Wait()
	return errors.Join(errs...)
}
