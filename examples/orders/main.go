// Orders: 10,000 orders, each with a lock of its own, that several processes take through three stages, in a database that
// refuses a holder that is late.
//
// Without flags it shows itself: a ZooKeeper server in this process, four workers as processes of their own, and SQLite.
// While they work, a worker is killed, all servers go away for 20 s, a worker is stopped for longer than its session lasts,
// and one is told to leave. In the end every order must have gone through every stage, through none twice, under tokens that
// do not fall.
//
//	go -C examples/orders run .
//
// With -name it is one worker.
package main

import (
	"flag"
	"os"
	"time"

	"github.com/zklock/locker/examples/internal/fleet"
)

func main() {
	var w worker
	var s show
	flag.StringVar(&w.zk, "zk", "", "with -name: connect string of the ensemble")
	flag.StringVar(&w.name, "name", "", "be one worker of this name; empty: show four of them")
	flag.StringVar(&w.database, "database", "", "the database's file; empty: a temporary one")
	flag.DurationVar(&w.timeout, "session-timeout", 4*time.Second, "how long the ensemble waits for a silent worker")
	flag.IntVar(&s.orders, "orders", 10_000, "how many orders the show has")
	flag.DurationVar(&s.outage, "outage", 20*time.Second, "how long all servers are down in the show")
	flag.Parse()

	s.worker, s.out = w, os.Stdout
	fleet.Main(w.name, w.run, s.run)
}
