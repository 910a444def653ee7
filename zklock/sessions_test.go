package zklock_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/internal/locktest"
	"github.com/zklock/locker/session"
	"github.com/zklock/locker/zklock"
	"github.com/zklock/locker/zktest"
)

// leastRoom is the smallest room that a session can be given for ephemerals: for some 190 locks.
const leastRoom = 16 << 10

// defaultRoom is the default room.
const defaultRoom = 512 << 10

// dialCramped opens a client whose sessions have the smallest room.
func dialCramped(t testing.TB, srv *zktest.Server, opts ...zklock.Option) *zklock.Client {
	return locktest.Dial(t, srv, append([]zklock.Option{zklock.WithEphemeralBytes(leastRoom)}, opts...)...)
}

// fillFirst takes nearly all the room in the client's first session with an ephemeral that is no lock's, and returns its path.
func fillFirst(t testing.TB, c *zklock.Client) (full []string) {
	t.Helper()
	ctx := locktest.Soon(t)
	s, err := c.Session(ctx)
	require.NoError(t, err)
	for i := 0; leastRoom-s.EphemeralBytes() > 100; i++ {
		path := fmt.Sprintf("/full-%d-", i)
		path += strings.Repeat("f", min(4000, leastRoom-s.EphemeralBytes()-4-len(path)))
		_, err := s.Create(ctx, path, nil, session.Ephemeral, session.WorldACL())
		require.NoError(t, err)
		full = append(full, path)
	}
	return full
}

// ownerOf returns the session that has the hold's znode.
func ownerOf(t testing.TB, srv *zktest.Server, h *zklock.Hold) int64 {
	t.Helper()
	n, ok := srv.Node(h.Node())
	require.True(t, ok)
	return n.Stat.EphemeralOwner
}

// ephemeralsWithin checks that no session has more ephemerals than it may.
func ephemeralsWithin(t testing.TB, srv *zktest.Server, limit int) (ephemerals int) {
	t.Helper()
	for _, ss := range srv.Sessions() {
		list := 0
		for _, p := range ss.Ephemerals {
			list += 4 + len(p)
		}
		require.LessOrEqual(t, list, limit)
		ephemerals += len(ss.Ephemerals)
	}
	return ephemerals
}

// lockMany takes n locks at different paths, with a number of goroutines.
func lockMany(t testing.TB, c *zklock.Client, n int) []*zklock.Hold {
	t.Helper()
	holds := make([]*zklock.Hold, n)
	var all sync.WaitGroup
	const workers = 64
	for w := range workers {
		all.Go(func() {
			for i := w; i < n; i += workers {
				h, err := c.Mutex(fmt.Sprintf("/many/%d", i)).Lock(context.Background())
				if !assert.NoError(t, err) {
					return
				}
				holds[i] = h
			}
		})
	}
	all.Wait()
	return holds
}

func unlockAll(t testing.TB, holds []*zklock.Hold) {
	t.Helper()
	var all sync.WaitGroup
	for part := range slices.Chunk(holds, max(1, len(holds)/64)) {
		all.Go(func() {
			for _, h := range part {
				assert.NoError(t, h.Unlock(context.Background()))
			}
		})
	}
	all.Wait()
}

func TestManyLocksOfOneClientAreSpreadOverSessionsThatMayEnd(t *testing.T) {
	n := 7_000 // in two sessions
	if locktest.Long() {
		n = 40_000
	}
	locktest.Bubble(t, func(t *testing.T, srv *zktest.Server) {
		c := locktest.Dial(t, srv)
		holds := lockMany(t, c, n)
		require.Equal(t, n, ephemeralsWithin(t, srv, defaultRoom))
		st := c.Status()
		require.Len(t, st.Holds, n)
		require.Len(t, st.Sessions, len(srv.Sessions()))
		require.Len(t, st.Sessions, 1+n*(len(holds[n-1].Node())+4)/defaultRoom)
		unlockAll(t, holds[:n/2])
		require.NoError(t, c.Close())
		require.NoError(t, srv.Failure())
		require.Empty(t, srv.Sessions())
		require.ErrorIs(t, locktest.End(holds[n-1]), zklock.ErrClosed)
	})
}

