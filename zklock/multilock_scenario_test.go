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

	"github.com/zklock/locker/internal/session"
	"github.com/zklock/locker/tests/locktest"
	"github.com/zklock/locker/zklock"
	"github.com/zklock/locker/zktest/fault"
)

// Several locks at once: scenarios 36 and 37.

// dirs makes the directories /m/a, /m/b, … and returns their paths.
func dirs(s *locktest.Sim, n int) []string {
	s.Helper()
	require.NoError(s, s.Server.Create("/m", nil))
	var dirs []string
	for i := range n {
		dirs = append(dirs, s.Dir(fmt.Sprintf("/m/%c", 'a'+i)))
	}
	return dirs
}

// takeAll takes the locks, which must succeed.
func takeAll(s *locktest.Sim, m *zklock.MultiLock) *zklock.Hold {
	s.Helper()
	_, h, err := m.Lock(s.Context())
	require.NoError(s, err)
	return h
}

// ownedAll requires that a hold has a znode in each directory, all of one session and of one transaction.
func ownedAll(s *locktest.Sim, c *locktest.Client, h *zklock.Hold, dirs ...string) {
	s.Helper()
	require.NoError(s, h.Err())
	require.Len(s, h.Nodes(), len(dirs))
	for i, node := range h.Nodes() {
		require.Equal(s, dirs[i], path.Dir(node))
		n, ok := s.Server.Node(node)
		require.True(s, ok, "%s does not stand", node)
		require.Equal(s, c.SessionID(), n.Stat.EphemeralOwner)
		require.Equal(s, int64(h.Token()), n.Stat.Czxid)
	}
}

// emptyAll requires that all of the directories are empty within limit.
func emptyAll(s *locktest.Sim, limit time.Duration, dirs []string) {
	s.Helper()
	for _, dir := range dirs {
		s.Empty(limit, dir)
	}
}

// insideAll checks critical sections, each of several paths: no hold may enter a path that another live hold is in.
type insideAll struct {
	mu   sync.Mutex // guards what follows
	in   map[string]*zklock.Hold
	last map[string]zklock.Token
}

// enter records a hold of paths and returns what is wrong with it.
func (x *insideAll) enter(h *zklock.Hold, paths []string) error {
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

// leave records that a hold is about to be released.
func (x *insideAll) leave(h *zklock.Hold, paths []string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, p := range paths {
		if x.in[p] == h {
			delete(x.in, p)
		}
	}
}

// scenario 36: two clients lock {a, b} and {b, a}, at the same moment or behind another holder: each gets both.
func TestScenario36_TwoClientsThatNameTwoLocksInOppositeOrderBothGetThem(t *testing.T) {
	for _, busy := range []int{0, 1} { // which of the two another client holds at first
		t.Run(fmt.Sprint(busy), func(t *testing.T) {
			locktest.Simulate(t, func(s *locktest.Sim) {
				dirs, first, a, b := dirs(s, 2), s.Client(), s.Client(), s.Client()
				h := s.Lock(first.Mutex(dirs[busy]))
				gate := s.Server.Inject(fault.Hold().Op(fault.OpMulti)) // both have decided to enter before either has
				one := locktest.Go(s.Context(), a.MultiLock([]string{dirs[0], dirs[1]}).Lock)
				two := locktest.Go(s.Context(), b.MultiLock([]string{dirs[1], dirs[0]}).Lock)
				synctest.Wait()
				require.Equal(s, 2, gate.Hits())
				gate.Remove()
				require.False(s, one.Over())
				require.False(s, two.Over())
				s.Unlock(h)
				require.True(s, one.Over() != two.Over(), "one of them holds both")
				calls, clients, orders := []*locktest.Call{one, two}, []*locktest.Client{a, b}, [][]string{{dirs[0], dirs[1]}, {dirs[1], dirs[0]}}
				i := 0
				if two.Over() {
					i = 1
				}
				ownedAll(s, clients[i], calls[i].Get(s), orders[i]...)
				s.Unlock(calls[i].Hold)
				ownedAll(s, clients[1-i], calls[1-i].Get(s), orders[1-i]...)
				require.Greater(s, calls[1-i].Hold.Token(), calls[i].Hold.Token())
				s.Unlock(calls[1-i].Hold)
				emptyAll(s, 0, dirs)
			})
		})
	}
}

// scenario 36, many times: eight clients take random subsets of four locks in random order, some of them single locks with a
// Mutex. Each gets its turn, and no two hold the same lock at once.
func TestScenario36_RandomSubsetsInRandomOrderNeverDeadlock(t *testing.T) {
	for seed := range uint64(8) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			locktest.Simulate(t, func(s *locktest.Sim) {
				dirs := dirs(s, 4)
				var x insideAll
				ctx, cancel := context.WithTimeout(s.Context(), time.Hour) // a deadlock would last for ever
				defer cancel()
				var all sync.WaitGroup
				for i := range uint64(8) {
					c, rnd := s.Client(), rand.New(rand.NewPCG(seed, i))
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
							_, h, err := lock(ctx)
							if err != nil {
								t.Error(err)
								return
							}
							if err := x.enter(h, mine); err != nil {
								t.Error(err)
							}
							time.Sleep(time.Duration(rnd.Int64N(int64(20 * time.Millisecond))))
							x.leave(h, mine)
							if err := h.Unlock(); err != nil {
								t.Error(err)
							}
						}
					})
				}
				all.Wait()
				emptyAll(s, 0, dirs)
			})
		})
	}
}

