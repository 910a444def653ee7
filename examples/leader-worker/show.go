package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/zklock/locker/zklock"
)

// show runs three workers as processes, and subjects them to the faults of processes.
type show struct {
	worker
	outage time.Duration
	out    io.Writer
	self   string // the program to run as worker; empty: this one

	fleet *fleet
	e     *zklock.Election // for observing it from outside
}

// run returns nil when every piece of work was done once, by leaders whose tokens grow.
func (s show) run(ctx context.Context) (err error) {
	dir, err := os.MkdirTemp("", "leader-worker-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	s.journal = journal(filepath.Join(dir, "journal"))
	s.fleet, err = newFleet(s.self, s.timeout/4, s.out, "-session-timeout", s.timeout.String(),
		"-journal", string(s.journal))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.fleet.close()) }()
	c, err := zklock.Dial(ctx, s.fleet.addr())
	if err != nil {
		return err
	}
	defer c.Close()
	s.e = c.Election(partition)
	for range 3 {
		if _, err := s.fleet.start(0); err != nil {
			return err
		}
	}
	for _, step := range []func() error{
		func() error { return s.leader(ctx, s.fleet.instead(s.fleet.leave)) },
		func() error { return s.leader(ctx, s.fleet.instead(s.fleet.kill)) },
		func() error { return s.fleet.outage(ctx, s.outage) },
		func() error {
			return s.leader(ctx, func(name string) error {
				return s.fleet.freeze(ctx, name, s.others(name))
			})
		},
	} {
		if err := s.fleet.until(ctx, s.more(5)); err != nil {
			return err
		}
		if err := step(); err != nil {
			return err
		}
	}
	if err := s.fleet.until(ctx, s.more(5)); err != nil {
		return err
	}
	done, err := s.journal.check("done", 1)
	fmt.Fprintf(s.out, "%d pieces of work, each done once: %v\n", done, err == nil)
	return err
}

// more is the condition that n more pieces are done.
func (s show) more(n int) func() (bool, error) {
	from := -1
	return func() (bool, error) {
		last, _, err := s.journal.last("done")
		if from < 0 {
			from = last.Item
		}
		return last.Item >= from+n, err
	}
}

// others is the condition that a worker other than name has worked on.
func (s show) others(name string) func() (bool, error) {
	more := s.more(5)
	return func() (bool, error) {
		last, _, err := s.journal.last("done")
		if err != nil || last.Host == name {
			return false, err
		}
		return more()
	}
}

// leader calls fn with the name of the leader, and reports how long it took until the next one led.
func (s show) leader(ctx context.Context, fn func(name string) error) error {
	old, err := s.e.Leader(ctx)
	if err != nil {
		return err
	}
	began := time.Now()
	if err := fn(string(old.Value)); err != nil {
		return err
	}
	for now, err := range s.e.Observe(ctx) {
		switch {
		case errors.Is(err, zklock.ErrNoLeader):
		case err != nil:
			return err
		case now.Token < old.Token:
			return fmt.Errorf("token %d after %d: tokens must grow", now.Token, old.Token)
		case now.Token > old.Token:
			s.fleet.say("%s leads, %.1f s later", now.Value, time.Since(began).Seconds())
			return nil
		}
	}
	return ctx.Err()
}
