// Leader-worker: several processes, one of which works on a partition at a time.
//
// Without flags it shows itself: it starts a ZooKeeper server in its own process and three workers as processes of
// their own, and kills (SIGKILL) whichever leads, twice. The next in line takes over as soon as the ensemble has
// noticed. Watch the tokens grow: they are what a store would use to refuse a late write of the one that was killed.
//
//	go run ./examples/leader-worker
//
// With -name it is one worker, to be run on as many machines as there are:
//
//	leader-worker -zk zk1:2181,zk2:2181,zk3:2181 -name $(hostname)
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
	zk := flag.String("zk", "", "connect string of the ensemble; empty: a server in this process")
	name := flag.String("name", "", "be one worker of this name; empty: show three of them")
	timeout := flag.Duration("session-timeout", 2*time.Second, "how long the ensemble waits for a silent worker")
	kills := flag.Int("kills", 2, "how many leaders the show kills")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var err error
	if *name != "" {
		w := worker{name: *name, timeout: *timeout, out: os.Stdout}
		err = w.run(ctx, *zk)
	} else {
		s := show{zk: *zk, timeout: *timeout, kills: *kills, out: os.Stdout}
		err = s.run(ctx)
	}
	if err != nil && ctx.Err() == nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