// scenario 37: one of several locks is not released in time: the others are free again at once, and one deadline covers the
// wait for all of them.
func TestScenario37_OneDeadlineCoversAllLocks(t *testing.T) {
	for name, freed := range map[string][]time.Duration{ // when the holders of a, b and c release; 0: never
		"the first is never free":                {0, time.Millisecond, time.Millisecond},
		"the last is never free":                 {time.Millisecond, time.Millisecond, 0},
		"one after the other, the last too late": {2 * time.Second, 4 * time.Second, 6 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			locktest.Simulate(t, func(s *locktest.Sim) {
				dirs, c := dirs(s, 3), s.Client()
				for i, dir := range dirs {
					h := s.Lock(s.Client().Mutex(dir))
					if freed[i] > 0 {
						later := time.AfterFunc(freed[i], func() {
							if err := h.Unlock(); err != nil {
								t.Error(err)
							}
						})
						defer later.Stop()
					}
				}
				ctx, cancel := context.WithTimeout(s.Context(), 5*time.Second)
				defer cancel()
				call := locktest.Go(ctx, c.MultiLock(dirs).Lock)
				<-call.Done
				require.ErrorIs(s, call.Err, context.DeadlineExceeded)
				require.ErrorContains(s, call.Err, "2nd in line behind", "it says who was in the way")
				require.Equal(s, 5*time.Second, call.Spent)
				synctest.Wait()
				info, _ := s.Server.Session(c.SessionID())
				require.Empty(s, info.Ephemerals, "the others are released")
				require.Empty(s, info.Watches)
			})
		})
	}
}

// scenario 37: one of the locks fails for good: the error says why, and none of the others is taken.
func TestScenario37_WhenOneOfSeveralLocksFailsTheOthersAreReleased(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(s *locktest.Sim, dir string)
		want  error
	}{
		"nobody may enter it": {func(s *locktest.Sim, dir string) {
			_, err := s.Stranger().SetACL(s.Context(), dir, zk.WorldACL(zk.PermRead), -1)
			require.NoError(s, err)
		}, zk.ErrNoAuth},
		"it belongs to a read/write lock": {func(s *locktest.Sim, dir string) {
			_, _, err := s.Client().RWMutex(dir).RLock(s.Context())
			require.NoError(s, err)
		}, zklock.ErrConflict},
		"it is somebody's ephemeral": {func(s *locktest.Sim, dir string) {
			require.NoError(s, s.Server.Delete(dir))
			_, err := s.Stranger().Create(s.Context(), dir, nil, session.Ephemeral, session.WorldACL())
			require.NoError(s, err)
		}, zklock.ErrConflict},
	} {
		for i := range 3 {
			t.Run(fmt.Sprintf("%s %d", name, i), func(t *testing.T) {
				locktest.Simulate(t, func(s *locktest.Sim) {
					dirs, a, b := dirs(s, 3), s.Client(), s.Client()
					c.spoil(s, dirs[i])
					for _, lock := range []func(*zklock.MultiLock, context.Context) (context.Context, *zklock.Hold, error){
						(*zklock.MultiLock).Lock, (*zklock.MultiLock).TryLock,
					} {
						_, _, err := lock(a.MultiLock(dirs), s.Context())
						require.ErrorIs(s, err, c.want)
						synctest.Wait()
						info, _ := s.Server.Session(a.SessionID())
						require.Empty(s, info.Ephemerals)
						rest := append(append([]string{}, dirs[:i]...), dirs[i+1:]...)
						_, h, err := b.MultiLock(rest).TryLock(s.Context())
						require.NoError(s, err, "the others are free at once")
						s.Unlock(h)
					}
				})
			})
		}
	}
}

// scenario 37: a session that ends during the wait for one of the locks loses the others too. The wait goes on in the next
// session, with the same deadline.
func TestScenario37_ASessionThatEndsTakesAllPlacesAndTheWaitGoesOn(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		dirs, other, c := dirs(s, 3), s.Client(), s.Client()
		h := s.Lock(other.Mutex(dirs[2]))
		call := locktest.Go(s.Context(), c.MultiLock(dirs).Lock)
		require.False(s, call.Over())
		old := c.SessionID()
		require.NoError(s, s.Server.Expire(old))
		for _, dir := range dirs[:2] {
			require.Empty(s, s.Server.Children(dir), "they went with the session")
		}
		s.Until(5*time.Second, "it stands again", func() bool { return len(s.Server.Children(dirs[0])) == 1 })
		require.NotEqual(s, old, c.SessionID())
		require.False(s, call.Over())
		s.Unlock(h)
		ownedAll(s, c, call.Get(s), dirs...)
	})
}
