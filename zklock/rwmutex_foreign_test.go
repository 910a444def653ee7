package zklock_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/zklock"
)

// Who else stands in the directory: other kinds of locks, and Curator's readers and writers.

// A mutex, a read/write lock and a semaphore never share a path: whoever comes second is told.
func TestDifferentKindsOfLocksOnOnePathAreAConflict(t *testing.T) {
	simTest(t, func(s *sim) {
		c := s.client()
		kinds := map[string]func(*simClient, string) []rwCall{
			"mutex": func(c *simClient, dir string) []rwCall { return []rwCall{c.Mutex(dir).Lock, c.Mutex(dir).TryLock} },
			"write": func(c *simClient, dir string) []rwCall { return []rwCall{c.RWMutex(dir).Lock, c.RWMutex(dir).TryLock} },
			"read": func(c *simClient, dir string) []rwCall {
				return []rwCall{c.RWMutex(dir).RLock, c.RWMutex(dir).TryRLock}
			},
			"semaphore": func(c *simClient, dir string) []rwCall {
				m := c.Semaphore(dir, 3)
				return []rwCall{semAcquire(m, 1), func(ctx context.Context) (*zklock.Hold, error) { return m.TryAcquire(ctx, 1) }}
			},
		}
		other := s.client()
		for held, take := range kinds {
			dir := "/locks/" + held
			h := rwTake(s, take(c, dir)[0])
			for asked, calls := range kinds {
				if asked == held || asked+held == "readwrite" || asked+held == "writeread" {
					continue
				}
				for _, call := range calls(other, dir) {
					_, err := call(s.Context())
					require.ErrorIs(s, err, zklock.ErrConflict, "%s on the path of %s", asked, held)
					require.ErrorContains(s, err, dir)
				}
			}
			synctest.Wait()
			require.Len(s, s.srv.Children(dir), 1, "none of them has left a place")
			s.owned(c, h)
			s.unlock(h)
			rwNothingLeft(s, dir)
		}
	})
}

// Neither do they share a hold: a context that comes from one does not let the other in, with reentrancy either.
func TestAHoldOfOneKindOfLockIsNoHoldOfAnother(t *testing.T) {
	reentrant := zklock.WithReentrancy()
	for name, k := range map[string]struct{ held, asked func(*simClient) rwCall }{
		"a read lock under a mutex": {
			func(c *simClient) rwCall { return c.Mutex("/locks/a").Lock },
			func(c *simClient) rwCall { return c.RWMutex("/locks/a", reentrant).RLock }},
		"a write lock under a mutex": {
			func(c *simClient) rwCall { return c.Mutex("/locks/a").Lock },
			func(c *simClient) rwCall { return c.RWMutex("/locks/a", reentrant).Lock }},
		"a write lock under a semaphore": {
			func(c *simClient) rwCall { return semAcquire(c.Semaphore("/locks/a", 2), 1) },
			func(c *simClient) rwCall { return c.RWMutex("/locks/a", reentrant).Lock }},
		"a mutex under a read lock": {
			func(c *simClient) rwCall { return c.RWMutex("/locks/a").RLock },
			func(c *simClient) rwCall { return c.Mutex("/locks/a", reentrant).Lock }},
		"a mutex under a write lock": {
			func(c *simClient) rwCall { return c.RWMutex("/locks/a").Lock },
			func(c *simClient) rwCall { return c.Mutex("/locks/a", reentrant).Lock }},
		"a mutex under a semaphore": {
			func(c *simClient) rwCall { return semAcquire(c.Semaphore("/locks/a", 2), 1) },
			func(c *simClient) rwCall { return c.Mutex("/locks/a", reentrant).Lock }},
	} {
		t.Run(name, func(t *testing.T) {
			simTest(t, func(s *sim) {
				c := s.client()
				h := rwTake(s, k.held(c))
				inner, err := k.asked(c)(h.Context())
				require.Nil(s, inner)
				require.ErrorIs(s, err, zklock.ErrConflict)
				s.owned(c, h)
				s.unlock(h)
				rwNothingLeft(s, "/locks/a")
			})
		})
	}
}

const (
	rwCurator = "_c_0f0e0d0c-0b0a-4908-8706-050403020100-"
	rwKazoo   = "0f0e0d0c0b0a09080706050403020100"
)

