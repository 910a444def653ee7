package match

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/zklock/locker/tests/bench/stats"
)

// child is a contestant's process: package load describes its protocol.
type child struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Scanner
}

func (m *run) start(c Contestant) (*child, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self, "-contestant", c.Name)
	if c.command != nil {
		cmd = c.command(m.dir)
	}
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	return &child{cmd, in, bufio.NewScanner(out)}, cmd.Start()
}

// raced is the answer to one command.
type raced struct {
	ops    []stats.Op
	during stats.Window
	cost   stats.Cost
}

// do sends one command and reads the answers to it. The end of ctx kills the process.
func (ch *child) do(ctx context.Context, command string) (r raced, err error) {
	stop := context.AfterFunc(ctx, ch.kill)
	defer stop()
	if _, err := fmt.Fprintln(ch.in, command); err != nil {
		return r, err
	}
	for ch.out.Scan() {
		line := ch.out.Text()
		var o stats.Op
		if _, err := fmt.Sscanf(line, "op %d %d %d %d\n", &o.Lock, &o.Asked, &o.Got,
			&o.Left); err == nil {
			r.ops = append(r.ops, o)
			continue
		}
		if _, err := fmt.Sscanf(line, "cost %d %d %d\n", &r.cost.CPU, &r.cost.Allocations,
			&r.cost.SystemCalls); err == nil {
			continue
		}
		if _, err := fmt.Sscanf(line, "done %d %d\n", &r.during.Start, &r.during.End); err == nil {
			return r, nil
		}
		return r, errors.New(strings.TrimPrefix(line, "error "))
	}
	if err := errors.Join(context.Cause(ctx), ch.out.Err()); err != nil {
		return r, fmt.Errorf("waiting for the contestant: %w", err)
	}
	return r, errors.New("the contestant ended")
}

// patience is how long a process may take to end.
const patience = 20 * time.Second

// end ends the process, gracefully if possible, and joins it.
func (ch *child) end() {
	killer := time.AfterFunc(patience, ch.kill)
	defer killer.Stop()
	_ = ch.in.Close() // it may be closed, or the process gone, already
	_ = ch.cmd.Wait() // its exit code does not matter any more
}

func (ch *child) kill() { _ = ch.cmd.Process.Kill() }
