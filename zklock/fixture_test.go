package zklock_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/internal/ensemble"
	"github.com/zklock/locker/zklock"
	"github.com/zklock/locker/zktest"
)

// siteBackend chooses what the tests of this package run on: real servers, or, with "inprocess", package zktest.
const siteBackend = "ZKLOCK_TEST_BACKEND"

// siteLongEnv turns on the variants that take minutes.
const siteLongEnv = "ZKLOCK_LONG"

func TestMain(m *testing.M) {
	if role := os.Getenv(siteChildEnv); role != "" {
		os.Exit(siteChild(role))
	}
	if b := os.Getenv(siteBackend); b != "" && b != "inprocess" {
		fmt.Fprintf(os.Stderr, "%s=%q: is neither empty nor \"inprocess\"\n", siteBackend, b)
		os.Exit(2)
	}
	os.Exit(ensemble.Run(m))
}

func siteInProcess() bool { return os.Getenv(siteBackend) != "" }
func siteLong() bool      { return os.Getenv(siteLongEnv) != "" }

// siteBound is how long a test waits for what must happen: far beyond what it takes, so that only what never happens
// fails, and short of the test command's own time limit, so that the failure says what was missing.
const siteBound = 60 * time.Second

// siteTick is the tick of the servers that are started here: sessions may last from 1 s to 10 s.
const siteTick = 500 * time.Millisecond

// site is an ensemble to test against: real servers, or an in-process server whose followers stand for the others.
type site struct {
	Addrs []string
	Tick  time.Duration

	real    *ensemble.Ensemble // nil on the in-process server
	inproc  *zktest.Server     // nil on real servers
	members []*zktest.Member   // of inproc
}

// siteOf returns an ensemble of that many nodes, all serving. The real one is shared by all tests: what a test breaks
// is mended before the next gets it, and each uses paths of its own.
func siteOf(tb testing.TB, nodes int) *site {
	tb.Helper()
	if !siteInProcess() {
		e := ensemble.Shared(tb, nodes, ensemble.WithTick(siteTick))
		s := &site{real: e, Tick: siteTickOf(tb, e)}
		for _, n := range e.Nodes {
			s.Addrs = append(s.Addrs, n.Addr())
		}
		return s
	}
	srv := zktest.Run(tb, zktest.WithTick(siteTick))
	s := &site{inproc: srv, Tick: siteTick, members: []*zktest.Member{srv.Leader()}}
	for len(s.members) < nodes {
		m, err := srv.Follower()
		require.NoError(tb, err)
		s.members = append(s.members, m)
	}
	for _, m := range s.members {
		s.Addrs = append(s.Addrs, m.Addr())
	}
	return s
}

// siteTickOf asks a server for its tick: an ensemble that somebody named may have any.
func siteTickOf(tb testing.TB, e *ensemble.Ensemble) time.Duration {
	conf, err := e.Nodes[0].FourLetter("conf")
	require.NoError(tb, err)
	for line := range strings.Lines(conf) {
		if v, ok := strings.CutPrefix(strings.TrimSpace(line), "tickTime="); ok {
			ms, err := strconv.Atoi(v)
			require.NoError(tb, err)
			return time.Duration(ms) * time.Millisecond
		}
	}
	return 2 * time.Second // the word is not on the server's list: ZooKeeper's default
}

// Connect returns the connect string of all nodes.
func (s *site) Connect() string { return strings.Join(s.Addrs, ",") }

// Others returns the connect string of all nodes but one.
func (s *site) Others(node int) string {
	return strings.Join(slices.Delete(slices.Clone(s.Addrs), node, node+1), ",")
}

// Path returns a path that no other test uses. It is not created.
func (s *site) Path(tb testing.TB) string { return new(ensemble.Ensemble).Path(tb) }

// LongTimeout is the longest session timeout that the servers grant: for tests whose sessions must last.
func (s *site) LongTimeout() time.Duration { return 20 * s.Tick }

// ShortTimeout is one for tests whose sessions have to end: twice the shortest that the servers grant.
func (s *site) ShortTimeout() time.Duration { return 4 * s.Tick }

