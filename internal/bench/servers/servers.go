// Package servers starts the contestants' servers: three ZooKeeper servers and three etcd servers, and in front of
// them, when a setting asks for it, proxies that delay or count.
package servers

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/zklock/locker/internal/ensemble"
)

// Kind is a kind of server.
type Kind string

// The kinds.
const (
	ZooKeeper Kind = "zookeeper"
	Etcd      Kind = "etcd"
)

// Way is how a contestant reaches the servers.
type Way struct {
	Delay time.Duration // each way
	Tap   bool          // counted
}

// Site is all the servers.
type Site struct {
	Notes []string // what is to be known about the servers when reading the figures

	zk      *ensemble.Ensemble
	etcd    *cluster
	addrs   map[Kind][]string
	proxies map[Way]map[Kind][]*ensemble.Proxy
	lines   lines
	dir     string
}

// Config says which servers to use. Empty: start some, and none of etcd's unless StartEtcd.
type Config struct {
	ZooKeeper, Etcd []string
	StartEtcd       bool
	Nodes           int    // of each kind: one or three
	Disk            string // the directory where they keep their data, with every write synced to disk; empty: in memory
}

// memory is where servers keep their data, so that no disk is measured: etcd cannot be configured not to sync.
const memory = "/dev/shm"

// Open starts the servers, or finds those of the configuration, within some two minutes.
func Open(ctx context.Context, c Config) (s *Site, err error) {
	s = &Site{addrs: map[Kind][]string{ZooKeeper: c.ZooKeeper, Etcd: c.Etcd}, proxies: map[Way]map[Kind][]*ensemble.Proxy{}}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
			s = nil
		}
	}()
	if err := s.makeDir(c.Disk); err != nil {
		return s, err
	}
	if len(c.ZooKeeper) == 0 {
		if err := s.startZooKeeper(c); err != nil {
			return s, err
		}
	} else {
		s.Notes = append(s.Notes, "ZooKeeper: servers of yours")
	}
	switch {
	case len(c.Etcd) > 0:
		s.Notes = append(s.Notes, "etcd: servers of yours")
	case c.StartEtcd:
		if s.etcd, err = startEtcd(ctx, s.dir, c.Nodes); err != nil {
			return s, err
		}
		s.addrs[Etcd] = s.etcd.addrs
		s.Notes = append(s.Notes, s.etcd.version)
	}
	return s, s.lines.open(s.addrs)
}

func (s *Site) makeDir(disk string) (err error) {
	if disk != "" {
		s.Notes = append(s.Notes, "the servers keep their data on a disk, and wait for it with every write")
		s.dir, err = os.MkdirTemp(disk, "bench-")
		return err
	}
	base := ""
	if info, err := os.Stat(memory); err == nil && info.IsDir() {
		base = memory
	}
	s.dir, err = os.MkdirTemp(base, "bench-")
	if err != nil && base != "" {
		s.dir, err = os.MkdirTemp("", "bench-")
	}
	if err == nil && strings.HasPrefix(s.dir, memory) {
		s.Notes = append(s.Notes, "the servers keep their data in memory ("+memory+"): no disk is measured")
	} else {
		s.Notes = append(s.Notes, "the servers keep their data on a disk, to which etcd waits for every write and ZooKeeper (forceSync=no) does not")
	}
	return err
}

// startZooKeeper starts servers with the JVM's defaults, except for the size of its heap.
func (s *Site) startZooKeeper(c Config) (err error) {
	// The ensemble keeps its data where temporary files are.
	old, set := os.LookupEnv("TMPDIR")
	if err := os.Setenv("TMPDIR", s.dir); err != nil {
		return err
	}
	jvm := []string{"-Xmx768m", "-XX:TieredStopAtLevel=4"}
	if c.Disk != "" {
		jvm = append(jvm, "-Dzookeeper.forceSync=yes")
	}
	s.zk, err = ensemble.Open(c.Nodes, ensemble.WithDirectQuorum(), ensemble.WithJVM(jvm...))
	if set {
		err = errors.Join(err, os.Setenv("TMPDIR", old))
	} else {
		err = errors.Join(err, os.Unsetenv("TMPDIR"))
	}
	if err != nil {
		return err
	}
	s.addrs[ZooKeeper] = strings.Split(s.zk.Connect(), ",")
	s.Notes = append(s.Notes, zooKeeperVersion(s.zk.Nodes[0]))
	return nil
}

