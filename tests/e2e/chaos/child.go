package chaos

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"github.com/zklock/locker/tests/e2e/history"
)

// A client that is to be stopped has to be a process of its own: this program started again, with
// childEnv set to its SiteConfig. It reads orders from its standard input and writes what happens
// to its standard output, one line of JSON each. It ends when its standard input is closed.

const childEnv = "ZKLOCK_CHAOS_CLIENT"

// toChild is an order; one field is set.
type toChild struct {
	Start *Orders `json:",omitempty"`
	Stop  bool    `json:",omitempty"`
	Stats bool    `json:",omitempty"`
}

// fromChild is an answer; one field is set.
type fromChild struct {
	Ready bool        `json:",omitempty"`
	Op    *history.Op `json:",omitempty"`
	Done  *string     `json:",omitempty"` // the round's error, or empty
	Stats *Stats      `json:",omitempty"`
	Err   string      `json:",omitempty"` // why the process can't go on
}

// Child runs a client when this process was started for one, and returns true and the exit code. A
// program that uses Open calls it first.
func Child() (code int, is bool) {
	text := os.Getenv(childEnv)
	if text == "" {
		return 0, false
	}
	out := json.NewEncoder(os.Stdout)
	var mu sync.Mutex
	say := func(m fromChild) {
		mu.Lock()
		defer mu.Unlock()
		if err := out.Encode(m); err != nil {
			os.Exit(1) // the parent process has ended
		}
	}
	if err := play(text, say); err != nil {
		say(fromChild{Err: err.Error()})
		return 1, true
	}
	return 0, true
}

func play(text string, say func(fromChild)) error {
	var conf SiteConfig
	if err := json.Unmarshal([]byte(text), &conf); err != nil {
		return err
	}
	m, err := newInside(conf)
	if err != nil {
		return err
	}
	say(fromChild{Ready: true})
	orders := json.NewDecoder(os.Stdin)
	for {
		var o toChild
		if err := orders.Decode(&o); errors.Is(err, io.EOF) {
			return m.close()
		} else if err != nil {
			return errors.Join(err, m.close())
		}
		switch {
		case o.Start != nil:
			if err := m.start(*o.Start,
				func(op history.Op) { say(fromChild{Op: &op}) }); err != nil {
				return err
			}
		case o.Stop:
			text := ""
			if err := m.finish(); err != nil {
				text = err.Error()
			}
			say(fromChild{Done: &text})
		case o.Stats:
			s := ownStats()
			say(fromChild{Stats: &s})
		}
	}
}

// outside is a member in a process of its own.
type outside struct {
	client int
	cmd    *exec.Cmd
	in     io.WriteCloser
	orders *json.Encoder
	ready  chan struct{}
	done   chan string
	figure chan Stats
	joined chan struct{} // closed when the process has written its last answer

	mu   sync.Mutex // guards what follows
	emit func(history.Op)
	err  error // why it ended
}

func newOutside(conf SiteConfig) (*outside, error) {
	text, err := json.Marshal(conf)
	if err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	m := &outside{
		client: conf.Client, cmd: exec.Command(self), ready: make(chan struct{}),
		done:   make(chan string, 1),
		figure: make(chan Stats, 1), joined: make(chan struct{}),
	}
	m.cmd.Env = append(os.Environ(), childEnv+"="+string(text))
	m.cmd.Stderr = os.Stderr
	m.cmd.SysProcAttr = dieWithParent()
	if m.in, err = m.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	m.orders = json.NewEncoder(m.in)
	out, err := m.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := m.cmd.Start(); err != nil {
		return nil, err
	}
	go m.listen(out) // ends with the process; close joins it
	select {
	case <-m.ready:
		return m, nil
	case <-m.joined:
		return nil, errors.Join(m.why(), m.close())
	case <-time.After(2 * dialBound):
		return nil,
			errors.Join(fmt.Errorf("client %d: no session within %v", conf.Client, 2*dialBound),
				m.cmd.Process.Kill(), m.close())
	}
}

func (m *outside) listen(out io.Reader) {
	defer close(m.joined)
	words := json.NewDecoder(bufio.NewReader(out))
	for {
		var w fromChild
		if err := words.Decode(&w); err != nil {
			m.mu.Lock()
			if m.err == nil {
				m.err = fmt.Errorf("client %d: its process ended: %w", m.client, err)
			}
			m.mu.Unlock()
			return
		}
		switch {
		case w.Ready:
			close(m.ready)
		case w.Op != nil:
			m.mu.Lock()
			emit := m.emit
			m.mu.Unlock()
			emit(*w.Op)
		case w.Done != nil:
			m.done <- *w.Done
		case w.Stats != nil:
			m.figure <- *w.Stats
		case w.Err != "":
			m.mu.Lock()
			m.err = fmt.Errorf("client %d: %s", m.client, w.Err)
			m.mu.Unlock()
		}
	}
}

func (m *outside) why() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.err
}

func (m *outside) start(o Orders, emit func(history.Op)) error {
	m.mu.Lock()
	m.emit = emit
	m.mu.Unlock()
	return m.orders.Encode(toChild{Start: &o})
}

func (m *outside) finish() error {
	if err := m.orders.Encode(toChild{Stop: true}); err != nil {
		return errors.Join(err, m.why())
	}
	select {
	case text := <-m.done:
		if text != "" {
			return errors.New(text)
		}
		return nil
	case <-m.joined:
		return m.why()
	}
}

func (m *outside) stats() (Stats, error) {
	if err := m.orders.Encode(toChild{Stats: true}); err != nil {
		return Stats{}, errors.Join(err, m.why())
	}
	select {
	case s := <-m.figure:
		return s, nil
	case <-m.joined:
		return Stats{}, m.why()
	}
}

// suspend stops the process (SIGSTOP), and resume lets it go on.
func (m *outside) suspend() error { return m.cmd.Process.Signal(syscall.SIGSTOP) }
func (m *outside) resume() error  { return m.cmd.Process.Signal(syscall.SIGCONT) }

// closeBound is how long a client's process may take to end by itself.
const closeBound = time.Minute

func (m *outside) close() error {
	err := m.in.Close()
	select {
	case <-m.joined:
	case <-time.After(closeBound):
		err = errors.Join(err,
			fmt.Errorf("client %d: its process did not end within %v", m.client,
				closeBound), m.cmd.Process.Kill())
		<-m.joined
	}
	return errors.Join(err, m.cmd.Wait())
}
