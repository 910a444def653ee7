package zklock_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/internal/session"
	"github.com/zklock/locker/tests/locktest"
	"github.com/zklock/locker/zklock"
)

// A holder that crashes or is stopped has to be a separate process: the test binary, started
// again with childEnv set, takes a lock and plays the part that the variable names. It reports to
// its test in lines of JSON, and ends when its standard input is closed.

// childEnv names the part that the test binary plays instead of running tests.
const childEnv = "ZKLOCK_TEST_CHILD"

// The parts.
const (
	childLeads = "leads" // campaigns instead, and does nothing when it leads
	childHolds = "holds" // then does nothing
	// checks its context at every tick of a clock; after a stop it tries to write
	childLooks  = "looks"
	childWrites = "writes" // under the lock, one Multi after the other
	childPasses = "passes" // passes its session file's descriptor to a child of its own
	childTurns  = "turns"  // takes one turn after the other, and locks the file Data in each
	childLoops  = "loops"  // loops over items, inside Do, until the context has ended
)

// childOrders are the orders to a child, in the variable childOrdersEnv.
type childOrders struct {
	Connect       string
	Path, Data    string // the lock and the znode to write
	Rank          int    // of a candidate
	Timeout, Tick time.Duration
	SessionFile   string // "" if it has none
}

const childOrdersEnv = "ZKLOCK_TEST_CHILD_ORDERS"

// childWord is a report of a child.
type childWord struct {
	Err string `json:",omitempty"` // why it cannot go on

	// once it holds
	Node  string       `json:",omitempty"`
	Token zklock.Token `json:",omitempty"`

	// once it has found that it was stopped
	Stopped time.Duration `json:",omitempty"` // how long it was stopped
	Ticks   int           `json:",omitempty"` // ticks of its clock, from when it ran again until its context had ended
	Cause   string        `json:",omitempty"` // of the context's end
	Lost    bool          `json:",omitempty"` // the cause and the write's error match ErrLost
	Refused string        `json:",omitempty"` // the write's error
	Written int           `json:",omitempty"` // writes that succeeded
	Items   int           `json:",omitempty"` // that were begun after a stop
	Child   int           `json:",omitempty"` // the pid of its own child
}

// childClock is how often a child checks its clock.
const childClock = 50 * time.Millisecond

// playChild plays a part and returns the exit code.
func playChild(role string) int {
	say := json.NewEncoder(os.Stdout)
	word, err := childPlay(role, func(w childWord) error { return say.Encode(w) })
	if err != nil {
		word.Err = err.Error()
	}
	if err := say.Encode(word); err != nil {
		return 1
	}
	// Wait until the test has read the report: it closes standard input then, which also happens
	// when the test ends.
	if _, err := io.Copy(io.Discard, os.Stdin); err != nil {
		return 1
	}
	return 0
}

func childPlay(role string, say func(childWord) error) (w childWord, err error) {
	var o childOrders
	if err := json.Unmarshal([]byte(os.Getenv(childOrdersEnv)), &o); err != nil {
		return w, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), locktest.Bound)
	defer cancel()
	opts := []zklock.Option{zklock.WithoutLog(), zklock.WithSessionTimeout(o.Timeout),
		zklock.WithTickTime(o.Tick)}
	if o.SessionFile != "" {
		opts = append(opts, zklock.WithSessionFile(o.SessionFile))
	}
	c, err := zklock.Dial(ctx, o.Connect, opts...)
	if err != nil {
		return w, err
	}
	switch role {
	case childLoops:
		return childLoop(ctx, c, o, say)
	case childLeads:
		return childLead(ctx, c, o, say)
	case childTurns:
		return childTakeTurns(ctx, c, o, say)
	}
	_, h, err := c.Mutex(o.Path).Lock(ctx)
	if err != nil {
		return w, err
	}
	hello := childWord{Node: h.Node(), Token: h.Token()}
	if role == childPasses {
		worker := exec.Command("sleep", "600")
		worker.ExtraFiles = []*os.File{c.SessionFile()}
		if err := worker.Start(); err != nil {
			return w, err
		}
		hello.Child = worker.Process.Pid
	}
	if err := say(hello); err != nil {
		return w, err
	}
	switch role {
	case childHolds, childPasses:
		<-h.Context().Done() // which nobody waits to see
	case childLooks:
		w = childLook(o, h)
	case childWrites:
		w = childWrite(o, h)
	default:
		return w, fmt.Errorf("no such part: %q", role)
	}
	return w, c.Close()
}

// childLead reports when it is about to campaign. It ends when its term is lost.
func childLead(
	ctx context.Context, c *zklock.Client, o childOrders, say func(childWord) error,
) (w childWord, err error) {
	if err := say(w); err != nil {
		return w, err
	}
	_, h, err := c.Election(o.Path).WithRank(o.Rank).Campaign(ctx, nil)
	if err != nil {
		return w, err
	}
	<-h.Context().Done()
	return w, c.Close()
}

// childTakeTurns takes the lock again and again, and reports each turn. In a turn it locks a file,
// which the system unlocks when a process has ended: so no other process that lives has a turn.
func childTakeTurns(
	ctx context.Context, c *zklock.Client, o childOrders, say func(childWord) error,
) (w childWord, err error) {
	witness, err := os.Open(o.Data)
	if err != nil {
		return w, err
	}
	turn := func(context.Context) error {
		if err := lockFile(witness); err != nil {
			return fmt.Errorf("two processes have a turn: %w", err)
		}
		time.Sleep(rand.N(10 * time.Millisecond))
		return unlockFile(witness)
	}
	for err == nil {
		if err = say(childWord{}); err == nil {
			err = c.Mutex(o.Path).Do(ctx, turn)
		}
	}
	return w, err
}

