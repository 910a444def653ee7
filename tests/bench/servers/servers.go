// Package servers starts the contestants' servers, three of ZooKeeper and three of etcd, and in
// front of them, when a setting asks for it, proxies that delay.
package servers

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/zklock/locker/tests/ensemble"
)

// Kind is a kind of server.
type Kind string

// The kinds.
const (
	ZooKeeper Kind = "zookeeper"
	Etcd      Kind = "etcd"
)

// far is servers behind a delay.
type far struct {
	Kind
	delay time.Duration
}

// Site is all the servers.
type Site struct {
	Notes []string // what is to be known about the servers when reading the figures

	zk      *ensemble.Ensemble
	etcd    *cluster
	addrs   map[Kind][]string
	proxies map[far][]*ensemble.Proxy
	dir     string
}

// Config says how to start the servers.
type Config struct {
	Nodes int // of each kind: one or three
	// the directory where they keep their data, with every write synced to disk; empty: in memory
	Disk string
}

// memory is where servers keep their data, so that no disk is measured: etcd cannot be configured
// not to sync.
const memory = "/dev/shm"

// Open starts the servers, those of etcd if it is installed, within some two minutes.
func Open(ctx context.Context, c Config) (s *Site, err error) {
	s = &Site{addrs: map[Kind][]string{}, proxies: map[far][]*ensemble.Proxy{}}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
			s = nil
		}
	}()
	if err := s.makeDir(c.Disk); err != nil {
		return s, err
	}
	if err := s.startZooKeeper(c); err != nil {
		return s, err
	}
	if etcdInstalled() {
		if s.etcd, err = startEtcd(ctx, s.dir, c.Nodes); err != nil {
			return s, err
		}
		s.addrs[Etcd] = s.etcd.addrs
		s.Notes = append(s.Notes, s.etcd.version)
	}
	return s, nil
}

func (s *Site) makeDir(disk string) (err error) {
	where, note := disk, "the servers keep their data on a disk, and wait for it with every write"
	if disk == "" {
		where, note = memory, "the servers keep their data in memory ("+memory+
			"): no disk is measured"
	}
	s.Notes = append(s.Notes, note)
	s.dir, err = os.MkdirTemp(where, "bench-")
	return err
}

// startZooKeeper starts servers with the JVM's defaults, except for the size of its heap.
func (s *Site) startZooKeeper(c Config) (err error) {
	// The ensemble keeps its data where temporary files are.
	old := os.Getenv("TMPDIR")
	if err := os.Setenv("TMPDIR", s.dir); err != nil {
		return err
	}
	jvm := []string{"-Xmx768m", "-XX:TieredStopAtLevel=4"}
	if c.Disk != "" {
		jvm = append(jvm, "-Dzookeeper.forceSync=yes")
	}
	s.zk, err = ensemble.Open(c.Nodes, ensemble.WithDirectQuorum(), ensemble.WithJVM(jvm...))
	if err := errors.Join(err, os.Setenv("TMPDIR", old)); err != nil {
		return err
	}
	s.addrs[ZooKeeper] = strings.Split(s.zk.Connect(), ",")
	version, err := s.zk.Nodes[0].Version()
	s.Notes = append(s.Notes, "ZooKeeper "+version)
	return err
}

// Has reports whether there are servers of a kind.
func (s *Site) Has(k Kind) bool { return len(s.addrs[k]) > 0 }

// Addrs returns the addresses of a kind's servers, in a fixed order, with a delay each way. Proxies
// are made at their first use and last as long as the site.
func (s *Site) Addrs(k Kind, delay time.Duration) (addrs []string, err error) {
	if delay == 0 {
		return s.addrs[k], nil
	}
	at := far{k, delay}
	for i := len(s.proxies[at]); i < len(s.addrs[k]); i++ {
		p, err := ensemble.OpenProxy(s.addrs[k][i])
		if err != nil {
			return nil, err
		}
		p.Delay(delay, delay)
		s.proxies[at] = append(s.proxies[at], p)
	}
	for _, p := range s.proxies[at] {
		addrs = append(addrs, p.Addr())
	}
	return addrs, nil
}

// Close ends everything that Open and Addrs started, and removes the servers' data.
func (s *Site) Close() error {
	var errs []error
	for _, proxies := range s.proxies {
		for _, p := range proxies {
			errs = append(errs, p.Close())
		}
	}
	if s.zk != nil {
		errs = append(errs, s.zk.Close())
	}
	if s.etcd != nil {
		s.etcd.close()
	}
	if s.dir != "" {
		errs = append(errs, os.RemoveAll(s.dir))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("ending the servers: %w", err)
	}
	return nil
}
