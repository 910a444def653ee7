package zklock_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/zklock"
	"github.com/zklock/locker/zktest"
)

// removedKind is a way to wait for /locks/a behind somebody who holds it.
type removedKind struct {
	hold, wait func(c *simClient) func(context.Context) (*zklock.Hold, error)
	dir        string // where the waiter's znode is removed; "": /locks/a
}

func removedKinds() map[string]removedKind {
	type lock = func(c *simClient) func(context.Context) (*zklock.Hold, error)
	const dir = "/locks/a"
	mutex := func(opts ...zklock.LockOption) lock {
		return func(c *simClient) func(context.Context) (*zklock.Hold, error) { return c.Mutex(dir, opts...).Lock }
	}
	multi := func(c *simClient) func(context.Context) (*zklock.Hold, error) {
		return c.MultiLock([]string{"/locks/b", dir, "/locks/c"}).Lock
	}
	read := func(c *simClient) func(context.Context) (*zklock.Hold, error) { return c.RWMutex(dir).RLock }
	write := func(c *simClient) func(context.Context) (*zklock.Hold, error) { return c.RWMutex(dir).Lock }
	permit := func(c *simClient) func(context.Context) (*zklock.Hold, error) {
		return func(ctx context.Context) (*zklock.Hold, error) { return c.Semaphore(dir, 1).Acquire(ctx, 1) }
	}
	lead := func(c *simClient) func(context.Context) (*zklock.Hold, error) {
		return func(ctx context.Context) (*zklock.Hold, error) {
			l, err := c.Election(dir).Campaign(ctx, nil)
			if err != nil {
				return nil, err
			}
			return l.Hold, nil
		}
	}
	return map[string]removedKind{
		"mutex":                       {hold: mutex(), wait: mutex()},
		"local handoff":               {hold: mutex(zklock.WithLocalHandoff(3)), wait: mutex(zklock.WithLocalHandoff(3))},
		"lock delay":                  {hold: mutex(zklock.WithLockDelay(0)), wait: mutex(zklock.WithLockDelay(0))},
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

// removedMoments are the moments at which the waiter's znode is removed, and the holder lets go. Each leads the waiter
// into the line, and does both.
var removedMoments = map[string]func(s *sim, c *simClient, call func() *simCall, remove, unlock func()) *simCall{
	"as soon as it waits": func(s *sim, _ *simClient, call func() *simCall, remove, unlock func()) *simCall {
		waiter := call()
		synctest.Wait()
		remove()
		unlock()
		return waiter
	},
	"after a while": func(s *sim, _ *simClient, call func() *simCall, remove, unlock func()) *simCall {
		waiter := call()
		time.Sleep(290 * time.Millisecond)
		remove()
		unlock()
		return waiter
	},
	"after a long time": func(s *sim, _ *simClient, call func() *simCall, remove, unlock func()) *simCall {
		waiter := call()
		time.Sleep(time.Minute)
		remove()
		unlock()
		return waiter
	},
	"before it watches": func(s *sim, c *simClient, call func() *simCall, remove, unlock func()) *simCall {
		in := s.srv.Inject(zktest.Hold().Op(zktest.OpSetWatches, zktest.OpExists).Session(c.id()).Once())
		waiter := call()
		synctest.Wait()
		remove()
		in.Remove()
		unlock()
		return waiter
	},
	"before it watches, and the other lets go too": func(s *sim, c *simClient, call func() *simCall, remove, unlock func()) *simCall {
		in := s.srv.Inject(zktest.Hold().Op(zktest.OpSetWatches, zktest.OpExists).Session(c.id()).Once())
		waiter := call()
		synctest.Wait()
		remove()
		unlock()
		in.Remove()
		return waiter
	},
	"and the reply to its watch is lost": func(s *sim, c *simClient, call func() *simCall, remove, unlock func()) *simCall {
		s.srv.Inject(zktest.CloseAfter().Op(zktest.OpSetWatches, zktest.OpExists).Session(c.id()).Once())
		waiter := call()
		synctest.Wait()
		remove()
		unlock()
		return waiter
	},
	"while it has no connection": func(s *sim, c *simClient, call func() *simCall, remove, unlock func()) *simCall {
		waiter := call()
		synctest.Wait()
		c.member.Down()
		synctest.Wait()
		remove()
		unlock()
		c.member.Up()
		return waiter
	},
	"and somebody sets its data before": func(s *sim, c *simClient, call func() *simCall, remove, unlock func()) *simCall {
		waiter := call()
		synctest.Wait()
		in := s.srv.Inject(zktest.Hold().Op(zktest.OpSetWatches, zktest.OpExists).Session(c.id()).Once())
		for _, dir := range []string{"/locks/a", "/locks/b", "/locks/c"} {
			if names := contenders(s.srv.Children(dir)); len(names) > 0 {
				require.NoError(s, s.srv.SetData(dir+"/"+names[len(names)-1], []byte("{}")))
			}
		}
		synctest.Wait() // it watches again, or is about to
		remove()
		unlock()
		in.Remove()
		return waiter
	},
}

// scenario 47: a waiter's znode is removed by somebody else at any moment, its first milliseconds included: it never holds
// without one, and queues again. So whatever ways a server has to set and to tell watches.
func TestScenario47_AWaiterWhoseZnodeIsRemovedNeverHoldsWithoutOne(t *testing.T) {
	servers := map[string]struct {
		opts  []zktest.Option
		fault zktest.Fault
		set   bool
	}{
		"ZooKeeper":         {},
		"events come late":  {opts: []zktest.Option{zktest.WithLateEvents()}},
		"without watch set": {fault: zktest.Answer(zktest.CodeUnimplemented).Op(zktest.OpSetWatches), set: true},
	}
	for server, kind := range servers {
		for name, k := range removedKinds() {
			for moment, lead := range removedMoments {
				t.Run(server+"/"+name+"/"+moment, func(t *testing.T) {
					simTest(t, func(s *sim) {
						if kind.set {
							s.srv.Inject(kind.fault)
						}
						removedWaiter(s, k, lead)
					}, kind.opts...)
				})
			}
		}
	}
}

func removedWaiter(s *sim, k removedKind, lead func(*sim, *simClient, func() *simCall, func(), func()) *simCall) {
	for _, dir := range []string{"/locks", "/locks/a", "/locks/b", "/locks/c"} {
		require.NoError(s, s.srv.Create(dir, nil))
	}
	other, waiting, third := s.client(), s.client(), s.client()
	waiting.at(s.follower())
	s.reconnect(waiting)
	hold, err := k.hold(other)(s.Context())
	require.NoError(s, err)
	dir := k.dir
	if dir == "" {
		dir = "/locks/a"
	}
	stood := len(s.srv.Children(dir))
	waiter := lead(s, waiting, func() *simCall { return simGo(s.Context(), k.wait(waiting)) }, func() {
		names := contenders(s.srv.Children(dir))
		require.Len(s, names, stood+1)
		require.NoError(s, s.srv.Delete(dir+"/"+names[stood]))
	}, func() { s.unlock(hold) })
	next := simGo(s.Context(), k.hold(third))

	// Both want it: one has it, with a znode in every directory, and then the other one.
	calls := map[*simCall]*simClient{waiter: waiting, next: third}
	for len(calls) > 0 {
		var first *simCall
		s.until(10*time.Second, "somebody holds", func() bool {
			for call := range calls {
				if call.over() {
					require.NoError(s, call.err)
					require.NoError(s, call.hold.Err())
					for _, node := range call.hold.Nodes() {
						n, stands := s.srv.Node(node)
						require.True(s, stands, "%s is held by one who has no place there", node)
						require.Equal(s, calls[call].id(), n.Stat.EphemeralOwner)
					}
					first = call
				}
			}
			return first != nil
		})
		s.unlock(first.hold)
		delete(calls, first)
	}
	for _, dir := range []string{"/locks/a", "/locks/b", "/locks/c"} {
		s.empty(time.Second, dir)
	}
	synctest.Wait()
	require.Zero(s, s.srv.WatchCount(), "%v", s.srv.Watches())
}

// reconnect has the client leave its server for the one that it was told to be at.
func (s *sim) reconnect(c *simClient) {
	s.Helper()
	s.srv.DropConnections()
	require.NoError(s, c.session().Sync(s.Context(), "/"))
}
