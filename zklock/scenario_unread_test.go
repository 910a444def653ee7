package zklock_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/zklock"
	"github.com/zklock/locker/zktest"
)

// unreadPause is how long a waiter that can't read the znode before its own may take to find out that it is gone: an
// eighth of the session timeout of 10 s.
const unreadPause = 10 * time.Second / 8

// scenario 54: a waiter whose predecessor's ACL grants it no READ is told of nothing. It looks from time to time.
func TestScenario54_AWaiterThatMayNotReadTheOneBeforeItLooksFromTimeToTime(t *testing.T) {
	type lock = func(c *simClient, opts ...zklock.LockOption) func(context.Context) (*zklock.Hold, error)
	const dir = "/locks/a"
	kinds := map[string]lock{
		"mutex": func(c *simClient, opts ...zklock.LockOption) func(context.Context) (*zklock.Hold, error) {
			return c.Mutex(dir, opts...).Lock
		},
		"write lock": func(c *simClient, opts ...zklock.LockOption) func(context.Context) (*zklock.Hold, error) {
			return c.RWMutex(dir, opts...).Lock
		},
		"multi": func(c *simClient, opts ...zklock.LockOption) func(context.Context) (*zklock.Hold, error) {
			return c.MultiLock([]string{"/locks/b", dir}, opts...).Lock
		},
		"semaphore": func(c *simClient, opts ...zklock.LockOption) func(context.Context) (*zklock.Hold, error) {
			return func(ctx context.Context) (*zklock.Hold, error) { return c.Semaphore(dir, 1, opts...).Acquire(ctx, 1) }
		},
	}
	for name, kind := range kinds {
		for waited, d := range map[string]time.Duration{"at once": 0, "soon": 100 * time.Millisecond, "late": 10 * time.Minute} {
			for server, set := range map[string]func(s *sim){
				"ZooKeeper":         func(*sim) {},
				"without watch set": func(s *sim) { s.srv.Inject(zktest.Answer(zktest.CodeUnimplemented).Op(zktest.OpSetWatches)) },
			} {
				for _, version := range []zktest.Version{zktest.Version38, zktest.Version39} {
					t.Run(name+"/"+waited+"/"+server+" "+string(version), func(t *testing.T) {
						simTest(t, func(s *sim) {
							for _, p := range []string{"/locks", dir, "/locks/b"} {
								require.NoError(s, s.srv.Create(p, nil))
							}
							set(s)
							alice, bob := s.client(zklock.WithAuth("digest", []byte("alice:a"))), s.client()
							closed := zklock.WithACL(zk.ACL{Perms: zk.PermAll, Scheme: "auth"})
							first, err := kind(alice, closed)(s.Context())
							require.NoError(s, err)
							second := simGo(s.Context(), kind(alice, closed))
							synctest.Wait()
							call := simGo(s.Context(), kind(bob))
							synctest.Wait()
							asked := s.srv.Requests()[zktest.OpGetChildren2]
							time.Sleep(d)
							require.False(s, call.over())
							require.LessOrEqual(s, s.srv.Requests()[zktest.OpGetChildren2]-asked, 10+2*int(d/unreadPause), "looks")
							s.unlock(first)
							s.unlock(second.get(s))
							at := time.Now()
							h := call.get(s)
							require.LessOrEqual(s, call.at.Sub(at), 2*unreadPause)
							s.unlock(h)
							s.empty(time.Second, dir)
							synctest.Wait()
							require.Zero(s, s.srv.WatchCount())
							watched := s.srv.Requests()[zktest.OpSetWatches]
							s.srv.DropConnections()
							require.NoError(s, alice.session().Sync(s.Context(), "/"))
							require.NoError(s, bob.session().Sync(s.Context(), "/"))
							require.Equal(s, watched, s.srv.Requests()[zktest.OpSetWatches], "no client watches anything any more")
						}, zktest.WithVersion(version))
					})
				}
			}
		}
	}
}

// One who may not read its own znode would not be told that it was removed: a list has to show that it stands.
func TestScenario47_AWaiterThatMayNotReadItsOwnZnodeHoldsByAList(t *testing.T) {
	simTest(t, func(s *sim) {
		dir, a, b, c := s.dir("/locks/a"), s.client(), s.client(), s.client()
		h := s.lock(a.Mutex(dir))
		blind := b.Mutex(dir, zklock.WithACL(zk.ACL{Perms: zk.PermAll &^ zk.PermRead, Scheme: "world", ID: "anyone"}))
		call := simGo(s.Context(), blind.Lock)
		require.False(s, call.over())
		require.NoError(s, s.srv.Delete(dir+"/"+contenders(s.srv.Children(dir))[1]))
		again := s.srv.Inject(zktest.Hold().Op(zktest.OpCreate).Session(b.id())) // it queues again behind the third
		s.unlock(h)
		third := s.lock(c.Mutex(dir))
		require.False(s, call.over())
		again.Remove()
		s.unlock(third)
		h = call.get(s)
		s.owned(b, h)
		s.unlock(h)
		synctest.Wait()
		require.Zero(s, s.srv.WatchCount())
		s.empty(time.Second, dir)
	})
}
