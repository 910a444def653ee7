package ensemble

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// startBound is how long a server, or an election, may take on a busy machine with two cores.
const startBound = 60 * time.Second

// Node is one ZooKeeper server. Its methods may be called concurrently.
type Node struct {
	// ID is the server's number in the ensemble, from 1; Nodes[i].ID is i+1.
	ID int

	addr string
	dir  string // empty for a server that was not started here
	jars []string
	jvm  []string

	mu       sync.Mutex
	proc     *process // guarded by mu; nil when not started, or killed
	paused   bool     // guarded by mu
	isolated bool     // guarded by mu
}

// process is one run of a server. done is closed by the goroutine that reaps it, after err is set.
type process struct {
	cmd  *exec.Cmd
	done chan struct{}
	err  error
}

// Addr returns the host:port at which the server accepts clients. It does not change when the
// server is restarted.
func (n *Node) Addr() string { return n.addr }

// Use selects the software of the server's next start: a value of ZOOKEEPER_HOME, or "" for the
// installed package. The error names what is missing there.
func (n *Node) Use(home string) error {
	jars, err := classpath(home)
	if err != nil {
		return err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.jars = jars
	return nil
}

// Launch starts the server and returns at once; it does nothing when the server is running. Restart
// and Ensemble.WaitServing wait.
func (n *Node) Launch() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.dir == "" {
		return n.notOurs("start")
	}
	if n.proc != nil {
		return nil
	}
	log, err := os.OpenFile(n.logFile(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("ensemble: server %d: %w", n.ID, err)
	}
	cmd := exec.Command("java", n.args()...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = dieWithParent()
	// the child has its own copy of the log's descriptor
	err = errors.Join(cmd.Start(), log.Close())
	if err != nil {
		return fmt.Errorf("ensemble: server %d: %w", n.ID, err)
	}
	p := &process{cmd: cmd, done: make(chan struct{})}
	go func() { // reaps; ends with the process, which Kill and the ensemble's Close wait for
		p.err = cmd.Wait()
		close(p.done)
	}()
	n.proc = p
	return nil
}

func (n *Node) args() []string {
	args := []string{
		"-Xmx160m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData",
		"-Dorg.slf4j.simpleLogger.showDateTime=true",
		"-Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS",
		"-Dzookeeper.forceSync=no", // no fsync per write: the tests do not need its durability
		// Otherwise an isolated server asks for votes at growing intervals, up to a minute, and
		// rejoins late.
		"-Dzookeeper.fastleader.maxNotificationInterval=400",
	}
	args = append(args, n.jvm...)
	return append(args, "-cp", strings.Join(n.jars, string(os.PathListSeparator)),
		"org.apache.zookeeper.server.quorum.QuorumPeerMain", filepath.Join(n.dir, "zoo.cfg"))
}

// Kill ends the server with SIGKILL and returns when it is gone; its data stays for the next start.
// It does nothing when the server is not running. For a server that was not started here it returns
// an error.
func (n *Node) Kill() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.dir == "" {
		return n.notOurs("kill")
	}
	if n.proc == nil {
		return nil
	}
	if err := n.proc.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("ensemble: kill server %d: %w", n.ID, err)
	}
	<-n.proc.done // SIGKILL also ends a stopped process
	n.proc, n.paused = nil, false
	return nil
}

// Restart kills the server if it runs, starts it, and returns when it serves clients. The test
// fails, with the end of the server's log, when that takes longer than a minute: among others when
// the ensemble has no quorum without a further server (use Launch then, and Ensemble.WaitServing
// after the last).
func (n *Node) Restart(tb testing.TB) {
	tb.Helper()
	if err := errors.Join(n.Kill(), n.Launch()); err != nil {
		tb.Fatal(err)
	}
	n.WaitServing(tb)
}

// Pause stops the server with SIGSTOP: connections stay open, the kernel still accepts new ones,
// the server answers nothing once Pause has returned.
func (n *Node) Pause() error { return n.signal(stopSignal, true) }

// Resume continues a paused server (SIGCONT).
func (n *Node) Resume() error { return n.signal(continueSignal, false) }

func (n *Node) signal(sig syscall.Signal, paused bool) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.dir == "" {
		return n.notOurs("signal")
	}
	if n.proc == nil {
		return fmt.Errorf("ensemble: %v to server %d: it is not running", sig, n.ID)
	}
	if err := n.proc.cmd.Process.Signal(sig); err != nil {
		return fmt.Errorf("ensemble: %v to server %d: %w", sig, n.ID, err)
	}
	n.paused = paused
	if paused {
		if err := awaitStopped(n.proc.cmd.Process.Pid); err != nil {
			return fmt.Errorf("ensemble: %v to server %d: %w", sig, n.ID, err)
		}
	}
	return nil
}

// WaitServing returns when the server serves clients, and fails the test, with the end of the
// server's log, when it does not within a minute or ends.
func (n *Node) WaitServing(tb testing.TB) {
	tb.Helper()
	if err := n.waitServing(startBound); err != nil {
		tb.Fatal(err)
	}
}

// WaitNotServing returns when the server serves no clients, for example because it lost its quorum,
// and fails the test when it still does after a minute.
func (n *Node) WaitNotServing(tb testing.TB) {
	tb.Helper()
	Until(tb, startBound, fmt.Sprintf("server %d to stop serving", n.ID), func() error {
		if mode := n.Mode(); mode != "" {
			return fmt.Errorf("it is %s", mode)
		}
		return nil
	})
}

func (n *Node) waitServing(atMost time.Duration) error {
	var ended error
	err := poll(atMost, fmt.Sprintf("server %d (%s) to serve", n.ID, n.addr), func() error {
		if ended = n.ended(); ended != nil {
			return nil // further waiting is useless
		}
		_, err := n.mode()
		return err
	})
	if err = errors.Join(ended, err); err != nil {
		return fmt.Errorf("%w\n%s", err, n.logTail())
	}
	return nil
}

// ended returns an error if a server that should run does not.
func (n *Node) ended() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.dir == "" {
		return nil
	}
	if n.proc == nil {
		return fmt.Errorf("ensemble: server %d is not running", n.ID)
	}
	select {
	case <-n.proc.done:
		return fmt.Errorf("ensemble: server %d ended by itself: %v", n.ID, n.proc.err)
	default:
		return nil
	}
}

// reachable says whether no action of a test keeps the server from serving.
func (n *Node) reachable() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.dir == "" || n.proc != nil && !n.paused && !n.isolated
}

func (n *Node) setIsolated(is bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.isolated = is
}

func (n *Node) notOurs(verb string) error {
	return fmt.Errorf("ensemble: cannot %s %s: it was named by %s and not started here", verb,
		n.addr, serversEnv)
}

func (n *Node) logFile() string { return filepath.Join(n.dir, "log") }

// logTail is the end of the server's log, for messages.
func (n *Node) logTail() string {
	if n.dir == "" {
		return "(no log: not our server)"
	}
	b, err := os.ReadFile(n.logFile())
	if err != nil {
		return err.Error()
	}
	const most = 3000
	if len(b) > most {
		b = b[len(b)-most:]
		b = b[bytes.IndexByte(b, '\n')+1:]
	}
	return fmt.Sprintf("--- end of the log of server %d ---\n%s", n.ID,
		strings.TrimSpace(string(b)))
}
