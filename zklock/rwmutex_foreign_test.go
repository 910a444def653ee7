package zklock_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/tests/locktest"
	"github.com/zklock/locker/zklock"
)

// Tests of other contenders in the directory: other kinds of locks, and Curator's readers and writers.

// A mutex, a read/write lock and a semaphore never share a path: the second one gets an error.
func TestDifferentKindsOfLocksOnOnePathAreAConflict(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		c := s.Client()
		kinds := map[string]func(*locktest.Client, string) []locktest.Acquire{
			"mutex": func(c *locktest.Client, dir string) []locktest.Acquire {
				return []locktest.Acquire{c.Mutex(dir).Lock, c.Mutex(dir).TryLock}
			},
			"write": func(c *locktest.Client, dir string) []locktest.Acquire {
				return []locktest.Acquire{c.RWMutex(dir).Lock, c.RWMutex(dir).TryLock}
			},
			"read": func(c *locktest.Client, dir string) []locktest.Acquire {
				return []locktest.Acquire{c.RWMutex(dir).RLock, c.RWMutex(dir).TryRLock}
			},
			"semaphore": func(c *locktest.Client, dir string) []locktest.Acquire {
				m := c.Semaphore(dir, 3)
				return []locktest.Acquire{locktest.Permits(m, 1), func(ctx context.Context) (context.Context, *zklock.Hold, error) { return m.TryAcquire(ctx, 1) }}
			},
		}
		other := s.Client()
		for held, take := range kinds {
			dir := "/locks/" + held
			h := s.Take(take(c, dir)[0])
			for asked, calls := range kinds {
				if asked == held || asked+held == "readwrite" || asked+held == "writeread" {
					continue
				}
				for _, call := range calls(other, dir) {
					_, _, err := call(s.Context())
					require.ErrorIs(s, err, zklock.ErrConflict, "%s on the path of %s", asked, held)
					require.ErrorContains(s, err, dir)
				}
			}
			synctest.Wait()
			require.Len(s, s.Server.Children(dir), 1, "none of them has left a place")
			s.Owned(c, h)
			s.Unlock(h)
			s.NothingLeft(dir)
		}
	})
}

// Nor do they share a hold: the context of a hold of one does not let another kind in, even with reentrancy.
func TestAHoldOfOneKindOfLockIsNoHoldOfAnother(t *testing.T) {
	reentrant := zklock.WithReentrancy()
	for name, k := range map[string]struct {
		held, asked func(*locktest.Client) locktest.Acquire
	}{
		"a read lock under a mutex": {
			func(c *locktest.Client) locktest.Acquire { return c.Mutex("/locks/a").Lock },
			func(c *locktest.Client) locktest.Acquire { return c.RWMutex("/locks/a", reentrant).RLock }},
		"a write lock under a mutex": {
			func(c *locktest.Client) locktest.Acquire { return c.Mutex("/locks/a").Lock },
			func(c *locktest.Client) locktest.Acquire { return c.RWMutex("/locks/a", reentrant).Lock }},
		"a write lock under a semaphore": {
			func(c *locktest.Client) locktest.Acquire { return locktest.Permits(c.Semaphore("/locks/a", 2), 1) },
			func(c *locktest.Client) locktest.Acquire { return c.RWMutex("/locks/a", reentrant).Lock }},
		"a mutex under a read lock": {
			func(c *locktest.Client) locktest.Acquire { return c.RWMutex("/locks/a").RLock },
			func(c *locktest.Client) locktest.Acquire { return c.Mutex("/locks/a", reentrant).Lock }},
		"a mutex under a write lock": {
			func(c *locktest.Client) locktest.Acquire { return c.RWMutex("/locks/a").Lock },
			func(c *locktest.Client) locktest.Acquire { return c.Mutex("/locks/a", reentrant).Lock }},
		"a mutex under a semaphore": {
			func(c *locktest.Client) locktest.Acquire { return locktest.Permits(c.Semaphore("/locks/a", 2), 1) },
			func(c *locktest.Client) locktest.Acquire { return c.Mutex("/locks/a", reentrant).Lock }},
	} {
		t.Run(name, func(t *testing.T) {
			locktest.Simulate(t, func(s *locktest.Sim) {
				c := s.Client()
				h := s.Take(k.held(c))
				_, inner, err := k.asked(c)(h.Context())
				require.Nil(s, inner)
				require.ErrorIs(s, err, zklock.ErrConflict)
				s.Owned(c, h)
				s.Unlock(h)
				s.NothingLeft("/locks/a")
			})
		})
	}
}

