package ensemble

import (
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// serversEnv names a running ensemble to use instead of starting one:
// "host:port,host:port,host:port".
const serversEnv = "ZKLOCK_TEST_SERVERS"

// backendEnv chooses what tests run on: real servers, or, as "inprocess", only servers inside the
// test's own process.
const backendEnv = "ZKLOCK_TEST_BACKEND"

// InProcess reports whether tests must do without real servers: Start and Shared skip them then.
func InProcess() bool { return os.Getenv(backendEnv) != "" }

// needProcesses skips a test that would start servers where it must do without.
func needProcesses(tb testing.TB) {
	tb.Helper()
	if InProcess() {
		tb.Skipf("needs real servers, and %s=%s has none", backendEnv, os.Getenv(backendEnv))
	}
}

// Ensemble is one ZooKeeper server or three that form a quorum. Its methods may be called
// concurrently, but a test that breaks a shared ensemble must not run in parallel with others.
type Ensemble struct {
	// Nodes are the servers, in the order of their numbers. Don't change the slice.
	Nodes []*Node

	owned bool
	jars  []string // the servers' class path
	// between the servers, both ways; empty unless there are three of our own that are not direct
	links []quorumLink
	ports []*claim
	dirs  []string
}

// Start returns an ensemble of one or three nodes, all serving, which ends with the test. The test
// fails, with the end of the servers' logs, when they don't serve within a minute, and with what to
// install when java or the jars are missing. With ZKLOCK_TEST_SERVERS set it returns that ensemble
// instead, whatever its size and tick, and skips the test if it has too few nodes or the options
// cannot hold there. With ZKLOCK_TEST_BACKEND=inprocess it skips the test.
func Start(tb testing.TB, nodes int, opts ...Option) *Ensemble {
	tb.Helper()
	needProcesses(tb)
	c, err := newConfig(nodes, opts)
	if err != nil {
		tb.Fatal(err)
	}
	if servers := os.Getenv(serversEnv); servers != "" {
		return named(tb, servers, c)
	}
	e, err := start(c)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := e.close(); err != nil {
			tb.Error(err)
		}
	})
	return e
}

// named returns the ensemble that the environment names.
func named(tb testing.TB, servers string, c config) *Ensemble {
	tb.Helper()
	e := &Ensemble{}
	for i, addr := range strings.Split(servers, ",") {
		if _, _, err := net.SplitHostPort(addr); err != nil {
			tb.Fatalf("ensemble: %s=%q: %v", serversEnv, servers, err)
		}
		e.Nodes = append(e.Nodes, &Node{ID: i + 1, addr: addr})
	}
	if len(e.Nodes) < c.nodes {
		tb.Skipf("needs %d nodes, and %s names %d", c.nodes, serversEnv, len(e.Nodes))
	}
	if len(c.lines)+len(c.jvm) > 0 {
		tb.Skipf("needs servers with %q, and those of %s cannot be configured from here",
			append(c.lines, c.jvm...), serversEnv)
	}
	e.WaitServing(tb)
	return e
}

func start(c config) (e *Ensemble, err error) {
	jars, err := classpath(os.Getenv(homeEnv))
	if err != nil {
		return nil, err
	}
	e = &Ensemble{owned: true, jars: jars}
	defer func() {
		if err != nil {
			err = errors.Join(err, e.close())
			e = nil
		}
	}()
	var peers []peer
	if c.nodes > 1 {
		if peers, err = e.wire(c.nodes, c.direct); err != nil {
			return e, err
		}
	}
	for id := 1; id <= c.nodes; id++ {
		if err := e.add(id, c, peers); err != nil {
			return e, err
		}
	}
	for _, n := range e.Nodes { // all first: a quorum needs more than one
		if err := n.Launch(); err != nil {
			return e, err
		}
	}
	for _, n := range e.Nodes {
		if err := n.waitServing(startBound); err != nil {
			return e, err
		}
	}
	return e, nil
}

// claim reserves a port until the ensemble is closed.
func (e *Ensemble) claim() (*claim, error) {
	c, err := claimPort()
	if err == nil {
		e.ports = append(e.ports, c)
	}
	return c, err
}

// add prepares a server's directory and port.
func (e *Ensemble) add(id int, c config, peers []peer) error {
	dir, err := os.MkdirTemp("", "zookeeper-")
	if err != nil {
		return fmt.Errorf("ensemble: %w", err)
	}
	e.dirs = append(e.dirs, dir)
	client, err := e.claim()
	if err != nil {
		return err
	}
	data := filepath.Join(dir, "data")
	lines := append(c.server(data, client.port), e.serverLines(id, peers, c.observer)...)
	err = errors.Join(
		os.Mkdir(data, 0o755),
		os.WriteFile(filepath.Join(data, "myid"), fmt.Appendln(nil, id), 0o644),
		os.WriteFile(filepath.Join(dir, "zoo.cfg"), []byte(strings.Join(lines, "\n")+"\n"), 0o644),
	)
	if err != nil {
		return fmt.Errorf("ensemble: %w", err)
	}
	e.Nodes = append(e.Nodes,
		&Node{ID: id, addr: client.addr(), dir: dir, jars: e.jars, jvm: c.jvm})
	return nil
}

func (e *Ensemble) close() error {
	var errs []error
	for _, n := range e.Nodes {
		errs = append(errs, n.Kill())
	}
	for _, l := range e.links {
		errs = append(errs, l.proxy.close())
	}
	for _, p := range e.ports {
		errs = append(errs, p.release())
	}
	for _, dir := range e.dirs {
		errs = append(errs, os.RemoveAll(dir))
	}
	return errors.Join(errs...)
}

// Connect returns the connect string: the addresses of all nodes, separated by commas.
func (e *Ensemble) Connect() string {
	addrs := make([]string, len(e.Nodes))
	for i, n := range e.Nodes {
		addrs[i] = n.addr
	}
	return strings.Join(addrs, ",")
}

// Path returns the path of a znode that no other test uses, one level below the root. It is not
// created.
func (e *Ensemble) Path(tb testing.TB) string {
	name := strings.NewReplacer("/", "-", "#", "-").Replace(tb.Name())
	return "/" + name + "-" + rand.Text()[:8]
}

// NeedControl skips the test when the servers are not ours to kill, stop, isolate or configure.
func (e *Ensemble) NeedControl(tb testing.TB) {
	tb.Helper()
	if !e.owned {
		tb.Skipf(
			"kills, stops or isolates servers: those named by %s cannot be signalled from here", serversEnv)
	}
}

// Proxies puts a proxy in front of every node, which ends with the test; see Join for the connect
// string.
func (e *Ensemble) Proxies(tb testing.TB) []*Proxy {
	tb.Helper()
	ps := make([]*Proxy, len(e.Nodes))
	for i, n := range e.Nodes {
		ps[i] = NewProxy(tb, n.addr)
	}
	return ps
}

// Join returns the connect string that leads through the given proxies.
func Join(proxies ...*Proxy) string {
	addrs := make([]string, len(proxies))
	for i, p := range proxies {
		addrs[i] = p.Addr()
	}
	return strings.Join(addrs, ",")
}
