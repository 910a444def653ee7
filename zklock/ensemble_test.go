package zklock_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/tests/ensemble"
	"github.com/zklock/locker/tests/locktest"
	"github.com/zklock/locker/zklock"
)

// The leader is killed while clients take turns at a lock, and comes back as a follower; then the
// next one. No two clients hold at once, and work goes on after each failure.
func TestTurnsGoOnWhenLeadersAreKilled(t *testing.T) {
	const clients, kills = 8, 2
	s := locktest.SiteOf(t, 3)
	s.Control(t)
	path := s.Path(t)
	var turns locktest.Exclusion
	ctx, cancel := context.WithCancel(locktest.Late(t))
	var workers sync.WaitGroup
	var lost atomic.Int64
	t.Cleanup(func() { cancel(); workers.Wait() })
	for range clients {
		m := s.Client(t).Mutex(path)
		workers.Go(func() {
			for ctx.Err() == nil {
				_, h, err := m.Lock(ctx)
				if err != nil {
					if !errors.Is(err, context.Canceled) {
						t.Error(err) // a Lock waits until the servers are back
					}
					return
				}
				turns.Enter(h)
				turns.Leave(h)
				switch err := h.Unlock(); {
				case err == nil:
				case errors.Is(err, zklock.ErrLost):
					lost.Add(1)
				default:
					t.Error(err)
				}
			}
		})
	}
	goesOn := func(why string) {
		t.Helper()
		from, began := turns.Count(), time.Now()
		ensemble.Until(t, locktest.Bound, "200 turns "+why, func() error {
			if n := turns.Count() - from; n < 200 {
				return fmt.Errorf("there were %d", n)
			}
			return nil
		})
		t.Logf("200 turns %s took %v", why, locktest.Millis(time.Since(began)))
	}
	goesOn("before anything is done")
	for range kills {
		leader := s.Leader(t)
		s.Kill(t, leader)
		goesOn("with the leader dead")
		s.Mend(t)
		goesOn("with it back")
	}
	cancel()
	workers.Wait()
	require.NoError(t, turns.Err())
	t.Logf("%d turns, %d holds lost with their session", turns.Count(), lost.Load())

	c := s.Client(t)
	locktest.AwaitContenders(t, c, path, 0) // nothing is left in line
}

// scenario 49 on a real server: at the end of its counter numbers repeat and, when creates overlap,
// are negative. Contenders of every kind still hold one at a time, and tokens grow, both where the
// directory can be renewed once it is empty, and where it cannot.
func TestScenario49_AtARealServersCounterEndOneHoldsAtATime(t *testing.T) {
	s := locktest.OwnSite(t, 1, ensemble.WithCounter(t, "/w", math.MaxInt32-2))
	const dir, clients, each, rounds = "/w", 3, 4, 3
	var cs []*zklock.Client
	for range clients {
		cs = append(cs, s.Client(t))
	}
	other, err := s.Client(t).Session(locktest.Soon(t))
	require.NoError(t, err)
	for _, perms := range []int32{zk.PermAll, zk.PermRead | zk.PermCreate} {
		_, err := other.SetACL(locktest.Soon(t), "/",
			[]zk.ACL{{Perms: perms, Scheme: "world", ID: "anyone"}}, -1)
		require.NoError(t, err)
		for _, kind := range anyKinds {
			var inside, negative atomic.Int32
			var last zklock.Token
			var join sync.WaitGroup
			for _, c := range cs {
				for range each {
					join.Go(func() {
						for range rounds {
							_, h, err := kind.lock(c, dir)(locktest.Late(t))
							if err != nil {
								t.Error(err)
								return
							}
							if n := inside.Add(1); n != 1 {
								t.Errorf("%s: %d holders at once", kind.name, n)
							}
							if h.Token() <= last && kind.name != "local handoff" {
								t.Errorf("%s: token %d after %d", kind.name, h.Token(), last)
							}
							last = h.Token()
							if n := h.Node(); strings.Contains(n, "--2") ||
								strings.Contains(n, "__-2") {
								negative.Add(1)
							}
							locktest.Pass(time.Millisecond) // work
							inside.Add(-1)
							if err := h.Unlock(); err != nil {
								t.Error(err)
							}
						}
					})
				}
			}
			join.Wait()
			t.Logf("%s, permissions %d: %d of %d had negative numbers", kind.name, perms,
				negative.Load(), clients*each*rounds)
		}
	}
}

// roomySite starts servers for one test alone, since they may not survive it.
func roomySite(t *testing.T) (*locktest.Site, *ensemble.Ensemble) {
	t.Helper()
	s := locktest.OwnSite(t, 3, ensemble.WithDirectQuorum())
	e := s.Ensemble()
	e.NeedControl(t)
	return s, e
}

// serves checks that a lock can be taken and released through one server.
func serves(t *testing.T, addr string) error {
	ctx, cancel := context.WithTimeout(context.Background(), locktest.Bound/4)
	defer cancel()
	c, err := zklock.Dial(ctx, addr, zklock.WithSessionTimeout(20*locktest.Tick),
		zklock.WithTickTime(locktest.Tick))
	if err != nil {
		return err
	}
	defer func() { assert.NoError(t, c.Close()) }()
	return c.Mutex("/later").Do(ctx, func(context.Context) error { return nil })
}