// childLook reads the clock until the process has been stopped, then checks its context, and then
// tries to write.
func childLook(o childOrders, h *zklock.Hold) (w childWord) {
	clock := time.NewTicker(childClock)
	defer clock.Stop()
	for last := time.Now(); w.Stopped <= o.Timeout; {
		<-clock.C
		now := time.Now() // only once: the stop may come between any two readings of the clock
		w.Stopped, last = now.Sub(last), now
	}
	// Context.Err, because Hold.Err would compare the lease with the clock by itself.
	for h.Context().Err() == nil && w.Ticks < int(locktest.Bound/childClock) {
		<-clock.C
		w.Ticks++
	}
	cause := context.Cause(h.Context())
	w.Cause = fmt.Sprint(cause)
	_, err := childMulti(o, h, 0)
	w.Refused = fmt.Sprint(err)
	w.Lost = errors.Is(cause, zklock.ErrLost) && errors.Is(err, zklock.ErrLost)
	return w
}

// childWrite writes until a write is refused because the lock is lost. The stop may come at any
// point, also during a write, whose outcome is then unknown; the next one is refused.
func childWrite(o childOrders, h *zklock.Hold) (w childWord) {
	for began := time.Now(); !w.Lost && time.Since(began) < locktest.Bound; {
		began := time.Now()
		_, err := childMulti(o, h, w.Written+1)
		w.Stopped = max(w.Stopped, time.Since(began))
		if err == nil {
			w.Written++
		} else {
			w.Refused = err.Error()
			w.Lost = errors.Is(err, zklock.ErrLost) && !errors.Is(err, zklock.ErrUnknownOutcome)
		}
	}
	w.Cause = fmt.Sprint(context.Cause(h.Context()))
	return w
}

// childLoop is the usual worker loop, in two variants: one checks Err, one selects on Done. An
// item takes a millisecond.
func childLoop(
	ctx context.Context, c *zklock.Client, o childOrders, say func(childWord) error,
) (w childWord, err error) {
	var both sync.WaitGroup
	var stopped, items [2]atomic.Int64
	err = c.Mutex(o.Path).Do(ctx, func(ctx context.Context) error {
		h, _ := zklock.HoldFrom(ctx, o.Path)
		more := [2]func() bool{
			func() bool { return ctx.Err() == nil },
			func() bool {
				select {
				case <-ctx.Done():
					return false
				default:
					return true
				}
			},
		}
		for i := range more {
			both.Go(func() {
				for last := time.Now(); more[i](); time.Sleep(time.Millisecond) {
					if now := time.Now(); now.Sub(last) > o.Timeout {
						// begun after the stop: before it there was another item
						stopped[i].Store(int64(now.Sub(last)))
						items[i].Add(1)
					} else {
						last = now
					}
				}
			})
		}
		if err := say(childWord{Node: h.Node(), Token: h.Token()}); err != nil {
			return err
		}
		both.Wait()
		w.Cause = fmt.Sprint(context.Cause(ctx))
		return nil
	})
	w.Items, w.Lost = int(items[0].Load()+items[1].Load()), errors.Is(err, zklock.ErrLost)
	w.Stopped = time.Duration(max(stopped[0].Load(), stopped[1].Load()))
	return w, c.Close()
}

// byNext is what the next holder writes. The children write 0 and more.
const byNext = -1

// childMulti writes n to the znode o.Data, if h still holds.
func childMulti(o childOrders, h *zklock.Hold, n int) ([]zk.MultiResponse, error) {
	ctx, cancel := context.WithTimeout(context.Background(), locktest.Bound)
	defer cancel()
	return h.Multi(ctx, session.OpSet{Path: o.Data, Data: fmt.Append(nil, n), Version: -1})
}

// crashChild is a child as its test sees it.
type crashChild struct {
	cmd   *exec.Cmd
	words *bufio.Scanner
	Hello childWord // its report when it got the lock
}

// crashStart starts a child and waits until it holds its lock, or is about to campaign. It is
// killed with the test at the latest.
func crashStart(tb testing.TB, role string, o childOrders) (*crashChild, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	orders, err := json.Marshal(o)
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), childEnv+"="+role, childOrdersEnv+"="+string(orders))
	cmd.SysProcAttr = crashAttributes()
	var stderr strings.Builder
	cmd.Stderr = &stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	reap := sync.OnceFunc(func() {
		_ = stdin.Close()
		// It ends by itself then, unless it was stopped. It has sent all its reports.
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if stderr.Len() > 0 {
			tb.Errorf("the child %s says: %s", role, stderr.String())
		}
	})
	tb.Cleanup(reap)
	c := &crashChild{cmd: cmd, words: bufio.NewScanner(stdout)}
	c.Hello, err = c.Listen()
	return c, err
}

// Listen waits for the child's next report. The child bounds everything that it does before a
// report.
func (c *crashChild) Listen() (w childWord, err error) {
	if !c.words.Scan() {
		return w,
			fmt.Errorf("the child is gone: %w", errors.Join(io.ErrUnexpectedEOF, c.words.Err()))
	}
	if err = json.Unmarshal(c.words.Bytes(), &w); err == nil && w.Err != "" {
		err = errors.New(w.Err)
	}
	return w, err
}

// Signal sends the child a signal.
func (c *crashChild) Signal(tb testing.TB, sig syscall.Signal) {
	tb.Helper()
	require.NoError(tb, c.cmd.Process.Signal(sig))
}