const (
	curator = "_c_0f0e0d0c-0b0a-4908-8706-050403020100-"
	kazoo   = "0f0e0d0c0b0a09080706050403020100"
)

// Curator's writers and readers, and Kazoo's readers, are respected as our own are.
func TestOtherClientsReadersAndWritersAreRespected(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		dir, c, other := s.Dir("/locks/a"), s.Client(), s.Stranger()
		m := c.RWMutex(dir)
		gone := func(name string) { require.NoError(s, other.Delete(s.Context(), dir+"/"+name, -1)) }

		w := curator + "__WRIT__0000000000"
		s.Plant(other, dir+"/"+w)
		require.NoError(s, s.Server.SetSequence(dir, 1))
		_, _, err := m.TryRLock(s.Context())
		require.ErrorIs(s, err, zklock.ErrBusy)
		reader := s.Start(m.RLock)
		require.Contains(s, s.Watched(c.SessionID()), dir+"/"+w)
		require.Len(s, s.Watched(c.SessionID()), 2, "and its own")
		gone(w)
		r := reader.Get(s)

		for _, name := range []string{curator + "__READ__0000000002", kazoo + "__rlock__0000000003"} {
			s.Plant(other, dir+"/"+name)
		}
		require.NoError(s, s.Server.SetSequence(dir, 4))
		s.Unlock(s.Take(m.TryRLock)) // readers share
		writer := s.Start(m.Lock)
		require.Contains(s, s.Watched(c.SessionID()), dir+"/"+kazoo+"__rlock__0000000003")
		s.Unlock(r)
		gone(kazoo + "__rlock__0000000003")
		require.False(s, writer.Over())
		gone(curator + "__READ__0000000002")
		h := writer.Get(s)

		// A reader of Curator's that has come later does not disturb the writer.
		s.Plant(other, dir+"/"+curator+"__READ__0000000009")
		time.Sleep(time.Minute)
		s.Owned(c, h)
		s.Unlock(h)
		gone(curator + "__READ__0000000009")
		s.NothingLeft(dir)
	})
}

// Curator's read lock under its own write lock has the writer's number, in a znode that is not sequential, while the
// writer's znode exists. When the writer leaves, readers enter, and a writer goes on waiting, whichever of the two it
// watched.
func TestCuratorsReadUnderItsWriteIsRespected(t *testing.T) {
	for _, early := range []bool{true, false} {
		for _, id := range []string{"_c_00000000-0000-4000-8000-000000000000-", "_c_ffffffff-ffff-4fff-8fff-ffffffffffff-"} {
			name := map[bool]string{true: "before we queue", false: "after we queued"}[early] + ", " + id[3:11]
			t.Run(name, func(t *testing.T) {
				locktest.Simulate(t, func(s *locktest.Sim) {
					dir, a, b, other := s.Dir("/locks/a"), s.Client(), s.Client(), s.Stranger()
					write, read := dir+"/"+curator+"__WRIT__0000000005", dir+"/"+id+"__READ__0000000005"
					s.Plant(other, write)
					require.NoError(s, s.Server.SetSequence(dir, 6))
					if early {
						s.Plant(other, read)
					}
					reader, writer := s.Start(a.RWMutex(dir).RLock), s.Start(b.RWMutex(dir).Lock)
					if !early {
						s.Plant(other, read)
					}
					time.Sleep(time.Minute)
					require.False(s, reader.Over(), "the writer holds")
					require.False(s, writer.Over())

					require.NoError(s, other.Delete(s.Context(), write, -1))
					r := reader.Get(s)
					require.False(s, writer.Over())
					s.Unlock(r)
					time.Sleep(time.Minute)
					require.False(s, writer.Over(), "Curator's reader still reads")
					require.NoError(s, other.Delete(s.Context(), read, -1))
					s.Unlock(writer.Get(s))
					s.NothingLeft(dir)
				})
			})
		}
	}
}