func TestNothingGrowsWithFurtherSessionsThatWereClosed(t *testing.T) {
	rounds, locks := 6, 1000
	if locktest.Long() {
		rounds, locks = 200, 1000
	}
	locktest.SimulateAlone(t, func(s *locktest.Sim) {
		t, srv := s.T, s.Server
		c := dialCramped(t, srv)
		var heap, goroutines int
		for round := range rounds {
			holds := lockMany(t, c, locks)
			require.Greater(t, len(c.Status().Sessions), 2)
			ephemeralsWithin(t, srv, leastRoom)
			unlockAll(t, holds)
			time.Sleep(2 * time.Minute)
			synctest.Wait()
			require.Len(t, srv.Sessions(), 1)
			st := c.Status()
			require.Len(t, st.Sessions, 1)
			require.Zero(t, st.Session.EphemeralBytes)
			require.Zero(t, srv.WatchCount())
			runtime.GC()
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			switch { // what is kept for the next round is there after two
			case round == 2:
				heap, goroutines = int(m.HeapAlloc), runtime.NumGoroutine()
			case round > 2:
				require.Less(t, int(m.HeapAlloc), heap+2<<20, "round %d", round)
				require.LessOrEqual(t, runtime.NumGoroutine(), goroutines, "round %d", round)
			}
			if round == rounds-1 {
				t.Logf("%d locks: heap %d KB after three rounds, %d KB after all", locks*rounds, heap>>10, m.HeapAlloc>>10)
			}
		}
	})
}

func TestEveryKindOfLockWorksInAFurtherSession(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T, srv *zktest.Server) {
		c := dialCramped(t, srv)
		fillFirst(t, c)
		ctx := locktest.Soon(t)
		first := c.Status().Session.ID
		further := func(h *zklock.Hold, err error) *zklock.Hold {
			t.Helper()
			require.NoError(t, err)
			require.NotEqual(t, first, ownerOf(t, srv, h))
			require.NoError(t, h.Check(ctx))
			return h
		}

		m := c.Mutex("/m", zklock.WithReentrancy())
		h := further(m.Lock(ctx))
		inner, err := m.Lock(h.Context())
		require.NoError(t, err)
		locktest.Unlock(t, inner)
		_, err = c.Mutex("/m").Lock(h.Context())
		require.ErrorIs(t, err, zklock.ErrDeadlock)
		_, err = c.Mutex("/m").TryLock(ctx)
		require.ErrorIs(t, err, zklock.ErrBusy)
		locktest.Unlock(t, h)

		rw := c.RWMutex("/rw")
		locktest.Unlock(t, further(rw.Lock(ctx)))
		locktest.Unlock(t, further(c.Semaphore("/s", 3).Acquire(ctx, 2)))
		h = further(c.MultiLock([]string{"/m1", "/m2", "/m3"}).Lock(ctx))
		for _, node := range h.Nodes() {
			n, _ := srv.Node(node)
			require.Equal(t, ownerOf(t, srv, h), n.Stat.EphemeralOwner, "all in one session")
		}
		locktest.Unlock(t, h)
		l, err := c.Election("/e").Campaign(ctx, []byte("v"))
		require.NoError(t, err)
		further(l.Hold, nil)
		leader, err := c.Election("/e").Leader(ctx)
		require.NoError(t, err)
		require.Equal(t, "v", string(leader.Value))
		require.NoError(t, l.Resign(ctx))
		local := c.Mutex("/local", zklock.WithHandoffs(3))
		locktest.Unlock(t, further(local.Lock(ctx)))
		h = further(local.Lock(ctx))
		locktest.Unlock(t, h)

		s, err := c.Session(ctx)
		require.NoError(t, err)
		require.Equal(t, first, s.ID(), "the program's own session is the first, full or not")
	})
}

func TestTheLossOfOneSessionLosesItsHoldsAndNoOthers(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T, srv *zktest.Server) {
		c := dialCramped(t, srv)
		inFirst := locktest.Lock(t, c.Mutex("/a"))
		fillFirst(t, c)
		inFurther := locktest.Lock(t, c.Mutex("/b"))
		require.NoError(t, srv.Expire(ownerOf(t, srv, inFurther)))
		require.ErrorIs(t, locktest.End(inFurther), zklock.ErrLost)
		require.NoError(t, inFirst.Check(locktest.Soon(t)))

		again := locktest.Lock(t, c.Mutex("/b"))
		require.NoError(t, srv.Expire(ownerOf(t, srv, inFirst)))
		require.ErrorIs(t, locktest.End(inFirst), zklock.ErrLost)
		require.NoError(t, again.Check(locktest.Soon(t)))
		locktest.Unlock(t, again)
	})
}