func zooKeeperVersion(n *ensemble.Node) string {
	answer, err := n.FourLetter("srvr")
	if err != nil {
		return "ZooKeeper: version unknown: " + err.Error()
	}
	first, _, _ := strings.Cut(answer, "\n") // "Zookeeper version: 3.8.0-…, built on …"
	first, _, _ = strings.Cut(first, ",")
	return first
}

// Has reports whether there are servers of a kind.
func (s *Site) Has(k Kind) bool { return len(s.addrs[k]) > 0 }

// Addrs returns the addresses of a kind's servers, in a fixed order, by a way. Proxies are made at their first use and
// last as long as the site.
func (s *Site) Addrs(k Kind, w Way) ([]string, error) {
	if w == (Way{}) {
		return s.addrs[k], nil
	}
	if s.proxies[w] == nil {
		s.proxies[w] = map[Kind][]*ensemble.Proxy{}
	}
	for i := len(s.proxies[w][k]); i < len(s.addrs[k]); i++ {
		open := ensemble.OpenProxy
		if w.Tap {
			open = ensemble.OpenTapped
		}
		p, err := open(s.addrs[k][i])
		if err != nil {
			return nil, err
		}
		p.Delay(w.Delay, w.Delay)
		s.proxies[w][k] = append(s.proxies[w][k], p)
	}
	var addrs []string
	for _, p := range s.proxies[w][k] {
		addrs = append(addrs, p.Addr())
	}
	return addrs, nil
}

// Traffic is what has passed through the taps.
type Traffic struct {
	Requests      int64    `json:"requests"` // without pings, and without requests that open and close sessions
	Notifications int64    `json:"notifications"`
	Bytes         [2]int64 `json:"bytes"` // to the servers, and from them; all traffic
}

// Less is what passed since an earlier look.
func (t Traffic) Less(earlier Traffic) Traffic {
	t.Requests -= earlier.Requests
	t.Notifications -= earlier.Notifications
	for i := range t.Bytes {
		t.Bytes[i] -= earlier.Bytes[i]
	}
	return t
}

// Traffic returns the traffic through the taps so far. Of etcd's protocol only the bytes are known.
func (s *Site) Traffic(k Kind) (t Traffic) {
	for _, p := range s.proxies[Way{Tap: true}][k] {
		tap := p.Tap()
		t.Requests += int64(tap.Count() - tap.Count(ensemble.OpCloseSession))
		t.Notifications += int64(tap.Notifications())
		for _, d := range []ensemble.Direction{ensemble.Requests, ensemble.Replies} {
			t.Bytes[d] += tap.Bytes(d)
		}
	}
	return t
}

// Cost is the ensemble's work.
type Cost struct {
	Transactions int64         `json:"transactions"`
	CPU          time.Duration `json:"cpu"` // of all servers together
}

// Less is the cost since an earlier look.
func (c Cost) Less(earlier Cost) Cost {
	return Cost{c.Transactions - earlier.Transactions, c.CPU - earlier.CPU}
}

// Cost returns the work of the ZooKeeper servers so far; false: they are not ours, or of another kind.
func (s *Site) Cost(k Kind) (c Cost, known bool, err error) {
	if k != ZooKeeper || s.zk == nil {
		return c, false, nil
	}
	for _, n := range s.zk.Nodes {
		zxid, err := n.Zxid()
		if err != nil {
			return c, false, err
		}
		cpu, err := n.CPU()
		if err != nil {
			return c, false, err
		}
		c.Transactions, c.CPU = max(c.Transactions, zxid), c.CPU+cpu
	}
	return c, true, nil
}

// InLine returns the number of contenders at a lock's path.
func (s *Site) InLine(ctx context.Context, k Kind, path string) (int, error) {
	return s.lines.count(ctx, k, path)
}

// Close ends everything that Open and Addrs started, and removes the servers' data.
func (s *Site) Close() error {
	errs := []error{s.lines.close()}
	for _, kinds := range s.proxies {
		for _, proxies := range kinds {
			for _, p := range proxies {
				errs = append(errs, p.Close())
			}
		}
	}
	if s.zk != nil {
		errs = append(errs, s.zk.Close())
	}
	if s.etcd != nil {
		errs = append(errs, s.etcd.close())
	}
	if s.dir != "" {
		errs = append(errs, os.RemoveAll(filepath.Clean(s.dir)))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("ending the servers: %w", err)
	}
	return nil
}
