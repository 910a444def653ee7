package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/zklock/locker/examples/internal/fleet"
)

// show runs four workers as processes, and subjects them to the faults of processes.
type show struct {
	worker
	orders int
	outage time.Duration
	out    io.Writer
	self   string // the program to run as worker; empty: this one

	fleet *fleet.Fleet
	store *store
}

// run returns nil when every order has gone through every stage, through none twice.
func (s show) run(ctx context.Context) (err error) {
	if s.database == "" {
		dir, err := os.MkdirTemp("", "orders-")
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir)
		s.database = filepath.Join(dir, "orders.db")
	}
	if s.store, err = openStore(s.database); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.store.close()) }()
	if err := s.store.fill(ctx, s.orders); err != nil {
		return err
	}
	s.fleet, err = fleet.New(s.self, s.timeout/4, s.out, "-session-timeout", s.timeout.String(), "-database", s.database)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.fleet.Close()) }()
	for range 4 {
		if _, err := s.fleet.Start(); err != nil {
			return err
		}
	}
	began := time.Now()
	if err := s.hurt(ctx); err != nil {
		return err
	}
	if err := s.fleet.Join(ctx); err != nil {
		return err
	}
	n, err := s.store.orders(ctx)
	if err != nil {
		return err
	}
	err = s.store.check(ctx)
	fmt.Fprintf(s.out, "%d orders, %d stages each, in %.0f s; none lost, none twice, tokens in order: %v\n",
		n, stages, time.Since(began).Seconds(), err == nil)
	return err
}

// rest is how many orders are kept open, so that the work does not end before all faults have happened.
const rest = 500

// until waits for cond, and provides work meanwhile.
func (s show) until(ctx context.Context, cond func() (bool, error)) error {
	return s.fleet.Until(ctx, s.busily(ctx, cond))
}

func (s show) busily(ctx context.Context, cond func() (bool, error)) func() (bool, error) {
	return func() (bool, error) {
		if err := s.store.open(ctx, rest); err != nil {
			return false, err
		}
		return cond()
	}
}

// hurt makes the faults, each when another sixth of the work is done.
func (s show) hurt(ctx context.Context) error {
	for i, step := range []func() error{
		func() error { return s.working(ctx, s.fleet.Replace) },
		func() error { return s.fleet.Outage(ctx, s.outage) },
		func() error { return s.working(ctx, func(name string) error { return s.freeze(ctx, name) }) },
		func() error { return s.working(ctx, s.fleet.Leave) },
	} {
		err := s.until(ctx, func() (bool, error) {
			n, err := s.store.progress(ctx)
			return n >= (i+1)*s.orders*stages/6, err
		})
		if err != nil {
			return err
		}
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// working calls fn with a worker that is in the middle of an order.
func (s show) working(ctx context.Context, fn func(name string) error) error {
	var name string
	err := s.until(ctx, func() (bool, error) {
		for _, n := range s.fleet.Names() {
			if _, ok, err := s.store.at(ctx, n); ok || err != nil {
				name = n
				return ok, err
			}
		}
		return false, nil
	})
	if err != nil {
		return err
	}
	return fn(name)
}

// errInTransaction says that a worker was stopped in the middle of a transaction, which locks all others out of SQLite.
var errInTransaction = errors.New("stopped in a transaction")

// freeze stops a worker until others have overtaken it; if it is stopped in a transaction, freeze tries again.
func (s show) freeze(ctx context.Context, name string) error {
	for {
		passed, looked := s.busily(ctx, s.passedBy(ctx, name)), false
		err := s.fleet.Freeze(ctx, name, func() (bool, error) {
			if !looked && !writable(ctx, s.database) {
				return false, errInTransaction
			}
			looked = true
			return passed()
		})
		if !errors.Is(err, errInTransaction) {
			return err
		}
		s.fleet.Say("it held the database's lock: once more")
	}
}

// passedBy is the condition that the ensemble has freed a worker's locks, and that another worker has finished its
// order, if it was stopped in one.
func (s show) passedBy(ctx context.Context, name string) func() (bool, error) {
	until := time.Now().Add(2 * s.timeout)
	id, in, err := s.store.at(ctx, name)
	return func() (bool, error) {
		if err != nil || !in {
			return time.Now().After(until), err
		}
		var stage int
		err := s.store.db.QueryRowContext(ctx, `SELECT stage FROM orders WHERE id = ?`, id).Scan(&stage)
		return stage == stages && time.Now().After(until), err
	}
}