// Client opens a client of all nodes whose session lasts; it is closed with the test.
func (s *site) Client(tb testing.TB, opts ...zklock.Option) *zklock.Client {
	tb.Helper()
	return s.ClientAt(tb, s.Connect(), opts...)
}

// ClientAt is Client for a connect string of the caller's. Options of the caller's win.
func (s *site) ClientAt(tb testing.TB, connect string, opts ...zklock.Option) *zklock.Client {
	tb.Helper()
	c, err := s.Dial(tb, connect, opts...)
	require.NoError(tb, err)
	return c
}

// Dial is ClientAt for goroutines beside the test's own, which may not end the test.
func (s *site) Dial(tb testing.TB, connect string, opts ...zklock.Option) (*zklock.Client, error) {
	ctx, cancel := context.WithTimeout(context.Background(), siteBound)
	defer cancel()
	opts = append([]zklock.Option{zklock.WithSessionTimeout(s.LongTimeout()), zklock.WithServerTick(s.Tick)}, opts...)
	c, err := zklock.Dial(ctx, connect, opts...)
	if err == nil {
		tb.Cleanup(func() { siteClose(tb, c) })
	}
	return c, err
}

// Tapped opens a client of the first node through a proxy that shows and counts what crosses the wire.
func (s *site) Tapped(tb testing.TB, opts ...zklock.Option) (*zklock.Client, *ensemble.Proxy) {
	tb.Helper()
	p := ensemble.NewProxy(tb, s.Addrs[0])
	return s.ClientAt(tb, p.Addr(), opts...), p
}

// siteClose closes clients all at once: one whose servers do not answer takes a second or two. Closing again, at the
// end of the test, does nothing.
func siteClose(tb testing.TB, clients ...*zklock.Client) {
	tb.Helper()
	var all sync.WaitGroup
	for _, c := range clients {
		all.Go(func() {
			if err := c.Close(); err != nil {
				tb.Error(err)
			}
		})
	}
	all.Wait()
}

// siteWorld lets everybody do everything.
var siteWorld = zk.WorldACL(zk.PermAll)

// siteContext bounds what a test waits for.
func siteContext(tb testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), siteBound)
	tb.Cleanup(cancel)
	return ctx
}

// siteLongContext bounds work that takes minutes when the machine is slow.
func siteLongContext(tb testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 20*siteBound)
	tb.Cleanup(cancel)
	return ctx
}

// siteLock takes a lock that the test expects to get.
func siteLock(tb testing.TB, m *zklock.Mutex) *zklock.Hold {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), siteBound)
	defer cancel()
	h, err := m.Lock(ctx)
	require.NoError(tb, err)
	return h
}

// siteUnlock releases a hold that the test expects to have.
func siteUnlock(tb testing.TB, h *zklock.Hold) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), siteBound)
	defer cancel()
	require.NoError(tb, h.Unlock(ctx))
}

// siteMillis is short enough to read.
func siteMillis(d time.Duration) time.Duration { return d.Round(time.Millisecond) }

// sitePass lets time go by. It is only for showing that something does not happen, of which there is no sign to wait
// for.
func sitePass(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	<-timer.C
}

// siteWait is a Lock call under way.
type siteWait struct {
	hold   *zklock.Hold
	err    error
	cancel context.CancelFunc
	done   chan struct{} // closed when hold and err are set
}

// siteLockAside calls Lock in a goroutine, which Result or Abandon joins.
func siteLockAside(tb testing.TB, m *zklock.Mutex) *siteWait {
	ctx, cancel := context.WithTimeout(context.Background(), siteBound)
	w := &siteWait{cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(w.done)
		w.hold, w.err = m.Lock(ctx)
	}()
	tb.Cleanup(func() { w.Abandon() })
	return w
}

// Result waits for the hold; Lock's own context bounds it.
func (w *siteWait) Result(tb testing.TB) *zklock.Hold {
	tb.Helper()
	<-w.done
	require.NoError(tb, w.err)
	return w.hold
}

// Abandon ends the call's context and returns the call's error.
func (w *siteWait) Abandon() error {
	w.cancel()
	<-w.done
	return w.err
}

