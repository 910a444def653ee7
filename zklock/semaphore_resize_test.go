package zklock_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/tests/locktest"
	"github.com/zklock/locker/zklock"
	"github.com/zklock/locker/zktest/fault"
)

// Tests of a Resize to fewer permits, of races of sizes, and of data at the path.

// Scenario 71: the size falls below what the first waiter wants, or wants beside its own permits. Its call ends as one that began
// now would, and the next one is served.
func TestScenario71_AFirstWaiterThatWantsMoreThanThereAreNowGivesWay(t *testing.T) {
	for name, c := range map[string]struct {
		own, wants int // permits that the caller of the first waiter has, and wants
		want       error
	}{
		"more than there are":                {0, 3, zklock.ErrInvalid},
		"more than there are beside its own": {1, 2, zklock.ErrDeadlock},
		"more than there are, and has some":  {1, 3, zklock.ErrInvalid},
	} {
		t.Run(name, func(t *testing.T) {
			locktest.Simulate(t, func(s *locktest.Sim) {
				dir := s.Dir("/locks/a")
				m, ctx, size := s.Client().Semaphore(dir, 4), s.Context(), 2
				if c.own > 0 {
					ctx = s.Take(locktest.Permits(m, c.own)).Context()
				}
				h := s.Take(locktest.Permits(s.Client().Semaphore(dir, 4), 2))
				first := locktest.Go(ctx, locktest.Permits(m, c.wants))
				require.False(s, first.Over())
				next := s.Start(locktest.Permits(s.Client().Semaphore(dir, 4), size-c.own))
				require.NoError(s, s.Client().Semaphore(dir, 4).Resize(s.Context(), size))
				require.True(s, first.Over())
				require.ErrorIs(s, first.Err, c.want)
				_, _, err := m.Acquire(ctx, c.wants)
				require.EqualError(s, first.Err, err.Error(), "a new call would get the same")
				require.False(s, next.Over(), "two of two are held")
				s.Unlock(h)
				s.Unlock(next.Get(s))
			})
		})
	}
}

// Scenario 71, of one that is not the first: it gives way as soon as it is.
func TestScenario71_AWaiterThatWantsMoreThanThereAreNowGivesWayWhenItIsTheFirst(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		dir := s.Dir("/locks/a")
		m := s.Client().Semaphore(dir, 3)
		h := s.Take(locktest.Permits(m, 3))
		first, second, third := s.Start(locktest.Permits(s.Client().Semaphore(dir, 3), 1)),
			s.Start(locktest.Permits(s.Client().Semaphore(dir, 3), 3)), s.Start(locktest.Permits(s.Client().Semaphore(dir, 3), 1))
		require.NoError(s, m.Resize(s.Context(), 2))
		require.False(s, first.Over())
		s.Unlock(h)
		one := first.Get(s)
		require.True(s, second.Over())
		require.ErrorIs(s, second.Err, zklock.ErrInvalid)
		s.Unlock(third.Get(s))
		s.Unlock(one)
		s.NothingLeft(dir)
	})
}

// Scenario 71, of a call whose size is lowered between its look at that and its place in line, where there is nobody else.
func TestScenario71_ASizeThatIsLoweredBeforeACallTakesItsPlaceRefusesIt(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		dir, a, b := s.Dir("/locks/a"), s.Client(), s.Client()
		s.Unlock(s.Take(locktest.Permits(a.Semaphore(dir, 2), 1)))
		for _, acquire := range []func(*zklock.Semaphore, context.Context, int) (context.Context, *zklock.Hold, error){
			(*zklock.Semaphore).Acquire, (*zklock.Semaphore).TryAcquire,
		} {
			require.NoError(s, a.Semaphore(dir, 2).Resize(s.Context(), 2))
			in := s.Server.Inject(fault.Hold().Op(fault.OpCreate).Session(b.SessionID()).Once())
			m := b.Semaphore(dir, 2)
			call := locktest.Go(s.Context(), func(ctx context.Context) (context.Context, *zklock.Hold, error) { return acquire(m, ctx, 2) })
			<-in.Hit()
			require.NoError(s, a.Semaphore(dir, 2).Resize(s.Context(), 1))
			in.Release()
			require.True(s, call.Over())
			require.ErrorIs(s, call.Err, zklock.ErrInvalid)
			s.NothingLeft(dir)
		}
	})
}

