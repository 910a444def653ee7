package zklock_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/session"
	"github.com/zklock/locker/zklock"
	"github.com/zklock/locker/zktest"
)

// Several locks at once: scenarios 36 and 37.

// multiDirs makes the directories /m/a, /m/b, … and returns their paths.
func (s *sim) multiDirs(n int) []string {
	s.Helper()
	require.NoError(s, s.srv.Create("/m", nil))
	var dirs []string
	for i := range n {
		dirs = append(dirs, s.dir(fmt.Sprintf("/m/%c", 'a'+i)))
	}
	return dirs
}

// multiTake takes the locks, which must succeed.
func (s *sim) multiTake(m *zklock.MultiLock) *zklock.Hold {
	s.Helper()
	h, err := m.Lock(s.Context())
	require.NoError(s, err)
	return h
}

// multiOwned demands that a hold has a znode in each directory, all of one session and one transaction, and none of
// which is missing.
func (s *sim) multiOwned(c *simClient, h *zklock.Hold, dirs ...string) {
	s.Helper()
	require.NoError(s, h.Err())
	require.Len(s, h.Nodes(), len(dirs))
	for i, node := range h.Nodes() {
		require.Equal(s, dirs[i], path.Dir(node))
		n, ok := s.srv.Node(node)
		require.True(s, ok, "%s does not stand", node)
		require.Equal(s, c.id(), n.Stat.EphemeralOwner)
		require.Equal(s, int64(h.Token()), n.Stat.Czxid)
	}
}

// multiEmpty demands that within limit nothing is left in any of the directories.
func (s *sim) multiEmpty(limit time.Duration, dirs []string) {
	s.Helper()
	for _, dir := range dirs {
		s.empty(limit, dir)
	}
}

// multiInside watches over critical sections that several paths name: nobody may enter one that a live hold is in.
type multiInside struct {
	mu   sync.Mutex // guards what follows
	in   map[string]*zklock.Hold
	last map[string]zklock.Token
}

// enter notes a hold of paths and returns what is wrong with it.
func (x *multiInside) enter(h *zklock.Hold, paths []string) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.in == nil {
		x.in, x.last = map[string]*zklock.Hold{}, map[string]zklock.Token{}
	}
	for _, p := range paths {
		if other := x.in[p]; other != nil && other.Context().Err() == nil {
			return fmt.Errorf("%s: token %d entered while token %d is inside", p, h.Token(), other.Token())
		}
		if x.last[p] >= h.Token() {
			return fmt.Errorf("%s: token %d came after token %d", p, h.Token(), x.last[p])
		}
		x.in[p], x.last[p] = h, h.Token()
	}
	return nil
}

// leave notes that a hold is about to be released.
func (x *multiInside) leave(h *zklock.Hold, paths []string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, p := range paths {
		if x.in[p] == h {
			delete(x.in, p)
		}
	}
}

// scenario 36: two clients lock {a, b} and {b, a}, both at the same moment, and behind somebody: each gets both.
func TestScenario36_TwoClientsThatNameTwoLocksInOppositeOrderBothGetThem(t *testing.T) {
	for _, busy := range []int{0, 1} { // which of the two somebody holds at first
		t.Run(fmt.Sprint(busy), func(t *testing.T) {
			simTest(t, func(s *sim) {
				dirs, first, a, b := s.multiDirs(2), s.client(), s.client(), s.client()
				h := s.lock(first.Mutex(dirs[busy]))
				gate := s.srv.Inject(zktest.Hold().Op(zktest.OpMulti)) // both have decided to enter before either has
				one := simGo(s.Context(), a.MultiLock([]string{dirs[0], dirs[1]}).Lock)
				two := simGo(s.Context(), b.MultiLock([]string{dirs[1], dirs[0]}).Lock)
				synctest.Wait()
				require.Equal(s, 2, gate.Hits())
				gate.Remove()
				require.False(s, one.over())
				require.False(s, two.over())
				s.unlock(h)
				require.True(s, one.over() != two.over(), "one of them holds both")
				calls, clients, orders := []*simCall{one, two}, []*simClient{a, b}, [][]string{{dirs[0], dirs[1]}, {dirs[1], dirs[0]}}
				i := 0
				if two.over() {
					i = 1
				}
				s.multiOwned(clients[i], calls[i].get(s), orders[i]...)
				s.unlock(calls[i].hold)
				s.multiOwned(clients[1-i], calls[1-i].get(s), orders[1-i]...)
				require.Greater(s, calls[1-i].hold.Token(), calls[i].hold.Token())
				s.unlock(calls[1-i].hold)
				s.multiEmpty(0, dirs)
			})
		})
	}
}

