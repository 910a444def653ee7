// Leader-worker: several processes, one of which works on a partition at a time, and hands it over.
//
// Without flags it shows itself: a ZooKeeper server in this process, and three workers as processes
// of their own. Whichever leads is told to leave: it finishes the piece that it is at, and resigns,
// so that the next in line leads a moment later. Then a leader is killed, all servers go away for
// 20 s, and a leader is stopped for longer than its session lasts: the next in line leads as soon
// as the ensemble has noticed. In the end every piece must have been done, none twice, under tokens
// that grow.
//
//	go run ./examples/leader-worker
//
// With -name it is one worker, to be run on as many machines as there are:
//
//	leader-worker -zk zk1:2181,zk2:2181,zk3:2181 -name $(hostname) -journal /shared/journal
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"
)

func main() {
	var w worker
	var s show
	flag.StringVar(&w.zk, "zk", "", "with -name: connect string of the ensemble")
	flag.StringVar(&w.name, "name", "", "be one worker of this name; empty: show three of them")
	flag.IntVar(&w.rank, "rank", 0,
		"the worker's release: when the leader leaves, the newest in line leads next")
	flag.DurationVar(&w.timeout, "session-timeout", 2*time.Second,
		"how long the ensemble waits for a silent worker")
	file := flag.String("journal", "", "the file into which the work is written")
	flag.DurationVar(&s.outage, "outage", 20*time.Second,
		"how long all servers are down in the show")
	deaf := flag.Bool("deaf", false, "go on when told to leave, as no worker should")
	flag.Parse()
	w.journal = journal(*file)
	s.worker, s.out = w, os.Stdout

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if *deaf {
		ctx = context.WithoutCancel(ctx)
	}
	run := s.run
	if w.name != "" {
		run = w.run
	}
	if err := run(ctx); err != nil && ctx.Err() == nil { // that a signal ended it is no failure
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
