package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/zklock/locker/examples/internal/fleet"
)

// show runs three hosts as processes, and subjects them to the faults of hosts.
type show struct {
	host
	outage time.Duration
	out    io.Writer
	self   string // the program to run as host; empty: this one

	fleet *fleet.Fleet
}

// hosts is how many there are.
const hosts = 3

// run returns nil when every period's job was done once.
func (s show) run(ctx context.Context) (err error) {
	dir, err := os.MkdirTemp("", "fleet-cron-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	s.journal = fleet.Journal(filepath.Join(dir, "journal"))
	s.fleet, err = fleet.New(s.self, s.timeout/4, s.out, "-session-timeout", s.timeout.String(), "-period", s.period.String(), "-journal", string(s.journal))
	if err != nil {
		return err
	}
	defer func() {
		if closeErr := s.fleet.Close(); err == nil {
			err = closeErr
		}
	}()
	for range hosts {
		if _, err := s.fleet.Start(); err != nil {
			return err
		}
	}
	if err := s.hurt(ctx); err != nil {
		return err
	}
	all, err := s.journal.Read()
	if err != nil {
		return err
	}
	done, err := s.journal.Check("done", all[0].Item)
	fmt.Fprintf(s.out, "%d periods, each job done once: %v\n", done, err == nil)
	return err
}

// hurt makes the faults, one after the other, each while the fleet works.
func (s show) hurt(ctx context.Context) error {
	for _, step := range []func() error{
		func() error { return s.worker(ctx, s.fleet.Replace) },
		func() error { return s.fleet.Outage(ctx, s.outage) },
		func() error {
			return s.worker(ctx, func(name string) error { return s.fleet.Freeze(ctx, name, s.more(3)) })
		},
		func() error { return s.worker(ctx, s.fleet.Leave) },
	} {
		if err := s.fleet.Until(ctx, s.more(4)); err != nil {
			return err
		}
		if err := step(); err != nil {
			return err
		}
	}
	return s.fleet.Until(ctx, s.more(4))
}

// more is the condition that n more jobs are done.
func (s show) more(n int) func() (bool, error) {
	from := -1
	return func() (bool, error) {
		last, ok, err := s.journal.Last("done")
		if ok && from < 0 {
			from = last.Item
		}
		return ok && last.Item >= from+n, err
	}
}

// worker calls fn with a host that is in the middle of the job.
func (s show) worker(ctx context.Context, fn func(name string) error) error {
	name, seen := "", -1
	err := s.fleet.Until(ctx, func() (bool, error) {
		all, err := s.journal.Read()
		if err != nil || len(all) == 0 {
			return false, err
		}
		last := all[len(all)-1]
		if seen < 0 {
			seen = len(all)
		}
		name = last.Host
		return last.What == "begun" && len(all) > seen, nil // just now
	})
	if err != nil {
		return err
	}
	return fn(name)
}
