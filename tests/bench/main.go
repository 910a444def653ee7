// Command bench measures this library beside other locks: raw writes as the floor, go-zookeeper's
// zk.Lock, Curator's InterProcessMutex, Kazoo's Lock and etcd's concurrency.Mutex, in one run at
// the same servers, by turns.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/zklock/locker/tests/bench/load"
	"github.com/zklock/locker/tests/bench/match"
	"github.com/zklock/locker/tests/bench/peers"
	"github.com/zklock/locker/tests/bench/report"
	"github.com/zklock/locker/tests/bench/servers"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	set := flag.NewFlagSet("bench", flag.ContinueOnError)
	began := time.Now()
	c := match.Config{Warm: 500 * time.Millisecond, First: 20 * time.Second,
		Servers: servers.Config{Nodes: 3},
		Log: func(format string, args ...any) {
			fmt.Fprintf(os.Stderr, "%5.0fs "+format+"\n",
				append([]any{time.Since(began).Seconds()}, args...)...)
		},
	}
	quick := set.Bool("quick", false,
		"one short round of everything: to see that it works; the figures are rough")
	only := set.String("only", "",
		"contestants and settings, by name, separated by commas: "+match.Names())
	svg := set.String("svg", "", "draw the rates into this file")
	contestant := set.String("contestant", "",
		"for the benchmark's own use: be this contestant, commands on standard input")
	set.IntVar(&c.Rounds, "rounds", 5, "how often everything is measured; the table shows medians")
	set.DurationVar(&c.Run, "duration", 2*time.Second, "of each measurement")
	set.StringVar(&c.Servers.Disk, "disk", "",
		"have the servers keep their data in this directory, and wait for its disk with every write (forceSync); in memory otherwise")
	if err := set.Parse(args); err != nil {
		return err
	}
	if set.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", set.Arg(0))
	}
	if c.Rounds < 1 || c.Run < 100*time.Millisecond {
		return fmt.Errorf("-rounds %d -duration %v: at least one round of 100ms is needed",
			c.Rounds, c.Run)
	}
	if *contestant != "" {
		peer, ok := peers.All[*contestant]
		if !ok {
			return fmt.Errorf("-contestant: there is none called %q", *contestant)
		}
		return load.Serve(os.Stdin, os.Stdout, peer)
	}
	if *only != "" {
		c.Only = strings.Split(*only, ",")
	}
	if *quick {
		c.Rounds, c.Run = 1, 300*time.Millisecond
		c.Warm, c.First = 100*time.Millisecond, time.Second
	}
	r, err := match.Run(ctx, c)
	if r == nil {
		return err
	}
	fmt.Print(report.Text(r)) // also what was measured until an interruption
	if *svg != "" {
		err = errors.Join(err, os.WriteFile(*svg, report.SVG(r), 0o644))
	}
	return err
}