// A size that is lowered while a call that has read the old one is about to take its place counts for that call.
func TestASizeThatIsLoweredBeforeACallTakesItsPlaceCounts(t *testing.T) {
	for _, try := range []bool{false, true} {
		t.Run(map[bool]string{false: "acquire", true: "try acquire"}[try], func(t *testing.T) {
			locktest.Simulate(t, func(s *locktest.Sim) {
				dir, a, b := s.Dir("/locks/a"), s.Client(), s.Client()
				m := a.Semaphore(dir, 2)
				h := s.Take(locktest.Permits(m, 1))
				in := s.Server.Inject(fault.Hold().Op(fault.OpCreate).Session(b.SessionID()).Once())
				other := b.Semaphore(dir, 2)
				call := locktest.Go(s.Context(), func(ctx context.Context) (context.Context, *zklock.Hold, error) {
					if try {
						return other.TryAcquire(ctx, 1)
					}
					return other.Acquire(ctx, 1)
				})
				<-in.Hit()
				require.NoError(s, m.Resize(s.Context(), 1))
				time.Sleep(time.Second) // as long as it takes: the session lives
				in.Release()
				if try {
					require.True(s, call.Over())
					require.ErrorIs(s, call.Err, zklock.ErrBusy)
				} else {
					require.False(s, call.Over(), "two permits of one are out")
				}
				s.Unlock(h)
				if !try {
					s.Unlock(call.Get(s))
				}
				s.NothingLeft(dir)
			})
		})
	}
}

// Resize makes a semaphore that does not exist, and writes nothing if nothing changes. Several at once end with one of the
// requested sizes.
func TestResizeOfASemaphoreThatIsNotThereAndOfManyAtOnce(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		c := s.Client()
		m := c.Semaphore("/locks/new", 2)
		require.NoError(s, m.Resize(s.Context(), 7))
		s.Unlock(s.Take(locktest.Permits(c.Semaphore("/locks/new", 7), 7)))
		s.Unlock(s.Take(locktest.Permits(m, 7)))
		before := s.Server.Requests()[fault.OpSetData]
		require.NoError(s, m.Resize(s.Context(), 7))
		require.Equal(s, before, s.Server.Requests()[fault.OpSetData])

		var all sync.WaitGroup
		for i := range 10 {
			all.Go(func() {
				if err := s.Client().Semaphore("/locks/new", 7).Resize(s.Context(), 20+i); err != nil {
					s.Error(err)
				}
			})
		}
		all.Wait()
		size, _, err := c.Semaphore("/locks/new", 1).Size(s.Context())
		require.NoError(s, err)
		require.Equal(s, 2, size/10, "one of the ten")
	})
}

// No call overwrites the data that another program keeps at the path, and the error names them (scenario 67).
func TestASemaphoreDoesNotOverwriteAnotherClientsData(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		s.Dir("/locks")
		for i, data := range []string{"hello", `{"size":"3"}`, `{"size":-3}`, `{"size":3,"owner":"me"}`, `[3]`, "3", "null", "\xff\xfe", `{"size":1e99}`, "\u202egnp"} {
			dir := "/locks/" + string(rune('a'+i))
			require.NoError(s, s.Server.Create(dir, []byte(data)))
			m := s.Client().Semaphore(dir, 3)
			for _, err := range []error{
				func() error { _, _, err := m.Acquire(s.Context(), 1); return err }(),
				func() error { _, _, err := m.TryAcquire(s.Context(), 1); return err }(),
				m.Resize(s.Context(), 5),
			} {
				require.ErrorIs(s, err, zklock.ErrConflict, "data %q", data)
				require.ErrorContains(s, err, dir+" has data that no lock has written")
				require.NotContains(s, err.Error(), "\u202e")
			}
			n, _ := s.Server.Node(dir)
			require.Equal(s, data, string(n.Data))
			require.Empty(s, s.Server.Children(dir))
		}
		for i, data := range []string{"", `{"size":0}`, "{}", ` { "size": 3 } `} { // nobody's, or a size
			dir := "/locks/" + string(rune('A'+i))
			require.NoError(s, s.Server.Create(dir, []byte(data)))
			s.Unlock(s.Take(locktest.Permits(s.Client().Semaphore(dir, 3), 3)))
			size, _, err := s.Client().Semaphore(dir, 4).Size(s.Context())
			require.NoError(s, err)
			require.Equal(s, 3, size, "data %q", data)
		}
	})
}

// Many clients begin at once on a path that does not exist: one size wins, and all clients get permits of it.
func TestManyClientsThatBeginAtOnceAgreeOnTheSize(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		var calls []*locktest.Call
		var cs []*locktest.Client
		for range 8 {
			cs = append(cs, s.Client())
		}
		for i, c := range cs {
			calls = append(calls, locktest.Go(s.Context(), locktest.Permits(c.Semaphore("/locks/new", 8+i%2), 1)))
		}
		sizes := map[int]bool{}
		for i, call := range calls {
			h := call.Get(s)
			size, _, err := cs[i].Semaphore("/locks/new", 1).Size(s.Context())
			require.NoError(s, err)
			sizes[size] = true
			s.Unlock(h)
		}
		require.Len(s, sizes, 1)
		s.NothingLeft("/locks/new")
	})
}