// Curator's writers and readers, and Kazoo's readers, are respected as our own are.
func TestOtherClientsReadersAndWritersAreRespected(t *testing.T) {
	simTest(t, func(s *sim) {
		dir, c, other := s.dir("/locks/a"), s.client(), s.stranger()
		m := c.RWMutex(dir)
		gone := func(name string) { require.NoError(s, other.Delete(s.Context(), dir+"/"+name, -1)) }

		w := rwCurator + "__WRIT__0000000000"
		s.place(other, dir+"/"+w)
		require.NoError(s, s.srv.SetSequence(dir, 1))
		_, err := m.TryRLock(s.Context())
		require.ErrorIs(s, err, zklock.ErrBusy)
		reader := rwAside(s, m.RLock)
		require.Contains(s, s.watched(c.id()), dir+"/"+w)
		require.Len(s, s.watched(c.id()), 2, "and its own")
		gone(w)
		r := reader.get(s)

		for _, name := range []string{rwCurator + "__READ__0000000002", rwKazoo + "__rlock__0000000003"} {
			s.place(other, dir+"/"+name)
		}
		require.NoError(s, s.srv.SetSequence(dir, 4))
		s.unlock(rwTake(s, m.TryRLock)) // readers share
		writer := rwAside(s, m.Lock)
		require.Contains(s, s.watched(c.id()), dir+"/"+rwKazoo+"__rlock__0000000003")
		s.unlock(r)
		gone(rwKazoo + "__rlock__0000000003")
		require.False(s, writer.over())
		gone(rwCurator + "__READ__0000000002")
		h := writer.get(s)

		// A reader of Curator's that has come later does not disturb the writer.
		s.place(other, dir+"/"+rwCurator+"__READ__0000000009")
		time.Sleep(time.Minute)
		s.owned(c, h)
		s.unlock(h)
		gone(rwCurator + "__READ__0000000009")
		rwNothingLeft(s, dir)
	})
}

// Curator's read under its own write re-uses the writer's number, in a znode that is not sequential, while the writer's
// stands. When the writer goes, readers come in, and a writer goes on waiting, whichever of the two it watched.
func TestCuratorsReadUnderItsWriteIsRespected(t *testing.T) {
	for _, early := range []bool{true, false} {
		for _, id := range []string{"_c_00000000-0000-4000-8000-000000000000-", "_c_ffffffff-ffff-4fff-8fff-ffffffffffff-"} {
			name := map[bool]string{true: "before we queue", false: "after we queued"}[early] + ", " + id[3:11]
			t.Run(name, func(t *testing.T) {
				simTest(t, func(s *sim) {
					dir, a, b, other := s.dir("/locks/a"), s.client(), s.client(), s.stranger()
					write, read := dir+"/"+rwCurator+"__WRIT__0000000005", dir+"/"+id+"__READ__0000000005"
					s.place(other, write)
					require.NoError(s, s.srv.SetSequence(dir, 6))
					if early {
						s.place(other, read)
					}
					reader, writer := rwAside(s, a.RWMutex(dir).RLock), rwAside(s, b.RWMutex(dir).Lock)
					if !early {
						s.place(other, read)
					}
					time.Sleep(time.Minute)
					require.False(s, reader.over(), "the writer holds")
					require.False(s, writer.over())

					require.NoError(s, other.Delete(s.Context(), write, -1))
					r := reader.get(s)
					require.False(s, writer.over())
					s.unlock(r)
					time.Sleep(time.Minute)
					require.False(s, writer.over(), "Curator's reader still reads")
					require.NoError(s, other.Delete(s.Context(), read, -1))
					s.unlock(writer.get(s))
					rwNothingLeft(s, dir)
				})
			})
		}
	}
}

// Both of them are shown as holders, and nobody else.
func TestTheQueueShowsCuratorsReadUnderItsWriteAsHolding(t *testing.T) {
	simTest(t, func(s *sim) {
		dir, a, other := s.dir("/locks/a"), s.client(), s.stranger()
		write, read := dir+"/"+rwCurator+"__WRIT__0000000005", dir+"/_c_ffffffff-ffff-4fff-8fff-ffffffffffff-__READ__0000000005"
		s.place(other, write)
		s.place(other, read)
		require.NoError(s, s.srv.SetSequence(dir, 6))
		reader := rwAside(s, a.RWMutex(dir).RLock)
		line, err := a.Queue(s.Context(), dir)
		require.NoError(s, err)
		require.Len(s, line, 3)
		for _, k := range line {
			require.Equal(s, k.Node == write || k.Node == read, k.Holds, k.Node)
		}
		require.NoError(s, other.Delete(s.Context(), write, -1))
		s.unlock(reader.get(s))
	})
}
