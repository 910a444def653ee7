// Fleet-cron: the same job on every host's clock, which runs once a period in the whole fleet.
//
// Without flags it shows itself: a ZooKeeper server in this process, and three hosts as processes of their own whose clocks
// differ. While they work, the one that runs the job is killed, all servers go away for 20 s, the one that runs the job is
// stopped for longer than its session lasts, and one is told to leave. In the end every period's job must have been done,
// none twice, under tokens that grow.
//
//	go run ./examples/fleet-cron
//
// With -name it is one host.
package main

import (
	"flag"
	"os"
	"time"

	"github.com/zklock/locker/examples/internal/fleet"
)

func main() {
	var h host
	var s show
	flag.StringVar(&h.zk, "zk", "", "with -name: connect string of the ensemble")
	flag.StringVar(&h.name, "name", "", "be one host of this name; empty: show three of them")
	flag.DurationVar(&h.timeout, "session-timeout", 2*time.Second, "how long the ensemble waits for a silent host")
	flag.DurationVar(&h.period, "period", 500*time.Millisecond, "how often the job runs")
	journal := flag.String("journal", "", "the file into which the job writes what it did")
	flag.DurationVar(&s.outage, "outage", 20*time.Second, "how long all servers are down in the show")
	flag.Parse()
	h.journal = fleet.Journal(*journal)

	s.host, s.out = h, os.Stdout
	fleet.Main(h.name, h.run, s.run)
}
