package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"sync"
	"time"

	"github.com/zklock/locker/zktest"
)

// fleet is a ZooKeeper in this process, and workers as processes of this very program, which it
// subjects to faults: they are killed, stopped for a while and told to leave, and their ensemble
// goes down. One goroutine uses it.
type fleet struct {
	self  string
	args  []string
	out   *lines
	zoo   *zktest.Server
	hosts map[string]*host
	last  int
}

// host is a process.
type host struct {
	cmd   *exec.Cmd
	ended chan struct{} // closed when err is set
	err   error
}

// newFleet starts the server. Hosts are started as self, "" for this program, with args followed by
// -zk and -name; their output goes to out. Sessions may be as short as two ticks.
func newFleet(self string, tick time.Duration, out io.Writer, args ...string) (*fleet, error) {
	if self == "" {
		var err error
		if self, err = os.Executable(); err != nil {
			return nil, err
		}
	}
	zoo, err := zktest.Start(zktest.WithTick(tick))
	if err != nil {
		return nil, err
	}
	return &fleet{self: self, args: args, out: &lines{w: out}, zoo: zoo, hosts: map[string]*host{}},
		nil
}

// addr is the server's connect string.
func (f *fleet) addr() string { return f.zoo.Addr() }

// say prints a line between those of the hosts.
func (f *fleet) say(format string, args ...any) { fmt.Fprintf(f.out, "-- "+format+"\n", args...) }

// start starts a host of that rank and returns its name.
func (f *fleet) start(rank int, flags ...string) (string, error) {
	f.last++
	name := fmt.Sprint("host-", f.last)
	args := slices.Concat(f.args, flags,
		[]string{"-zk", f.zoo.Addr(), "-name", name, "-rank", fmt.Sprint(rank)})
	h := &host{cmd: exec.Command(f.self, args...), ended: make(chan struct{})}
	h.cmd.Stdout, h.cmd.Stderr = f.out, f.out
	if err := h.cmd.Start(); err != nil {
		return "", err
	}
	go func() { // ends with the process, which Close ends
		defer close(h.ended)
		h.err = h.cmd.Wait()
	}()
	f.hosts[name] = h
	return name, nil
}

// kill kills a host.
func (f *fleet) kill(name string) error {
	f.say("%s is killed", name)
	h := f.hosts[name]
	delete(f.hosts, name)
	if err := h.cmd.Process.Kill(); err != nil {
		return err
	}
	<-h.ended
	return nil
}

// patience is how long a host may take to leave, or a condition to come true, on a busy machine.
const patience = time.Minute

// leave asks a host to leave, as Ctrl-C does. It must exit without an error.
func (f *fleet) leave(name string) error {
	f.say("%s is told to leave", name)
	h := f.hosts[name]
	if err := h.cmd.Process.Signal(os.Interrupt); err != nil {
		return err
	}
	select {
	case <-h.ended:
	case <-time.After(patience):
		return fmt.Errorf("%s does not leave within %v", name, patience)
	}
	delete(f.hosts, name)
	if h.err != nil {
		return fmt.Errorf("%s was told to leave: %w", name, h.err)
	}
	return nil
}

// leaveOrKill asks a host to leave, and kills it when it has not after a grace period, as
// Kubernetes does.
func (f *fleet) leaveOrKill(name string) error {
	f.say("%s is told to leave, and given a second", name)
	h := f.hosts[name]
	if err := h.cmd.Process.Signal(os.Interrupt); err != nil {
		return err
	}
	select {
	case <-h.ended:
		return fmt.Errorf("%s has left (%v), and was to be killed", name, h.err)
	case <-time.After(time.Second):
		return f.kill(name)
	}
}

// instead ends a host by end, and starts another one in its place.
func (f *fleet) instead(end func(name string) error) func(name string) error {
	return func(name string) error {
		if err := end(name); err != nil {
			return err
		}
		_, err := f.start(0)
		return err
	}
}

// freeze stops a host (SIGSTOP) until cond is true, and lets it go on.
func (f *fleet) freeze(ctx context.Context, name string, cond func() (bool, error)) error {
	f.say("%s is stopped", name)
	p := f.hosts[name].cmd.Process
	if err := stop(p); err != nil {
		return err
	}
	err := f.until(ctx, cond)
	f.say("%s goes on", name)
	return errors.Join(err, goOn(p))
}

// outage takes the server down for d.
func (f *fleet) outage(ctx context.Context, d time.Duration) error {
	f.say("all servers are down for %v", d)
	f.zoo.Leader().Down()
	defer f.say("the servers are back")
	defer f.zoo.Leader().Up()
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// until waits for a condition.
func (f *fleet) until(ctx context.Context, cond func() (bool, error)) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		if ok, err := cond(); ok || err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// close kills what still runs, and ends the server.
func (f *fleet) close() error {
	for _, h := range f.hosts {
		if err := h.cmd.Process.Kill(); err == nil {
			<-h.ended
		}
	}
	return f.zoo.Close()
}

// lines lets several processes write to one place.
type lines struct {
	mu sync.Mutex
	w  io.Writer
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(b)
}