// Six clients take as many locks as their sessions have room for, and end. The ensemble survives,
// and its servers can be restarted, with the end of these sessions in their logs.
func TestAnEnsembleSurvivesTheEndOfClientsWhoseSessionsAreFull(t *testing.T) {
	site, e := roomySite(t)
	full := make([]*zklock.Client, 6)
	for i := range full {
		full[i] = site.Client(t)
	}
	n := e.Nodes[0]
	was, err := n.Zxid()
	require.NoError(t, err)
	var paths, locks atomic.Int64
	before, began := heapInUse(), time.Now()
	for _, c := range full {
		var workers sync.WaitGroup
		for range 250 {
			workers.Go(func() {
				for {
					_, _, err := c.Mutex(fmt.Sprintf("/many/%d", paths.Add(1))).Lock(t.Context())
					if errors.Is(err, zklock.ErrSessionFull) || !assert.NoError(t, err) {
						return
					}
					locks.Add(1)
				}
			})
		}
		workers.Wait()
	}
	took, heap := time.Since(began), heapInUse()-before
	zxid, err := n.Zxid()
	require.NoError(t, err)
	t.Logf("%d locks in %v and %d transactions, directories included; %d bytes of heap each",
		locks.Load(), took.Round(time.Millisecond), zxid-was, heap/locks.Load())
	require.Greater(t, locks.Load(), int64(40_000))
	require.Less(t, zxid-was, locks.Load(),
		"a create of a directory and one of a contender would be two for each")
	for _, c := range full {
		require.NoError(t, c.Close())
	}
	for _, n := range e.Nodes {
		require.NoError(t, serves(t, n.Addr()))
	}
	for _, n := range e.Nodes {
		n.Restart(t)
		e.WaitServing(t)
	}
	for _, n := range e.Nodes {
		require.NoError(t, serves(t, n.Addr()))
	}
}

// heapInUse is what is left of the heap after a collection.
func heapInUse() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// Scenario 83: the server was away for longer than a lease lasts, and the work of the lost hold has
// returned. The client's next call does not wait for the session timeout that a server, when it is
// back, gives to each session again.
func TestScenario83_AfterAnOutageOfARealServerTheLostSessionIsClosed(t *testing.T) {
	const tick = 500 * time.Millisecond
	e := ensemble.Start(t, 1, ensemble.WithTick(tick))
	node := e.Nodes[0]
	timeout := 8 * tick
	c, err := zklock.Dial(locktest.Soon(t), node.Addr(), zklock.WithSessionTimeout(timeout),
		zklock.WithTickTime(tick))
	require.NoError(t, err)
	defer func() { require.NoError(t, c.Close()) }()
	lost := locktest.Lock(t, c.Mutex("/outage"))
	require.NoError(t, node.Kill())
	<-lost.Context().Done()
	require.ErrorIs(t, lost.Unlock(), zklock.ErrLost)
	again := locktest.LockAside(t, c.Mutex("/outage"))
	stalls := locktest.Stalls(t)
	node.Restart(t)
	back := time.Now()
	h := again.Result(t)
	took, stalled := time.Since(back), stalls()
	locktest.Unlock(t, h)
	t.Logf("held again %v after the server was back, with a session timeout of %v",
		locktest.Millis(took), timeout)
	require.Less(t, took, timeout/2+3*stalled)
}

// Scenario 85: two of three real servers, among them those of most of the holders, take connections
// and answer nothing. All holds survive, wherever in their heartbeats that finds them.
func TestScenario85_HoldsSurviveTwoSilentRealServers(t *testing.T) {
	const (
		clients = 30
		timeout = 10 * time.Second
	)
	e := ensemble.Start(t, 3, ensemble.WithTick(2*time.Second))
	var addrs []string
	proxies := e.Proxies(t)
	for _, p := range proxies {
		addrs = append(addrs, p.Addr())
	}
	var holds []*zklock.Hold
	for i := range clients {
		c, err := zklock.Dial(locktest.Soon(t), strings.Join(addrs, ","),
			zklock.WithSessionTimeout(timeout), zklock.WithoutLog())
		require.NoError(t, err)
		defer func() { require.NoError(t, c.Close()) }()
		holds = append(holds, locktest.Lock(t, c.Mutex(fmt.Sprint("/silent/", i))))
		// so that each is at another moment between two heartbeats
		locktest.Pass(timeout / 3 / clients)
	}
	silenced := proxies[0].Open() + proxies[1].Open()
	stalls := locktest.Stalls(t)
	for _, p := range proxies[:2] {
		p.Freeze()
		defer p.Thaw()
	}
	locktest.Pass(timeout)
	stalled := stalls()
	t.Logf("the servers of %d of %d holders fell silent; this process was kept from running for up to %v", silenced, clients, locktest.Millis(stalled))
	for _, h := range holds {
		require.NoError(t, h.Err())
	}
}