func TestAFurtherSessionStaysWhileItIsUsedAndIsClosedAMinuteLater(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T, srv *zktest.Server) {
		var mu sync.Mutex
		over := map[int64]error{}
		c := dialCramped(t, srv, zklock.WithHooks(zklock.Hooks{Session: func(i zklock.SessionInfo) {
			mu.Lock()
			defer mu.Unlock()
			if i.State == session.Over {
				over[i.ID] = i.Err
			}
		}}))
		other := locktest.Dial(t, srv)
		fillFirst(t, c)
		theirs := locktest.Lock(t, other.Mutex("/a"))
		waits := make(chan *zklock.Hold)
		go func() {
			h, err := c.Mutex("/a").Lock(context.Background())
			assert.NoError(t, err)
			waits <- h
		}()
		time.Sleep(locktest.LongTime) // a wait
		require.Len(t, c.Status().Sessions, 2)
		locktest.Unlock(t, theirs)
		h := <-waits
		time.Sleep(locktest.LongTime) // a hold
		require.Len(t, c.Status().Sessions, 2)
		require.NoError(t, h.Err())
		id := ownerOf(t, srv, h)
		locktest.Unlock(t, h)
		time.Sleep(59 * time.Second)
		require.Len(t, c.Status().Sessions, 2)
		time.Sleep(30 * time.Second)
		synctest.Wait()
		require.Len(t, c.Status().Sessions, 1)
		_, there := srv.Session(id)
		require.False(t, there)
		require.Equal(t, map[int64]error{id: session.ErrClosed}, over)
	})
}

// Closing a further session that is not used must not lose a lock that a call takes in it at that moment.
func TestALockThatIsTakenWhileAFurtherSessionIsClosedIsNotLost(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T, srv *zktest.Server) {
		c := dialCramped(t, srv)
		fillFirst(t, c)
		r := rand.New(rand.NewPCG(1, 2))
		for range 60 {
			locktest.Unlock(t, locktest.Lock(t, c.Mutex("/m")))
			time.Sleep(time.Minute + time.Duration(r.IntN(5))*time.Minute/16)
			var all sync.WaitGroup
			for i := range 4 {
				all.Go(func() {
					h, err := c.Mutex(fmt.Sprintf("/m%d", i)).Lock(context.Background())
					if assert.NoError(t, err) {
						time.Sleep(time.Second)
						assert.NoError(t, h.Unlock(context.Background()))
					}
				})
			}
			all.Wait()
		}
	})
}

func TestSessionsThatEndAtOnceAreNoStorm(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T, srv *zktest.Server) {
		c := dialCramped(t, srv)
		fillFirst(t, c)
		in := srv.Inject(zktest.ExpireSession().Op(zktest.OpCreate))
		_, err := c.Mutex("/m").Lock(locktest.Within(t, time.Minute))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Less(t, in.Hits(), 130, "two in a second at most")
		in.Remove()
		locktest.Unlock(t, locktest.Lock(t, c.Mutex("/m")))
	})
}

func TestTheClientClosesWhileItOpensSessions(t *testing.T) {
	for i := range 6 {
		locktest.Bubble(t, func(t *testing.T, srv *zktest.Server) {
			c := dialCramped(t, srv)
			srv.Inject(zktest.DelayReply(time.Millisecond)) // else no time passes
			var all sync.WaitGroup
			for j := range 500 {
				all.Go(func() {
					if _, err := c.Mutex(fmt.Sprintf("/m/%d", j)).Lock(context.Background()); err != nil {
						assert.ErrorIs(t, err, zklock.ErrClosed)
					}
				})
			}
			time.Sleep(time.Duration(i) * time.Millisecond)
			require.NoError(t, c.Close())
			all.Wait()
			require.NoError(t, srv.Failure())
			time.Sleep(time.Minute)
			require.Empty(t, srv.Sessions())
		})
	}
}
