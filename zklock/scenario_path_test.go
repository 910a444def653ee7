package zklock_test

import (
	"context"
	"path"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/internal/session"
	"github.com/zklock/locker/tests/locktest"
	"github.com/zklock/locker/zklock"
	"github.com/zklock/locker/zktest/fault"
)

// Scenario 46: paths that cannot be those of a lock.

// scenario 46: a path that ZooKeeper, or we, could not use as a lock is refused by every call,
// before any I/O, with an error that names the path and the rule.
func TestScenario46_ABadPathIsRefusedWithThePathAndTheRule(t *testing.T) {
	long := "/" + strings.Repeat("x", 4096)
	for name, c := range map[string]struct{ path, rule string }{
		"empty":                     {"", "is empty"},
		"relative":                  {"locks/a", "does not begin with a slash"},
		"a trailing slash":          {"/locks/a/", "ends with a slash"},
		"two slashes":               {"/locks//a", "has an empty component"},
		"two dots":                  {"/locks/../a", "has a relative component .."},
		"two dots at the end":       {"/locks/..", "has a relative component .."},
		"a dot":                     {"/./a", "has a relative component ."},
		"NUL":                       {"/locks/a\x00b", "holds a character that ZooKeeper excludes"},
		"a control character":       {"/locks/a\nb", "holds a character that ZooKeeper excludes"},
		"a C1 control character":    {"/locks/\u0085", "holds a character that ZooKeeper excludes"},
		"a private character":       {"/locks/\ue000", "holds a character that ZooKeeper excludes"},
		"beyond the basic plane":    {"/😀", "holds a character that ZooKeeper excludes"},
		"a non-character":           {"/locks/\uffff", "holds a character that ZooKeeper excludes"},
		"invalid UTF-8":             {"/locks/\xff", "is not UTF-8"},
		"the root":                  {"/", "is the root"},
		"ZooKeeper's own":           {"/zookeeper", "belongs to ZooKeeper itself"},
		"below ZooKeeper's own":     {"/zookeeper/quota", "belongs to ZooKeeper itself"},
		"too long":                  {long, "4096 bytes"},
		"no room for a contender":   {long[:4090], "no room for a contender"},
		"only spaces and no slash":  {"  ", "does not begin with a slash"},
		"a slash of another system": {`\locks\a`, "does not begin with a slash"},
		"a contender's name": {"/locks/lock-0000000001",
			"is what a contender's znode is called"},
		"below a contender's name": {"/locks/job-lease-1-0000000001/a",
			"is what a contender's znode is called"},
	} {
		t.Run(name, func(t *testing.T) {
			locktest.Simulate(t, func(s *locktest.Sim) {
				cl := s.Client()
				synctest.Wait()
				before := s.Server.Requests()
				m := cl.Mutex(c.path)
				_, _, lockErr := m.Lock(s.Context())
				_, _, tryErr := m.TryLock(s.Context())
				doErr := m.Do(s.Context(), func(context.Context) error { panic("called") })
				for _, err := range []error{lockErr, tryErr, doErr} {
					require.ErrorIs(s, err, zklock.ErrPath)
					require.ErrorContains(s, err, c.rule)
					quoted := strconv.Quote(c.path)
					require.ErrorContains(s, err, quoted[:min(len(quoted)-1, 200)], "the path")
				}
				synctest.Wait()
				require.Equal(s, before, s.Server.Requests(), "no I/O")
			})
		})
	}
}

// scenario 46: unusual paths that are allowed work.
func TestScenario46_AnOddPathThatIsAllowedWorks(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		c := s.Client()
		for _, p := range []string{"/a", "/.a", "/...", "/a b", "/\u00e9\u3042", "/lock-1",
			"/a/_c_x", "/zookeeperx", "/%2e%2e"} {
			h := s.Lock(c.Mutex(p))
			s.Owned(c, h)
			require.Equal(s, p, path.Dir(h.Node()))
			s.Unlock(h)
		}
	})
}

