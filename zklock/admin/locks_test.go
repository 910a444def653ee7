package admin_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/tests/locktest"
	"github.com/zklock/locker/zklock"
	"github.com/zklock/locker/zklock/admin"
	"github.com/zklock/locker/zktest/fault"
)

func TestLocksFindsWhatIsInUseBelowARoot(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		c := s.Client()
		for _, p := range []string{"/app", "/app/unused", "/app/deep", "/other"} {
			require.NoError(s, s.Server.Create(p, nil))
		}
		h := s.Lock(c.Mutex("/app/a", zklock.WithOwner("me")))
		waits := locktest.Go(s.Context(), s.Client().Mutex("/app/a").Lock)
		synctest.Wait()
		_, p, err := c.Semaphore("/app/deep/s", 3).Acquire(s.Context(), 2)
		require.NoError(s, err)
		s.Lock(c.Mutex("/other/b"))

		found, err := admin.Locks(s.Context(), c.Client, "/app", admin.Search{})
		require.NoError(s, err)
		require.Len(s, found.Locks, 2)
		require.Equal(s, "/app/a", found.Locks[0].Path)
		require.Equal(s, 1, found.Locks[0].Holding)
		require.Equal(s, 1, found.Locks[0].Waiting)
		require.Len(s, found.Locks[0].Contenders, 1, "one that holds")
		require.Equal(s, "me", found.Locks[0].Contenders[0].Owner)
		require.Equal(s, "semaphore", found.Locks[1].Kind)
		require.Equal(s, 3, found.Locks[1].Permits)
		require.False(s, found.Truncated)
		require.Zero(s, found.Hidden)

		found, err = admin.Locks(s.Context(), c.Client, "/", admin.Search{Rows: 5})
		require.NoError(s, err)
		require.Len(s, found.Locks, 3)
		require.Len(s, found.Locks[0].Contenders, 2)
		found, err = admin.Locks(s.Context(), c.Client, "/app", admin.Search{Depth: 1})
		require.NoError(s, err)
		require.Len(s, found.Locks, 1)
		require.True(s, found.Truncated)
		found, err = admin.Locks(s.Context(), c.Client, "/app", admin.Search{Znodes: 2})
		require.NoError(s, err)
		require.Equal(s, 2, found.Looked)
		require.True(s, found.Truncated)
		found, err = admin.Locks(s.Context(), c.Client, "/app/a", admin.Search{Rows: 1})
		require.NoError(s, err)
		require.Len(s, found.Locks[0].Contenders, 1)
		require.False(s, found.Truncated, "the search left out nothing")

		s.Unlock(p)
		s.Unlock(h)
		s.Unlock(waits.Get(s))
		found, err = admin.Locks(s.Context(), c.Client, "/app", admin.Search{})
		require.NoError(s, err)
		require.Empty(s, found.Locks)
	})
}

// A job's record may have thousands of znodes, of which none is a lock; a lock beside them is
// found.
func TestLocksDoesNotSearchTheRecordsOfJobs(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		c := s.Client()
		work := func(context.Context) error { return nil }
		for i := range 50 {
			_, err := c.Job("/app/j").Once(s.Context(), fmt.Sprint(i), work)
			require.NoError(s, err)
		}
		_, err := c.Job("/app/j").Every(s.Context(), time.Hour, work)
		require.NoError(s, err)
		s.Lock(c.Mutex("/app/j.done/inside"))
		s.Lock(c.Mutex("/app/j.done/eu")) // its name is as long as that of a record's znode
		found, err := admin.Locks(s.Context(), c.Client, "/app", admin.Search{})
		require.NoError(s, err)
		require.Len(s, found.Locks, 2)
		require.Equal(s, 5, found.Looked, "/app, j, j.done, inside and eu")
	})
}

func TestLocksLeavesOutWhatMayNotBeReadAndSaysSo(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		alice, bob := s.Client(zklock.WithAuth("digest", []byte("alice:a"))), s.Client()
		require.NoError(s, s.Server.Create("/app", nil))
		private := zklock.WithACL(zk.ACL{Perms: zk.PermAll, Scheme: "auth"})
		s.Lock(alice.Mutex("/app/closed", private))
		s.Lock(bob.Mutex("/app/open"))
		found, err := admin.Locks(s.Context(), bob.Client, "/app", admin.Search{})
		require.NoError(s, err)
		require.Len(s, found.Locks, 1)
		require.Equal(s, 1, found.Hidden)
		_, err = admin.Locks(s.Context(), bob.Client, "/app/closed", admin.Search{})
		require.ErrorIs(s, err, zk.ErrNoAuth, "an empty list would say that nobody holds it")
	})
}

