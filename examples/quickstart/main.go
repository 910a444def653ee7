// Command quickstart shows the purpose of a lock. Several workers, each a ZooKeeper client of its
// own, increment one counter: read it, take a moment, write it back. With the lock every increment
// arrives, although one worker is cut off from the network while it holds the lock. Without the
// lock most increments are lost.
//
//	go run ./examples/quickstart                                  # on a server inside the program
//	go run ./examples/quickstart -zk localhost:2181               # on an ensemble
//	go run ./examples/quickstart -workers 8 -increments 2
//
// It ends with 0 if the number counted under the lock is exact, with 1 if it is not or something
// failed, with 2 for a bad command line and with 130 after Ctrl-C.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"time"

	"github.com/zklock/locker/zklock"
	"github.com/zklock/locker/zktest"
)

const (
	// sessionTimeout is how long the ensemble waits for a silent client before it frees its lock.
	// It is short to keep the wait for the recovery short; the library's default is 10 s.
	sessionTimeout = 2 * time.Second
	// tick is the in-process server's; a server grants no session timeout below two of its ticks.
	tick = 500 * time.Millisecond
	// patience bounds connecting, and the clean-up at the end.
	patience = 10 * time.Second
)

const (
	exitExact       = 0
	exitFailed      = 1
	exitUsage       = 2
	exitInterrupted = 130
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	context.AfterFunc(ctx, stop) // a second Ctrl-C ends the program at once
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// config is the command line.
type config struct {
	connect    string
	workers    int
	increments int // of each worker
	pause      time.Duration
}

func (c config) total() int { return c.workers * c.increments }

func parse(args []string, stderr io.Writer) (config, error) {
	var c config
	flags := flag.NewFlagSet("quickstart", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.StringVar(&c.connect, "zk", "",
		"ensemble to use, `host:port,…`; without it, a server inside this program")
	flags.IntVar(&c.workers, "workers", 4, "number of workers, 2 to 100; one of them will crash")
	flags.IntVar(&c.increments, "increments", 4,
		"increments that each worker is to make, 1 to 1000")
	flags.DurationVar(&c.pause, "pause", 50*time.Millisecond,
		"time between reading the counter and writing it")
	if err := flags.Parse(args); err != nil {
		return c, err // flags has said why
	}
	var err error
	switch {
	case flags.NArg() > 0:
		err = fmt.Errorf("%q: takes flags only", flags.Arg(0))
	case c.workers < 2 || c.workers > 100:
		err = fmt.Errorf("-workers %d: want 2 to 100", c.workers)
	case c.increments < 1 || c.increments > 1000:
		err = fmt.Errorf("-increments %d: want 1 to 1000", c.increments)
	case c.pause < 0 || c.pause > time.Minute:
		err = fmt.Errorf("-pause %v: want 0 to 1m", c.pause)
	}
	if err != nil {
		fmt.Fprintln(stderr, "quickstart:", err)
	}
	return c, err
}

// run is main with its surroundings as arguments; it returns the exit code.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	c, err := parse(args, stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return exitExact
	case err != nil:
		return exitUsage
	}
	exact, err := demonstrate(ctx, c, stdout)
	switch {
	case ctx.Err() != nil:
		fmt.Fprintln(stderr, "quickstart: interrupted")
		if errors.Is(err, errTidy) {
			fmt.Fprintln(stderr, "quickstart:", err)
		}
		return exitInterrupted
	case err != nil:
		fmt.Fprintln(stderr, "quickstart:", err)
		return exitFailed
	case !exact:
		return exitFailed
	}
	return exitExact
}

// demonstrate does both runs and reports whether the one with the lock counted exactly.
func demonstrate(ctx context.Context, c config, out io.Writer) (exact bool, err error) {
	opts := []zklock.Option{zklock.WithSessionTimeout(sessionTimeout)}
	connect := c.connect
	if connect == "" {
		server, err := zktest.Start(zktest.WithTick(tick))
		if err != nil {
			return false, err
		}
		defer func() { err = errors.Join(err, server.Close()) }()
		connect = server.Addr()
		fmt.Fprintf(out, "No -zk given: using a ZooKeeper server inside this program, at %s.\n",
			connect)
	} else {
		fmt.Fprintf(out, "Using the ensemble at %s; waiting up to %v for it.\n", connect, patience)
	}

	s, err := openStage(ctx, connect, opts)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, s.close(ctx)) }()
	fmt.Fprintf(out, "Its znodes live below %s and are removed at the end.\n", s.root)
	fmt.Fprintf(out, "%d workers, each a client with its own session, count to %d together.\n",
		c.workers, c.total())
	fmt.Fprintf(out,
		"An increment is: read the counter, wait %v, write it back. The session timeout is %v.\n", c.pause, s.timeout)

	fmt.Fprintf(out, "\n== With the lock\n")
	with, err := s.count(ctx, c, true, out)
	if err != nil {
		return false, err
	}
	fmt.Fprintf(out, "\n== The same without the lock (and without a crash)\n")
	without, err := s.count(ctx, c, false, out)
	if err != nil {
		return false, err
	}

	fmt.Fprintf(out, "\n== Result\n")
	fmt.Fprintf(out, "with the lock     %3d increments, counter %3d: %s\n", c.total(), with,
		verdict(c.total(), with))
	fmt.Fprintf(out, "without the lock  %3d increments, counter %3d: %s\n", c.total(), without,
		verdict(c.total(), without))
	return with == c.total(), nil
}

func verdict(want, got int) string {
	switch {
	case got == want:
		return "exact"
	case got < want:
		return fmt.Sprintf("%d lost", want-got)
	}
	return fmt.Sprintf("%d too many", got-want)
}
