package zklock_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/tests/locktest"
	"github.com/zklock/locker/zklock"
	"github.com/zklock/locker/zktest/fault"
)

// removedKind is a way to wait for /locks/a behind a holder.
type removedKind struct {
	hold, wait func(c *locktest.Client) locktest.Acquire
	dir        string // where the waiter's znode is removed; "": /locks/a
}

func removedKinds() map[string]removedKind {
	type lock = func(c *locktest.Client) locktest.Acquire
	const dir = "/locks/a"
	mutex := func(opts ...zklock.LockOption) lock {
		return func(c *locktest.Client) locktest.Acquire {
			return c.Mutex(dir, opts...).Lock
		}
	}
	multi := func(c *locktest.Client) locktest.Acquire {
		return c.MultiLock([]string{"/locks/b", dir, "/locks/c"}).Lock
	}
	read := func(c *locktest.Client) locktest.Acquire { return c.RWMutex(dir).RLock }
	write := func(c *locktest.Client) locktest.Acquire { return c.RWMutex(dir).Lock }
	permit := func(c *locktest.Client) locktest.Acquire {
		return func(ctx context.Context) (context.Context, *zklock.Hold, error) {
			return c.Semaphore(dir, 1).Acquire(ctx, 1)
		}
	}
	lead := func(c *locktest.Client) locktest.Acquire {
		return locktest.Campaign(c.Election(dir), "")
	}
	return map[string]removedKind{
		"mutex":                       {hold: mutex(), wait: mutex()},
		"local handoff":               {hold: mutex(zklock.WithHandoffs(3)), wait: mutex(zklock.WithHandoffs(3))},
		"election":                    {hold: lead, wait: lead},
		"reader behind a writer":      {hold: write, wait: read},
		"writer behind a reader":      {hold: read, wait: write},
		"writer behind a writer":      {hold: write, wait: write},
		"semaphore":                   {hold: permit, wait: permit},
		"multi, where it waits":       {hold: mutex(), wait: multi},
		"multi, where it holds":       {hold: mutex(), wait: multi, dir: "/locks/b"},
		"multi, where it would hold":  {hold: mutex(), wait: multi, dir: "/locks/c"},
		"multi behind a multi, first": {hold: multi, wait: multi, dir: "/locks/b"},
	}
}

// removedMoments are the moments at which the waiter's znode is removed and the holder releases. Each makes the waiter enter
// the queue, and does both.
var removedMoments = map[string]func(s *locktest.Sim, c *locktest.Client, call func() *locktest.Call, remove, unlock func()) *locktest.Call{
	"as soon as it waits": func(s *locktest.Sim, _ *locktest.Client, call func() *locktest.Call, remove, unlock func()) *locktest.Call {
		waiter := call()
		synctest.Wait()
		remove()
		unlock()
		return waiter
	},
	"after a while": func(s *locktest.Sim, _ *locktest.Client, call func() *locktest.Call, remove, unlock func()) *locktest.Call {
		waiter := call()
		time.Sleep(290 * time.Millisecond)
		remove()
		unlock()
		return waiter
	},
	"after a long time": func(s *locktest.Sim, _ *locktest.Client, call func() *locktest.Call, remove, unlock func()) *locktest.Call {
		waiter := call()
		time.Sleep(time.Minute)
		remove()
		unlock()
		return waiter
	},
	"before it watches": func(s *locktest.Sim, c *locktest.Client, call func() *locktest.Call, remove, unlock func()) *locktest.Call {
		in := s.Server.Inject(fault.Hold().Op(fault.OpSetWatches, fault.OpExists).Session(c.SessionID()).Once())
		waiter := call()
		synctest.Wait()
		remove()
		in.Remove()
		unlock()
		return waiter
	},
	"before it watches, and the other lets go too": func(s *locktest.Sim, c *locktest.Client, call func() *locktest.Call, remove, unlock func()) *locktest.Call {
		in := s.Server.Inject(fault.Hold().Op(fault.OpSetWatches, fault.OpExists).Session(c.SessionID()).Once())
		waiter := call()
		synctest.Wait()
		remove()
		unlock()
		in.Remove()
		return waiter
	},
	"and the reply to its watch is lost": func(s *locktest.Sim, c *locktest.Client, call func() *locktest.Call, remove, unlock func()) *locktest.Call {
		s.Server.Inject(fault.CloseAfter().Op(fault.OpSetWatches, fault.OpExists).Session(c.SessionID()).Once())
		waiter := call()
		synctest.Wait()
		remove()
		unlock()
		return waiter
	},
	"while it has no connection": func(s *locktest.Sim, c *locktest.Client, call func() *locktest.Call, remove, unlock func()) *locktest.Call {
		waiter := call()
		synctest.Wait()
		c.Member().Down()
		synctest.Wait()
		remove()
		unlock()
		c.Member().Up()
		return waiter
	},
	"and somebody sets its data before": func(s *locktest.Sim, c *locktest.Client, call func() *locktest.Call, remove, unlock func()) *locktest.Call {
		waiter := call()
		synctest.Wait()
		in := s.Server.Inject(fault.Hold().Op(fault.OpSetWatches, fault.OpExists).Session(c.SessionID()).Once())
		for _, dir := range []string{"/locks/a", "/locks/b", "/locks/c"} {
			if names := locktest.Contenders(s.Server.Children(dir)); len(names) > 0 {
				require.NoError(s, s.Server.SetData(dir+"/"+names[len(names)-1], []byte("{}")))
			}
		}
		synctest.Wait() // it watches again, or is about to
		remove()
		unlock()
		in.Remove()
		return waiter
	},
}