// The list of the root is longer than a client reads.
func TestLocksSaysThatItsRootIsTooLarge(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		c := s.Client()
		s.Lock(c.Mutex("/app/l"))
		s.Server.Inject(fault.Garble(func(reply []byte) []byte {
			return append(reply, make([]byte, 33<<20)...)
		}).Op(fault.OpGetChildren2).Path("/app"))
		_, err := admin.Locks(s.Context(), c.Client, "/app", admin.Search{})
		require.ErrorIs(s, err, zklock.ErrTooLarge)
	})
}

// A lock that may not, or can't, be read is counted, at whichever read that shows.
func TestLocksCountsWhatCanNotBeRead(t *testing.T) {
	tooLong := fault.Garble(func(reply []byte) []byte {
		return append(reply, make([]byte, 33<<20)...)
	})
	for name, refusal := range map[string]fault.Fault{
		"a list that is too long":           tooLong.Times(2), // one is read again, by itself
		"a second list that is too long":    tooLong.After(1),
		"a list that is refused":            fault.Answer(fault.CodeNoAuth),
		"a second list that is refused":     fault.Answer(fault.CodeNoAuth).After(1),
		"a znode that goes before the list": fault.Answer(fault.CodeNoNode),
	} {
		t.Run(name, func(t *testing.T) {
			locktest.Simulate(t, func(s *locktest.Sim) {
				c := s.Client()
				s.Lock(c.Mutex("/app/a"))
				s.Lock(c.Mutex("/app/b"))
				s.Server.Inject(refusal.Op(fault.OpGetChildren2).Path("/app/a"))
				found, err := admin.Locks(s.Context(), c.Client, "/app", admin.Search{})
				require.NoError(s, err)
				require.Len(s, found.Locks, 1)
				require.Equal(s, "/app/b", found.Locks[0].Path)
				want := 1
				if strings.HasPrefix(name, "a znode that goes") {
					want = 0
				}
				require.Equal(s, want, found.Hidden)
				require.Equal(s, 3, found.Looked)
			})
		})
	}
}

func TestLocksSaysThatItsRootIsALockWhoseLineCanNotBeRead(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		c := s.Client()
		s.Lock(c.Mutex("/app"))
		s.Server.Inject(fault.Answer(fault.CodeNoAuth).Op(fault.OpGetChildren2).Path("/app").
			After(1))
		_, err := admin.Locks(s.Context(), c.Client, "/app", admin.Search{})
		require.ErrorIs(s, err, zk.ErrNoAuth)
	})
}

func TestLocksBelowARootThatDoesNotExistAreNone(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		found, err := admin.Locks(s.Context(), s.Client().Client, "/none", admin.Search{})
		require.NoError(s, err)
		require.Equal(s, admin.Found{Locks: []admin.QueuePage{}, Looked: 1}, found)
	})
}

// Of the lines that are read before an error, the result has all; of a search that fails before
// them, none.
func TestLocksReturnsWithAnErrorWhatItHasRead(t *testing.T) {
	for name, before := range map[string]int{"in the search": 0, "in the reads": 1} {
		t.Run(name, func(t *testing.T) {
			locktest.Simulate(t, func(s *locktest.Sim) {
				c := s.Client()
				s.Lock(c.Mutex("/app/a"))
				s.Lock(c.Mutex("/app/b"))
				s.Server.Inject(fault.Answer(fault.CodeBadArguments).Op(fault.OpGetChildren2).
					Path("/app/b").After(before))
				found, err := admin.Locks(s.Context(), c.Client, "/app", admin.Search{})
				require.Error(s, err)
				require.Len(s, found.Locks, before)
				require.Equal(s, 3, found.Looked)
				require.False(s, found.Truncated)
			})
		})
	}
}

func TestLocksRefusesLimitsThatLeaveNothing(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		c := s.Client()
		for _, o := range []admin.Search{{Znodes: -1}, {Depth: -1}, {Rows: -1}} {
			_, err := admin.Locks(s.Context(), c.Client, "/", o)
			require.ErrorIs(s, err, zklock.ErrInvalid)
		}
		_, err := admin.Locks(s.Context(), c.Client, "no path", admin.Search{})
		require.ErrorIs(s, err, zklock.ErrPath)
		ctx, cancel := context.WithCancel(s.Context())
		cancel()
		_, err = admin.Locks(ctx, c.Client, "/", admin.Search{})
		require.ErrorIs(s, err, context.Canceled)
	})
}