// siteQueue lists a lock's contenders.
func siteQueue(tb testing.TB, c *zklock.Client, path string) []string {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), siteBound)
	defer cancel()
	s, err := c.Session(ctx)
	require.NoError(tb, err)
	names, _, err := s.List(ctx, path)
	require.NoError(tb, err)
	return names
}

// siteAwaitQueue waits until a lock has that many contenders.
func siteAwaitQueue(tb testing.TB, c *zklock.Client, path string, n int) {
	tb.Helper()
	ensemble.Until(tb, siteBound, fmt.Sprintf("%d contenders at %s", n, path), func() error {
		if got := len(siteQueue(tb, c, path)); got != n {
			return fmt.Errorf("there are %d", got)
		}
		return nil
	})
}

// Leader returns the index of the node that orders the writes.
func (s *site) Leader(tb testing.TB) int {
	tb.Helper()
	if s.inproc != nil {
		return 0
	}
	leader := s.real.Leader(tb)
	return slices.Index(s.real.Nodes, leader)
}

// Control skips a test that breaks servers where they are somebody else's.
func (s *site) Control(tb testing.TB) {
	tb.Helper()
	if s.real != nil {
		s.real.NeedControl(tb)
	}
}

// Processes skips a test that says something only about server processes of their own: they can be killed, elect, and
// take no memory of ours.
func (s *site) Processes(tb testing.TB, why string) {
	tb.Helper()
	if s.inproc != nil {
		tb.Skipf("needs servers with processes of their own, and %s=%s has none: %s", siteBackend, os.Getenv(siteBackend), why)
	}
}

// Isolate cuts a follower off from its leader, as Mend ends. Its clients still reach it.
func (s *site) Isolate(node int) {
	if s.inproc != nil {
		s.members[node].CutOff()
		return
	}
	s.real.Isolate(s.real.Nodes[node])
}

// Kill ends a server at once. In process, its clients are dropped and refused, and there is no election.
func (s *site) Kill(tb testing.TB, node int) {
	tb.Helper()
	if s.inproc != nil {
		s.members[node].Down()
		return
	}
	require.NoError(tb, s.real.Nodes[node].Kill())
}

// Mend undoes Isolate and Kill, and returns when all nodes serve.
func (s *site) Mend(tb testing.TB) {
	tb.Helper()
	if s.inproc == nil {
		s.real.Restore(tb)
		return
	}
	for _, m := range s.members {
		m.Heal()
		m.Up()
	}
}

// Watches returns how many watches the servers keep.
func (s *site) Watches(tb testing.TB) int {
	tb.Helper()
	if s.inproc != nil {
		return s.inproc.WatchCount()
	}
	sum := 0
	for _, n := range s.real.Nodes {
		count, err := n.WatchCount()
		require.NoError(tb, err)
		sum += int(count)
	}
	return sum
}

// siteAwaitWatches waits until the servers keep at least that many watches.
func siteAwaitWatches(tb testing.TB, s *site, n int) {
	tb.Helper()
	ensemble.Until(tb, siteBound, fmt.Sprintf("%d watches", n), func() error {
		if got := s.Watches(tb); got < n {
			return fmt.Errorf("there are %d", got)
		}
		return nil
	})
}

// siteStalls measures, until the returned function is called, the longest time for which this process was kept from
// running: what a bound on elapsed time has to allow for on a machine that does other things as well.
func siteStalls(tb testing.TB) func() time.Duration {
	stop, done := make(chan struct{}), make(chan struct{})
	var longest time.Duration // the goroutine's until done
	go func() {
		defer close(done)
		const every = 5 * time.Millisecond
		timer := time.NewTimer(every)
		defer timer.Stop()
		for last := time.Now(); ; {
			select {
			case <-timer.C:
			case <-stop:
				return
			}
			now := time.Now()
			longest = max(longest, now.Sub(last)-every)
			last = now
			timer.Reset(every)
		}
	}()
	halt := sync.OnceFunc(func() { close(stop); <-done })
	tb.Cleanup(halt)
	return func() time.Duration { halt(); return longest }
}