// scenario 47: another client removes a waiter's znode at any moment, its first milliseconds included. The waiter never
// holds without one, and queues again.
func TestScenario47_AWaiterWhoseZnodeIsRemovedNeverHoldsWithoutOne(t *testing.T) {
	for name, k := range removedKinds() {
		for moment, lead := range removedMoments {
			t.Run(name+"/"+moment, func(t *testing.T) {
				locktest.Simulate(t, func(s *locktest.Sim) { removedWaiter(s, k, lead) })
			})
		}
	}
}

func removedWaiter(s *locktest.Sim, k removedKind, lead func(*locktest.Sim, *locktest.Client, func() *locktest.Call, func(), func()) *locktest.Call) {
	for _, dir := range []string{"/locks", "/locks/a", "/locks/b", "/locks/c"} {
		require.NoError(s, s.Server.Create(dir, nil))
	}
	other, waiting, third := s.Client(), s.Client(), s.Client()
	waiting.LeadTo(s.Follower())
	reconnect(s, waiting)
	_, hold, err := k.hold(other)(s.Context())
	require.NoError(s, err)
	dir := k.dir
	if dir == "" {
		dir = "/locks/a"
	}
	stood := len(s.Server.Children(dir))
	waiter := lead(s, waiting, func() *locktest.Call { return locktest.Go(s.Context(), k.wait(waiting)) }, func() {
		names := locktest.Contenders(s.Server.Children(dir))
		require.Len(s, names, stood+1)
		require.NoError(s, s.Server.Delete(dir+"/"+names[stood]))
	}, func() { s.Unlock(hold) })
	next := locktest.Go(s.Context(), k.hold(third))

	// Both compete: one gets it, with a znode in every directory, and then the other one.
	calls := map[*locktest.Call]*locktest.Client{waiter: waiting, next: third}
	for len(calls) > 0 {
		var first *locktest.Call
		s.Until(10*time.Second, "somebody holds", func() bool {
			for call := range calls {
				if call.Over() {
					require.NoError(s, call.Err)
					require.NoError(s, call.Hold.Err())
					for _, node := range call.Hold.Nodes() {
						n, stands := s.Server.Node(node)
						require.True(s, stands, "%s is held by one who has no place there", node)
						require.Equal(s, calls[call].SessionID(), n.Stat.EphemeralOwner)
					}
					first = call
				}
			}
			return first != nil
		})
		s.Unlock(first.Hold)
		delete(calls, first)
	}
	for _, dir := range []string{"/locks/a", "/locks/b", "/locks/c"} {
		s.Empty(time.Second, dir)
	}
	synctest.Wait()
	require.Zero(s, s.Server.WatchCount(), "%v", s.Server.Watches())
}

// reconnect makes the client leave its server for the other one.
func reconnect(s *locktest.Sim, c *locktest.Client) {
	s.Helper()
	s.Server.DropConnections()
	require.NoError(s, c.Current().Sync(s.Context(), "/"))
}
