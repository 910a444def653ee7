// Package peers holds the contestants that are Go programs: the floor, this library in its modes,
// and the locks of go-zookeeper and etcd. Those of Curator and Kazoo are programs in
// match/testdata.
package peers

import (
	"fmt"
	"os"

	"github.com/zklock/locker/tests/bench/load"
	"github.com/zklock/locker/zklock"
)

// All holds the contestants by their names.
var All = map[string]load.Peer{
	"raw":     driver{locker: newRaw},
	"zklock":  ours{},
	"local":   ours{zklock.WithLocalHandoff()},
	"zk.Lock": driver{locker: newDriverLock},
	"etcd":    etcd{},
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