// scenario 36, many times: eight clients take random subsets of four locks in random order, some of them alone with a
// Mutex. Everybody gets his turn, and nobody meets anybody.
func TestScenario36_RandomSubsetsInRandomOrderNeverDeadlock(t *testing.T) {
	for seed := range uint64(8) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			simTest(t, func(s *sim) {
				dirs := s.multiDirs(4)
				var x multiInside
				ctx, cancel := context.WithTimeout(s.Context(), time.Hour) // a deadlock would last for ever
				defer cancel()
				var all sync.WaitGroup
				for i := range uint64(8) {
					c, rnd := s.client(), rand.New(rand.NewPCG(seed, i))
					all.Go(func() {
						for range 40 {
							var mine []string
							for _, k := range rnd.Perm(len(dirs))[:1+rnd.IntN(len(dirs))] {
								mine = append(mine, dirs[k])
							}
							lock := c.MultiLock(mine).Lock
							if len(mine) == 1 && rnd.IntN(2) == 0 {
								lock = c.Mutex(mine[0]).Lock
							}
							h, err := lock(ctx)
							if err != nil {
								t.Error(err)
								return
							}
							if err := x.enter(h, mine); err != nil {
								t.Error(err)
							}
							time.Sleep(time.Duration(rnd.Int64N(int64(20 * time.Millisecond))))
							x.leave(h, mine)
							if err := h.Unlock(ctx); err != nil {
								t.Error(err)
							}
						}
					})
				}
				all.Wait()
				s.multiEmpty(0, dirs)
			})
		})
	}
}

// scenario 37: one of several locks is not to be had: the others are free again at once, and the one deadline of the
// call covers the waiting for all of them.
func TestScenario37_OneDeadlineCoversAllLocks(t *testing.T) {
	for name, freed := range map[string][]time.Duration{ // when the holders of a, b and c let go; 0 for never
		"the first is never free":                {0, time.Millisecond, time.Millisecond},
		"the last is never free":                 {time.Millisecond, time.Millisecond, 0},
		"one after the other, the last too late": {2 * time.Second, 4 * time.Second, 6 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			simTest(t, func(s *sim) {
				dirs, c := s.multiDirs(3), s.client()
				for i, dir := range dirs {
					h := s.lock(s.client().Mutex(dir))
					if freed[i] > 0 {
						time.AfterFunc(freed[i], func() {
							if err := h.Unlock(context.Background()); err != nil {
								t.Error(err)
							}
						})
					}
				}
				ctx, cancel := context.WithTimeout(s.Context(), 5*time.Second)
				defer cancel()
				call := simGo(ctx, c.MultiLock(dirs).Lock)
				<-call.done
				require.ErrorIs(s, call.err, context.DeadlineExceeded)
				require.ErrorContains(s, call.err, "2nd in line behind", "it says who was in the way")
				require.Equal(s, 5*time.Second, call.spent)
				synctest.Wait()
				info, _ := s.srv.Session(c.id())
				require.Empty(s, info.Ephemerals, "the others are released")
				require.Empty(s, info.Watches)
			})
		})
	}
}

// scenario 37: one of the locks fails for good: the error says why, and nothing of the others is taken.
func TestScenario37_WhenOneOfSeveralLocksFailsTheOthersAreReleased(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(s *sim, dir string)
		want  error
	}{
		"nobody may enter it": {func(s *sim, dir string) {
			_, err := s.stranger().SetACL(s.Context(), dir, zk.WorldACL(zk.PermRead), -1)
			require.NoError(s, err)
		}, zk.ErrNoAuth},
		"it belongs to a read/write lock": {func(s *sim, dir string) {
			_, err := s.client().RWMutex(dir).RLock(s.Context())
			require.NoError(s, err)
		}, zklock.ErrConflict},
		"it is somebody's ephemeral": {func(s *sim, dir string) {
			require.NoError(s, s.srv.Delete(dir))
			_, err := s.stranger().Create(s.Context(), dir, nil, session.Ephemeral, session.WorldACL())
			require.NoError(s, err)
		}, zklock.ErrConflict},
	} {
		for i := range 3 {
			t.Run(fmt.Sprintf("%s %d", name, i), func(t *testing.T) {
				simTest(t, func(s *sim) {
					dirs, a, b := s.multiDirs(3), s.client(), s.client()
					c.spoil(s, dirs[i])
					for _, lock := range []func(*zklock.MultiLock, context.Context) (*zklock.Hold, error){
						(*zklock.MultiLock).Lock, (*zklock.MultiLock).TryLock,
					} {
						_, err := lock(a.MultiLock(dirs), s.Context())
						require.ErrorIs(s, err, c.want)
						synctest.Wait()
						info, _ := s.srv.Session(a.id())
						require.Empty(s, info.Ephemerals)
						rest := append(append([]string{}, dirs[:i]...), dirs[i+1:]...)
						h, err := b.MultiLock(rest).TryLock(s.Context())
						require.NoError(s, err, "the others are free at once")
						s.unlock(h)
					}
				})
			})
		}
	}
}

// scenario 37: a session that ends while one of the locks is still waited for takes the others along; the wait goes on
// in the next session, under the same deadline.
func TestScenario37_ASessionThatEndsTakesAllPlacesAndTheWaitGoesOn(t *testing.T) {
	simTest(t, func(s *sim) {
		dirs, other, c := s.multiDirs(3), s.client(), s.client()
		h := s.lock(other.Mutex(dirs[2]))
		call := simGo(s.Context(), c.MultiLock(dirs).Lock)
		require.False(s, call.over())
		old := c.id()
		require.NoError(s, s.srv.Expire(old))
		for _, dir := range dirs[:2] {
			require.Empty(s, s.srv.Children(dir), "they went with the session")
		}
		s.until(5*time.Second, "it stands again", func() bool { return len(s.srv.Children(dirs[0])) == 1 })
		require.NotEqual(s, old, c.id())
		require.False(s, call.over())
		s.unlock(h)
		s.multiOwned(c, call.get(s), dirs...)
	})
}
