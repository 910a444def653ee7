// Command bench measures this library beside other locks: raw writes as the floor, go-zookeeper's zk.Lock, Curator's
// InterProcessMutex, Kazoo's Lock and etcd's concurrency.Mutex, in one run at the same servers, by turns.
package main

import (
	"context"
	"embed"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/zklock/locker/internal/bench/load"
	"github.com/zklock/locker/internal/bench/match"
	"github.com/zklock/locker/internal/bench/peers"
	"github.com/zklock/locker/internal/bench/report"
	"github.com/zklock/locker/internal/bench/servers"
)

//go:embed testdata/Driver.java testdata/driver.py
var sources embed.FS

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// flags are the command line.
type flags struct {
	quick, md                 bool
	only, zk, etcd, svg, json string
	from, contestant, disk    string
	rounds                    int
	duration                  time.Duration
}

func parse(args []string) (f flags, err error) {
	set := flag.NewFlagSet("bench", flag.ContinueOnError)
	set.BoolVar(&f.quick, "quick", false, "one short round of everything, in two minutes: to see that it works; the figures are rough")
	set.StringVar(&f.only, "only", "", "contestants, settings and extras, by name, separated by commas: "+match.Names())
	set.IntVar(&f.rounds, "rounds", 5, "how often everything is measured; the tables show medians")
	set.DurationVar(&f.duration, "duration", 2*time.Second, "of each measurement")
	set.StringVar(&f.zk, "zk", "", "ZooKeeper servers to use, host:port,…; started otherwise")
	set.StringVar(&f.etcd, "etcd", "", "etcd servers to use, host:port,…; started otherwise")
	set.StringVar(&f.disk, "disk", "", "have the servers keep their data in this directory, and wait for its disk with every write (forceSync); in memory otherwise")
	set.BoolVar(&f.md, "md", false, "print Markdown")
	set.StringVar(&f.svg, "svg", "", "draw the rates into this file")
	set.StringVar(&f.json, "json", "", "write everything that was measured into this file")
	set.StringVar(&f.from, "from", "", "measure nothing: print and draw what -json wrote into this file")
	set.StringVar(&f.contestant, "contestant", "", "for the benchmark's own use: be this contestant, commands on standard input")
	if err := set.Parse(args); err != nil {
		return f, err
	}
	if set.NArg() > 0 {
		return f, fmt.Errorf("unexpected argument %q", set.Arg(0))
	}
	if f.rounds < 1 || f.duration < 100*time.Millisecond {
		return f, fmt.Errorf("-rounds %d -duration %v: at least one round of 100ms is needed", f.rounds, f.duration)
	}
	return f, nil
}

func run(ctx context.Context, args []string) error {
	f, err := parse(args)
	if err != nil {
		return err
	}
	if f.contestant != "" {
		peer, ok := peers.All[f.contestant]
		if !ok {
			return fmt.Errorf("-contestant: there is none called %q", f.contestant)
		}
		return load.Serve(os.Stdin, os.Stdout, peer)
	}
	r, interrupted := result(ctx, f, args)
	if r == nil {
		return interrupted
	}
	return errors.Join(show(r, f), interrupted)
}

// show prints, draws and writes the result, also one that was interrupted.
func show(r *match.Result, f flags) error {
	if f.json != "" {
		if err := report.WriteJSON(f.json, r); err != nil {
			return err
		}
	}
	if f.svg != "" {
		if err := os.WriteFile(f.svg, report.SVG(r), 0o644); err != nil {
			return err
		}
	}
	_, err := fmt.Print(report.Text(r, f.md))
	return err
}

// result measures, or reads what was measured.
func result(ctx context.Context, f flags, args []string) (*match.Result, error) {
	if f.from != "" {
		return report.ReadJSON(f.from)
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	began := time.Now()
	c := match.Config{
		Self: self, Source: func(name string) ([]byte, error) { return sources.ReadFile(match.Sources + "/" + name) },
		Command: strings.TrimSpace("bench " + strings.Join(args, " ")), Only: split(f.only), Rounds: f.rounds, Run: f.duration,
		Warm: 500 * time.Millisecond, First: 10 * time.Second, Expiry: 4 * time.Second,
		Servers: servers.Config{ZooKeeper: split(f.zk), Etcd: split(f.etcd), StartEtcd: servers.EtcdInstalled(), Nodes: 3, Disk: f.disk},
		Log: func(format string, args ...any) {
			fmt.Fprintf(os.Stderr, "%5.0fs "+format+"\n", append([]any{time.Since(began).Seconds()}, args...)...)
		},
	}
	if f.quick {
		c.Rounds, c.Run, c.Warm, c.First, c.Expiry, c.Brief = 1, 300*time.Millisecond, 100*time.Millisecond, time.Second, 2*time.Second, true
	}
	return match.Run(ctx, c)
}

func split(s string) []string {
	if s == "" {
		return nil
	}
	return strings.Split(s, ",")
}
