// Package peers holds the contestants that are Go programs: the floor, this library in its modes, and the locks of
// go-zookeeper and etcd. Those of Curator and Kazoo are programs below testdata.
package peers

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/zklock/locker/internal/bench/load"
)

// All holds the contestants by their names.
var All = map[string]load.Peer{
	"raw":         driver{locker: newRaw},
	"raw-session": rawSession{},
	"raw-list":    rawSession{list: true},
	"zklock":      ours{},
	"local":       ours{local: true},
	"zk.Lock":     driver{locker: newDriverLock},
	"raw-etcd":    etcd{&traffic{}, true},
	"etcd":        etcd{&traffic{}, false},
}

// data is what every contestant that can do so stores in its znodes: as long as zklock's default.
var data = identity()

func identity() []byte {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return fmt.Appendf(nil, `{"host":%q,"pid":%d}`, host, os.Getpid())
}

// connected waits for the beginning of a session.
func connected(ctx context.Context, ready func() bool) error {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !ready() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("waiting for a session: %w", ctx.Err())
		}
	}
	return nil
}
