// Command approvals shows the most common use of a distributed lock: several instances of one HTTP service, and an
// update that must happen once at a time for each key.
//
// Four processes serve POST /approvals/{key} behind a proxy. Each update takes the key's lock, through
// lockhttp.Middleware, reads the key's row, takes a moment, and writes it back. Clients ask for 2,000 updates of 20
// keys. Meanwhile one instance is killed, and another one is frozen until its session is over and others have done its
// work; then it goes on and tries to write. In the end the counters must say exactly how many updates were accepted.
// Then the same, undisturbed, without the lock.
//
//	go run .                                   # in this directory; with a ZooKeeper and a database of its own
//	go run . -zk localhost:2181                # on an ensemble
//	go run . -db postgres://localhost/postgres # in a PostgreSQL database; its tables are removed in the end
//
// It needs a Unix, because it stops a process. It ends with 0 if the books balance, with 1 if they don't or something
// failed, with 2 for a bad command line and with 130 after Ctrl-C or SIGTERM.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"
)

const (
	// sessionTimeout is how long a crash keeps its locks taken. It is short to keep the demonstration short; the
	// library's default is 10 s.
	sessionTimeout = 2 * time.Second
	// tick is the in-process server's; a server grants no session timeout below two of its ticks.
	tick = 500 * time.Millisecond
	// patience bounds starting, connecting and cleaning up.
	patience = 30 * time.Second
)

const (
	exitBalanced    = 0
	exitFailed      = 1
	exitUsage       = 2
	exitInterrupted = 130
)

func main() {
	if text := os.Getenv(instanceEnv); text != "" {
		signal.Ignore(os.Interrupt, syscall.SIGTERM) // which may go to the whole group; the parent ends its instances itself
		os.Exit(instanceMain(text, os.Stdin, os.Stdout))
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second Ctrl-C ends the program at once
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// config is the command line.
type config struct {
	connect   string
	database  string
	updates   int
	keys      int
	clients   int
	instances int
	pause     time.Duration
}

func parse(args []string, stderr io.Writer) (config, error) {
	var c config
	flags := flag.NewFlagSet("approvals", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.StringVar(&c.connect, "zk", "", "ensemble to use, `host:port,…`; without it, a server inside this program")
	flags.StringVar(&c.database, "db", "", "PostgreSQL database to use, `postgres://…`; without it, SQLite in a temporary directory")
	flags.IntVar(&c.updates, "updates", 2000, "updates to ask for, 40 to 100000")
	flags.IntVar(&c.keys, "keys", 20, "keys to spread them over, 1 to 100")
	flags.IntVar(&c.clients, "clients", 40, "clients that ask at the same time, 1 to 400")
	flags.IntVar(&c.instances, "instances", 4, "instances of the service, 3 to 20; one is killed and one is frozen")
	flags.DurationVar(&c.pause, "pause", 3*time.Millisecond, "time between reading a row and writing it, on average")
	if err := flags.Parse(args); err != nil {
		return c, err // flags has said why
	}
	var err error
	switch {
	case flags.NArg() > 0:
		err = fmt.Errorf("%q: takes flags only", flags.Arg(0))
	case c.database != "" && !isPostgres(c.database):
		err = fmt.Errorf("-db %q: want postgres://…, or nothing for SQLite", c.database)
	case c.updates < 40 || c.updates > 100_000:
		err = fmt.Errorf("-updates %d: want 40 to 100000", c.updates)
	case c.keys < 1 || c.keys > 100:
		err = fmt.Errorf("-keys %d: want 1 to 100", c.keys)
	case c.clients < 1 || c.clients > 400:
		err = fmt.Errorf("-clients %d: want 1 to 400", c.clients)
	case c.instances < 3 || c.instances > 20:
		err = fmt.Errorf("-instances %d: want 3 to 20", c.instances)
	case c.pause < 0 || c.pause > time.Second:
		err = fmt.Errorf("-pause %v: want 0 to 1s", c.pause)
	}
	if err != nil {
		fmt.Fprintln(stderr, "approvals:", err)
	}
	return c, err
}

// run is main with its surroundings as arguments; it returns the exit code.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	c, err := parse(args, stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return exitBalanced
	case err != nil:
		return exitUsage
	}
	balanced, err := demonstrate(ctx, c, stdout)
	switch {
	case ctx.Err() != nil:
		fmt.Fprintln(stderr, "approvals: interrupted")
		return exitInterrupted
	case err != nil:
		fmt.Fprintln(stderr, "approvals:", err)
		return exitFailed
	case !balanced:
		return exitFailed
	}
	return exitBalanced
}

// demonstrate does both runs and reports whether their books balance.
func demonstrate(ctx context.Context, c config, out io.Writer) (balanced bool, err error) {
	s, err := openStage(ctx, c)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, s.close(ctx)) }()
	ensemble, database := "the ensemble at "+s.connect, "PostgreSQL"
	if s.server != nil {
		ensemble = "a ZooKeeper server inside this program (-zk names another)"
	}
	if s.dir != "" {
		database = "SQLite in " + s.dir + " (-db names another)"
	}
	fmt.Fprintf(out, "Locks: %s, below %s.\nSettings: %s.\n", ensemble, s.root, database)

	d := &drive{config: c, stage: s, orders: orders{Connect: s.connect, Root: s.root, Timeout: sessionTimeout,
		Database: s.database, Pause: c.pause, Lock: true}}
	fmt.Fprintf(out, "\n== Every update under its key's lock\n")
	d.log = &timeline{out: out, began: time.Now()}
	with, err := d.run(ctx, "locked")
	if err != nil {
		return false, err
	}
	fmt.Fprintf(out, "\n== The same without the lock, and with nothing else going wrong\n")
	d.orders.Lock = false
	d.log = &timeline{out: out, began: time.Now()}
	without, err := d.run(ctx, "unlocked")
	if err != nil {
		return false, err
	}
	fmt.Fprintf(out, "\n== Result\n")
	table(out, with, without)
	balanced = with.balanced() && without.balanced()
	fmt.Fprintln(out, map[bool]string{true: "The books balance.", false: "THE BOOKS DO NOT BALANCE."}[balanced])
	return balanced, nil
}
