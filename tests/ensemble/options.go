package ensemble

import (
	"fmt"
	"time"
)

// config is the sum of the options. Shared compares configs by their fmt output.
type config struct {
	nodes     int
	tick      time.Duration
	syncLimit int
	lines     []string
	jvm       []string
	direct    bool
	observer  bool
}

// Option changes how the servers of an ensemble are configured. Options have no effect on an
// ensemble named by ZKLOCK_TEST_SERVERS; a test that depends on WithConfig, WithJVM or
// WithContainerCheck is skipped there.
type Option func(*config)

// WithTick sets tickTime. Default 500 ms: sessions may then last from 1 s to 10 s.
// ZooKeeper counts in milliseconds; smaller parts are cut off.
func WithTick(d time.Duration) Option { return func(c *config) { c.tick = d } }

// WithSyncLimit sets syncLimit: for how many ticks a follower and its leader may receive nothing
// from each other. Default 5.
func WithSyncLimit(ticks int) Option { return func(c *config) { c.syncLimit = ticks } }

// WithDirectQuorum lets three servers reach each other without proxies between them, for
// measurements: then Isolate, Mute and Deafen panic, and Slow does nothing.
func WithDirectQuorum() Option { return func(c *config) { c.direct = true } }

// WithObserver makes the last of three servers an observer: it serves clients and does not vote.
func WithObserver() Option { return func(c *config) { c.observer = true } }

// WithConfig appends lines to every server's configuration file, for example
// "maxSessionTimeout=60000".
func WithConfig(lines ...string) Option {
	return func(c *config) { c.lines = append(c.lines, lines...) }
}

// WithJVM appends flags to every server's command line, for example
// "-Dzookeeper.extendedTypesEnabled=true".
func WithJVM(flags ...string) Option { return func(c *config) { c.jvm = append(c.jvm, flags...) } }

// WithContainerCheck sets how often the leader removes empty container znodes. ZooKeeper's default
// is one minute.
func WithContainerCheck(d time.Duration) Option {
	return WithJVM(fmt.Sprintf("-Dznode.container.checkIntervalMs=%d", d.Milliseconds()))
}

func newConfig(nodes int, opts []Option) (config, error) {
	c := config{nodes: nodes, tick: 500 * time.Millisecond, syncLimit: 5}
	for _, o := range opts {
		o(&c)
	}
	switch {
	case nodes != 1 && nodes != 3:
		return c, fmt.Errorf("ensemble: %d nodes asked for: an ensemble has one or three", nodes)
	case c.observer && nodes != 3:
		return c, fmt.Errorf("ensemble: an observer among %d nodes: three are needed", nodes)
	case c.tick < time.Millisecond:
		return c, fmt.Errorf("ensemble: tick of %v: at least 1ms is needed", c.tick)
	case c.syncLimit < 1:
		return c, fmt.Errorf("ensemble: syncLimit of %d: at least 1 is needed", c.syncLimit)
	}
	return c, nil
}

// server gives the part of a server's configuration file that does not depend on its peers.
func (c config) server(dataDir, clientPort string) []string {
	return append([]string{
		fmt.Sprintf("tickTime=%d", c.tick.Milliseconds()),
		"initLimit=20",
		fmt.Sprintf("syncLimit=%d", c.syncLimit),
		"dataDir=" + dataDir,
		"clientPort=" + clientPort,
		"clientPortAddress=" + loopback,
		"admin.enableServer=false",
		"4lw.commands.whitelist=*",
		"maxClientCnxns=0", // a test opens hundreds of connections from one address
	}, c.lines...)
}
