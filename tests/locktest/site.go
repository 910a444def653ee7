package locktest

import (
	"context"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/tests/ensemble"
	"github.com/zklock/locker/zklock"
	"github.com/zklock/locker/zktest"
)

// longEnv turns on the variants that take minutes.
const longEnv = "ZKLOCK_LONG"

// Long reports whether the variants that take minutes are to run.
func Long() bool { return os.Getenv(longEnv) != "" }

// Tick is the tick of the servers that are started here: sessions may last from 1 s to 10 s.
const Tick = 500 * time.Millisecond

// Site is an ensemble to test against: real servers, or an in-process server whose followers stand
// for the others.
type Site struct {
	Addrs []string
	Tick  time.Duration

	real    *ensemble.Ensemble // nil on the in-process server
	inproc  *zktest.Server     // nil on real servers
	members []*zktest.Member   // of inproc
}

// SiteOf returns an ensemble of that many nodes, all serving. All tests share the real one: it is
// repaired before the next test gets it, and each test uses paths of its own.
func SiteOf(tb testing.TB, nodes int) *Site {
	tb.Helper()
	if !ensemble.InProcess() {
		return SiteOn(tb, ensemble.Shared(tb, nodes, ensemble.WithTick(Tick)))
	}
	srv := zktest.Run(tb, zktest.WithTick(Tick))
	s := &Site{inproc: srv, Tick: Tick, members: []*zktest.Member{srv.Leader()}}
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

// SiteBeside is SiteOf for a test that waits more than it works, and counts nothing that a busy
// machine adds to. In process, where it has a server of its own, it runs beside others.
func SiteBeside(t *testing.T, nodes int) *Site {
	t.Helper()
	if ensemble.InProcess() {
		beside(t)
	}
	return SiteOf(t, nodes)
}

// OwnSite starts servers of the test's own, which it need not repair. On the in-process server the
// test is skipped.
func OwnSite(tb testing.TB, nodes int, opts ...ensemble.Option) *Site {
	tb.Helper()
	return SiteOn(tb, ensemble.Start(tb, nodes, append(opts, ensemble.WithTick(Tick))...))
}

// SiteOn is the site of a real ensemble.
func SiteOn(tb testing.TB, e *ensemble.Ensemble) *Site {
	tb.Helper()
	s := &Site{real: e, Tick: tickOf(tb, e)}
	for _, n := range e.Nodes {
		s.Addrs = append(s.Addrs, n.Addr())
	}
	return s
}

// tickOf asks a server for its tick: an ensemble that was named may have any.
func tickOf(tb testing.TB, e *ensemble.Ensemble) time.Duration {
	var conf string
	ensemble.Until(tb, Bound, "the answer to conf", func() (err error) {
		conf, err = e.Nodes[0].FourLetter("conf")
		return err
	})
	for line := range strings.Lines(conf) {
		if v, ok := strings.CutPrefix(strings.TrimSpace(line), "tickTime="); ok {
			ms, err := strconv.Atoi(v)
			require.NoError(tb, err)
			return time.Duration(ms) * time.Millisecond
		}
	}
	return 2 * time.Second // the four-letter word is not allowed: ZooKeeper's default
}

// Connect returns the connect string of all nodes.
func (s *Site) Connect() string { return strings.Join(s.Addrs, ",") }

// Others returns the connect string of all nodes but one.
func (s *Site) Others(node int) string {
	return strings.Join(slices.Delete(slices.Clone(s.Addrs), node, node+1), ",")
}

// Path returns a path that no other test uses. It is not created.
func (s *Site) Path(tb testing.TB) string { return new(ensemble.Ensemble).Path(tb) }

// LongTimeout is the longest session timeout that the servers grant: for tests whose sessions must
// last.
func (s *Site) LongTimeout() time.Duration { return 20 * s.Tick }

// ShortTimeout is one for tests whose sessions have to end: twice the shortest that the servers
// grant.
func (s *Site) ShortTimeout() time.Duration { return 4 * s.Tick }

// Client opens a client of all nodes whose session lasts; it is closed with the test.
func (s *Site) Client(tb testing.TB, opts ...zklock.Option) *zklock.Client {
	tb.Helper()
	return s.ClientAt(tb, s.Connect(), opts...)
}

// ClientAt is Client for a connect string of the caller's. The caller's options take precedence.
func (s *Site) ClientAt(tb testing.TB, connect string, opts ...zklock.Option) *zklock.Client {
	tb.Helper()
	c, err := s.Dial(tb, connect, opts...)
	require.NoError(tb, err)
	return c
}

// Dial is ClientAt for goroutines beside the test's own, which may not end the test.
func (s *Site) Dial(tb testing.TB, connect string, opts ...zklock.Option) (*zklock.Client, error) {
	ctx, cancel := context.WithTimeout(context.Background(), Bound)
	defer cancel()
	opts = append([]zklock.Option{zklock.WithoutLog(), zklock.WithSessionTimeout(s.LongTimeout()),
		zklock.WithTickTime(s.Tick)}, opts...)
	c, err := zklock.Dial(ctx, connect, opts...)
	if err == nil {
		tb.Cleanup(func() { Close(tb, c) })
	}
	return c, err
}

// Leader returns the index of the node that orders the writes.
func (s *Site) Leader(tb testing.TB) int {
	tb.Helper()
	if s.inproc != nil {
		return 0
	}
	leader := s.real.Leader(tb)
	return slices.Index(s.real.Nodes, leader)
}

// Control skips a test that breaks servers if they were not started here.
func (s *Site) Control(tb testing.TB) {
	tb.Helper()
	if s.real != nil {
		s.real.NeedControl(tb)
	}
}

// Ensemble returns the real servers; nil on the in-process server.
func (s *Site) Ensemble() *ensemble.Ensemble { return s.real }

// Isolate cuts a follower off from its leader, as Mend ends. Its clients still reach it.
func (s *Site) Isolate(node int) {
	if s.inproc != nil {
		s.members[node].CutOff()
		return
	}
	s.real.Isolate(s.real.Nodes[node])
}

// Kill ends a server at once. In process, its clients are dropped and refused, and there is no
// election.
func (s *Site) Kill(tb testing.TB, node int) {
	tb.Helper()
	if s.inproc != nil {
		s.members[node].Down()
		return
	}
	require.NoError(tb, s.real.Nodes[node].Kill())
}

// Mend undoes Isolate and Kill, and returns when all nodes serve.
func (s *Site) Mend(tb testing.TB) {
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
