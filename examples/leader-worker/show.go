package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"time"

	"github.com/zklock/locker/zklock"
	"github.com/zklock/locker/zktest"
)

// show runs three workers as processes and kills those that lead.
type show struct {
	zk      string
	timeout time.Duration
	kills   int
	out     io.Writer
	self    string // the program to run as worker; empty: this one
}

// run returns nil when every kill was followed by another worker's term with a greater token.
func (s show) run(ctx context.Context) error {
	out := &lines{w: s.out}
	zk := s.zk
	if zk == "" {
		srv, err := zktest.Start(zktest.WithTick(s.timeout / 4))
		if err != nil {
			return err
		}
		defer srv.Close()
		zk = srv.Addr()
		fmt.Fprintln(out, "a ZooKeeper server in this process listens on", zk)
	}
	c, err := zklock.Dial(ctx, zk)
	if err != nil {
		return err
	}
	defer c.Close()

	ctx, stop := context.WithCancel(ctx)
	workers := map[string]*exec.Cmd{}
	defer func() {
		stop() // interrupts the workers that are left
		for _, w := range workers {
			if err := w.Wait(); err != nil && w.ProcessState == nil {
				fmt.Fprintln(out, "waiting for a worker:", err)
			}
		}
	}()
	for _, name := range []string{"ann", "bob", "cyd"} {
		if workers[name], err = s.start(ctx, zk, name, out); err != nil {
			return err
		}
	}
	return s.watch(ctx, c, workers, out)
}

// watch follows the election as anybody could, and kills each leader after a while.
func (s show) watch(ctx context.Context, c *zklock.Client, workers map[string]*exec.Cmd, out io.Writer) error {
	var last zklock.Token
	var killed time.Time
	left := s.kills
	for leader, err := range c.Election(partition).Observe(ctx) {
		switch {
		case errors.Is(err, zklock.ErrNoLeader):
			fmt.Fprintln(out, "-- nobody leads")
			continue
		case err != nil:
			return err
		case leader.Token <= last:
			return fmt.Errorf("token %d after %d: tokens must grow", leader.Token, last)
		}
		last = leader.Token
		if !killed.IsZero() {
			fmt.Fprintf(out, "-- %s took over %.1f s after the kill\n", leader.Value, time.Since(killed).Seconds())
		}
		select {
		case <-time.After(4 * pace): // it works
		case <-ctx.Done():
			return ctx.Err()
		}
		if left == 0 {
			return nil
		}
		left--
		victim := workers[string(leader.Value)]
		if victim == nil {
			return fmt.Errorf("%q leads, and is none of ours", leader.Value)
		}
		fmt.Fprintf(out, "-- %s is killed\n", leader.Value)
		killed = time.Now()
		if err := victim.Process.Kill(); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// start runs this program as one worker, which ends with ctx.
func (s show) start(ctx context.Context, zk, name string, out io.Writer) (*exec.Cmd, error) {
	self := s.self
	if self == "" {
		var err error
		if self, err = os.Executable(); err != nil {
			return nil, err
		}
	}
	w := exec.CommandContext(ctx, self, "-zk", zk, "-name", name, "-session-timeout", s.timeout.String())
	w.Cancel = func() error { return w.Process.Signal(os.Interrupt) }
	w.WaitDelay = 5 * time.Second
	w.Stdout, w.Stderr = out, out
	return w, w.Start()
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