// scenario 46: a path that is another recipe's directory, or cannot be a directory at all:
// ErrConflict, with the path and what is there, and nothing of ours is left in it.
func TestScenario46_AnotherRecipesDirectoryIsRefused(t *testing.T) {
	for name, c := range map[string]struct{ child, says string }{
		"Curator's read lock": {"_c_00000000-0000-4000-8000-000000000000-__READ__0000000003",
			"__READ__"},
		"Curator's write lock": {"_c_00000000-0000-4000-8000-000000000000-__WRIT__0000000003",
			"__WRIT__"},
		"Kazoo's read lock": {"00000000000040008000000000000000__rlock__0000000003",
			"__rlock__"},
	} {
		t.Run(name, func(t *testing.T) {
			locktest.Simulate(t, func(s *locktest.Sim) {
				dir, cl, other := s.Dir("/locks/a"), s.Client(), s.Stranger()
				s.Plant(other, dir+"/"+c.child)
				require.NoError(s, s.Server.SetSequence(dir, 4))
				for _, lock := range []func(*zklock.Mutex, context.Context) (context.Context,
					*zklock.Hold, error){
					(*zklock.Mutex).Lock, (*zklock.Mutex).TryLock,
				} {
					_, _, err := lock(cl.Mutex(dir), s.Context())
					require.ErrorIs(s, err, zklock.ErrConflict)
					require.ErrorContains(s, err, dir)
					require.ErrorContains(s, err, c.says)
					synctest.Wait()
					require.Equal(s, []string{c.child}, s.Server.Children(dir))
				}
			})
		})
	}
	t.Run("an ephemeral znode", func(t *testing.T) {
		locktest.Simulate(t, func(s *locktest.Sim) {
			c, other := s.Client(), s.Stranger()
			s.Dir("/locks")
			_, err := other.Create(s.Context(), "/locks/leader", nil, session.Ephemeral,
				session.WorldACL())
			require.NoError(s, err)
			for _, p := range []string{"/locks/leader", "/locks/leader/below"} {
				_, _, err = c.Mutex(p).Lock(s.Context())
				require.ErrorIs(s, err, zklock.ErrConflict)
				require.ErrorContains(s, err, p)
				require.ErrorContains(s, err, "ephemeral")
			}
		})
	})
}

// The lock's directory. More is in testdata/scripts/directory.txt.

// scenario 45: many clients create the directory at once, some as a container, some as a persistent
// znode: all succeed.
func TestScenario45_ManyClientsCreateTheDirectoryAtOnceInDifferentModes(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		const dir, n = "/not/yet/there/a", 24
		// All creates of the directory wait until all clients have found it missing.
		missing := s.Server.Inject(fault.Hold().Op(fault.OpCreate,
			fault.OpCreateContainer).Path("/not", "/not/yet", "/not/yet/there", dir))
		var locks []*zklock.Mutex
		for i := range n {
			var opts []zklock.LockOption
			if i%2 == 0 {
				opts = append(opts, zklock.WithContainer())
			}
			if i%3 == 0 {
				opts = append(opts, zklock.WithACL(zk.WorldACL(zk.PermAll)...))
			}
			locks = append(locks, s.Client().Mutex(dir, opts...))
		}
		go func() {
			assert.NoError(s, missing.Wait(s.Context(), n))
			assert.Equal(s, n, missing.Hits(), "each has asked for the directory once")
			for range 8 { // from the leaf to the root and back, all of them in step
				missing.Release()
				time.Sleep(time.Millisecond)
			}
			missing.Remove()
		}()
		inside := 0
		for i, err := range together(n, func(i int) error {
			// only the holder writes
			return locks[i].Do(s.Context(), func(context.Context) error { inside++; return nil })
		}) {
			require.NoError(s, err, "client %d", i)
		}
		require.Equal(s, n, inside)
		require.Empty(s, s.Server.Children(dir))
	})
}

// Scenario 50, for the data of the directory itself: another client keeps 1 MB at a lock's path,
// and a burst of calls that read the directory's data (a semaphore's size) costs no other hold of
// the client.
func TestScenario50_MuchDataAtALocksPathCostNoOtherHold(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		dir, c := s.Dir("/l"), slowHolder(s, 1_250_000)
		require.NoError(s, s.Server.SetData(dir, bulk))
		// 20 s for their data, if all asked at once
		for _, err := range together(25, func(int) error {
			return errOf(c.Semaphore(dir, 3).Acquire(s.Context(), 1))
		}) {
			require.ErrorIs(s, err, zklock.ErrConflict)
		}
		time.Sleep(time.Minute)
	})
}
