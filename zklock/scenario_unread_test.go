package zklock_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/tests/locktest"
	"github.com/zklock/locker/zklock"
	"github.com/zklock/locker/zktest"
	"github.com/zklock/locker/zktest/fault"
)

// scenario 54: a waiter whose predecessor's ACL grants it no READ is not notified. It looks from
// time to time.
func TestScenario54_AWaiterThatMayNotReadTheOneBeforeItLooksFromTimeToTime(t *testing.T) {
	for _, kind := range anyKinds {
		for waited, most := range map[time.Duration]time.Duration{0: 11 * time.Second,
			10 * time.Minute: time.Minute} {
			for _, version := range []zktest.Version{zktest.Version38, zktest.Version39} {
				t.Run(fmt.Sprint(kind.name, "/", waited, "/", version), func(t *testing.T) {
					locktest.Simulate(t, func(s *locktest.Sim) {
						dir := s.Dir("/locks/a")
						require.NoError(s, s.Server.Create(dir+"-2", nil))
						alice, bob := s.Client(zklock.WithAuth("digest",
							[]byte("alice:a"))), s.Client()
						first := s.Take(kind.lock(alice.Client, dir,
							zklock.WithACL(zk.ACL{Perms: zk.PermAll, Scheme: "auth"})))
						call := s.Start(kind.lock(bob.Client, dir))
						asked := s.Server.Requests()[fault.OpGetChildren2]
						time.Sleep(waited)
						require.False(s, call.Over())
						require.LessOrEqual(s, s.Server.Requests()[fault.OpGetChildren2]-asked,
							4+int(waited.Minutes()), "looks")
						s.Unlock(first)
						at := time.Now()
						h := call.Get(s)
						require.LessOrEqual(s, call.At.Sub(at), most)
						s.Unlock(h)
						s.Empty(time.Second, dir)
						synctest.Wait()
						require.Zero(s, s.Server.WatchCount())
						watched := s.Server.Requests()[fault.OpSetWatches]
						s.Server.DropConnections()
						require.NoError(s, alice.Current().Sync(s.Context(), "/"))
						require.NoError(s, bob.Current().Sync(s.Context(), "/"))
						require.Equal(s, watched, s.Server.Requests()[fault.OpSetWatches],
							"no client watches anything any more")
					}, zktest.WithVersion(version))
				})
			}
		}
	}
}

// A waiter that may not read its own znode is not notified of its deletion: a list has to show that
// the znode exists.
func TestScenario47_AWaiterThatMayNotReadItsOwnZnodeHoldsByAList(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		dir, a, b, c := s.Dir("/locks/a"), s.Client(), s.Client(), s.Client()
		h := s.Lock(a.Mutex(dir))
		blind := b.Mutex(dir,
			zklock.WithACL(zk.ACL{Perms: zk.PermAll &^ zk.PermRead, Scheme: "world", ID: "anyone"}))
		call := locktest.Go(s.Context(), blind.Lock)
		require.False(s, call.Over())
		require.NoError(s, s.Server.Delete(dir+"/"+locktest.Contenders(s.Server.Children(dir))[1]))
		// it queues again behind the third
		again := s.Server.Inject(fault.Hold().Op(fault.OpCreate).Session(b.SessionID()))
		s.Unlock(h)
		third := s.Lock(c.Mutex(dir))
		require.False(s, call.Over())
		again.Remove()
		s.Unlock(third)
		h = call.Get(s)
		s.Owned(b, h)
		s.Unlock(h)
		synctest.Wait()
		require.Zero(s, s.Server.WatchCount())
		s.Empty(time.Second, dir)
	})
}

// A hold whose znode its own client may not read is not notified of the znode's deletion by its own
// Unlock. The watch must not stay in the session's table, where every reconnection would set it
// again.
func TestHoldsOfUnreadableZnodesLeaveNoWatches(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		dir, c := s.Dir("/l"), s.Client()
		m := c.Mutex(dir,
			zklock.WithACL(zk.ACL{Perms: zk.PermAll &^ zk.PermRead, Scheme: "world", ID: "anyone"}))
		for range 20 {
			h := s.Lock(m)
			time.Sleep(time.Second)
			s.Unlock(h)
		}
		synctest.Wait()
		before := s.Server.Notifications()
		s.Server.DropConnections()
		require.NoError(s, c.Current().Sync(s.Context(), "/"))
		time.Sleep(time.Second)
		require.Zero(s, s.Server.Notifications()-before, "watches of the past are set again")
	})
}
