package zklock_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/zklock"
	"github.com/zklock/locker/zktest"
)

// Resize downwards, races of sizes, and what stands at the path.

// Fewer permits let those who hold finish; nobody comes in before there is room.
func TestALowerSizeLetsHoldersFinish(t *testing.T) {
	simTest(t, func(s *sim) {
		dir, a := s.dir("/locks/a"), s.client()
		m := a.Semaphore(dir, 3)
		holds := []*zklock.Hold{semTake(s, m, 1), semTake(s, m, 1), semTake(s, m, 1)}
		require.NoError(s, m.Resize(s.Context(), 1))
		time.Sleep(time.Hour)
		for _, h := range holds {
			s.owned(a, h)
			require.NoError(s, h.Check(s.Context()))
		}
		_, err := m.TryAcquire(s.Context(), 1)
		require.ErrorIs(s, err, zklock.ErrBusy)
		s.unlock(holds[2])
		s.unlock(holds[1])
		_, err = m.TryAcquire(s.Context(), 1)
		require.ErrorIs(s, err, zklock.ErrBusy)
		s.unlock(holds[0])
		s.unlock(semTake(s, m, 1))
		semNothingLeft(s, dir)
	})
}

// After a lower size those who hold may have more permits than there are. The first who waits comes in as soon as
// there is room again, whichever holder made it, and whether it came before the change or after.
func TestAfterALowerSizeAnyReleaseThatMakesRoomLetsTheHeadIn(t *testing.T) {
	for _, before := range []bool{true, false} {
		for leaver := range 2 {
			name := map[bool]string{true: "waited before", false: "came after"}[before] + ", " + []string{"first", "second"}[leaver] + " holder goes"
			t.Run(name, func(t *testing.T) {
				simTest(t, func(s *sim) {
					dir := s.dir("/locks/a")
					m := s.client().Semaphore(dir, 4)
					holds := []*zklock.Hold{semTake(s, s.client().Semaphore(dir, 4), 2), semTake(s, s.client().Semaphore(dir, 4), 2)}
					var head *simCall
					if before {
						head = semAside(s, s.client().Semaphore(dir, 4), 1)
					}
					require.NoError(s, m.Resize(s.Context(), 3))
					if !before {
						head = semAside(s, s.client().Semaphore(dir, 3), 1)
					}
					next := semAside(s, s.client().Semaphore(dir, 3), 3)
					time.Sleep(time.Minute)
					require.False(s, head.over())
					s.unlock(holds[leaver])
					require.True(s, head.over(), "two of three are held: there is room for one")
					require.False(s, next.over())
					s.unlock(holds[1-leaver])
					require.False(s, next.over())
					s.unlock(head.get(s))
					s.unlock(next.get(s))
					semNothingLeft(s, dir)
				})
			})
		}
	}
}

// Lower and then higher again, while holders have more than there are and somebody waits.
func TestALowerSizeThatIsRaisedAgainWakesTheHead(t *testing.T) {
	for _, before := range []bool{true, false} {
		t.Run(map[bool]string{true: "waited before", false: "came after"}[before], func(t *testing.T) {
			simTest(t, func(s *sim) {
				dir := s.dir("/locks/a")
				m := s.client().Semaphore(dir, 4)
				one, two := semTake(s, s.client().Semaphore(dir, 4), 2), semTake(s, s.client().Semaphore(dir, 4), 2)
				var head *simCall
				if before {
					head = semAside(s, s.client().Semaphore(dir, 4), 1)
				}
				require.NoError(s, m.Resize(s.Context(), 2))
				if !before {
					head = semAside(s, s.client().Semaphore(dir, 2), 1)
				}
				time.Sleep(time.Minute)
				require.False(s, head.over())
				require.NoError(s, m.Resize(s.Context(), 5))
				require.True(s, head.over())
				s.unlock(head.get(s))
				s.unlock(one)
				s.unlock(two)
				semNothingLeft(s, dir)
			})
		})
	}
}

// A request that waits for more than there are after a Resize waits on, and comes in when the size is raised again;
// it lets nobody past meanwhile.
func TestARequestThatBecameLargerThanTheSizeWaitsForARaise(t *testing.T) {
	simTest(t, func(s *sim) {
		dir := s.dir("/locks/a")
		m := s.client().Semaphore(dir, 4)
		h := semTake(s, m, 1)
		large, small := semAside(s, s.client().Semaphore(dir, 4), 4), semAside(s, s.client().Semaphore(dir, 4), 1)
		require.NoError(s, m.Resize(s.Context(), 2))
		s.unlock(h)
		time.Sleep(time.Hour)
		require.False(s, large.over())
		require.False(s, small.over())
		require.NoError(s, m.Resize(s.Context(), 4))
		require.True(s, large.over())
		s.unlock(large.get(s))
		s.unlock(small.get(s))
		semNothingLeft(s, dir)
	})
}

// A size that is lowered while a call that has read the old one is about to take its place counts for that call.
func TestASizeThatIsLoweredBeforeACallTakesItsPlaceCounts(t *testing.T) {
	for _, try := range []bool{false, true} {
		t.Run(map[bool]string{false: "acquire", true: "try acquire"}[try], func(t *testing.T) {
			simTest(t, func(s *sim) {
				dir, a, b := s.dir("/locks/a"), s.client(), s.client()
				m := a.Semaphore(dir, 2)
				h := semTake(s, m, 1)
				in := s.srv.Inject(zktest.Hold().Op(zktest.OpCreate).Session(b.id()).Once())
				other := b.Semaphore(dir, 2)
				call := simGo(s.Context(), func(ctx context.Context) (*zklock.Hold, error) {
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
					require.True(s, call.over())
					require.ErrorIs(s, call.err, zklock.ErrBusy)
				} else {
					require.False(s, call.over(), "two permits of one are out")
				}
				s.unlock(h)
				if !try {
					s.unlock(call.get(s))
				}
				semNothingLeft(s, dir)
			})
		})
	}
}

// Resize makes the semaphore when it is not there, costs no write when there is nothing to change, and several at once
// end with one of the sizes asked for.
func TestResizeOfASemaphoreThatIsNotThereAndOfManyAtOnce(t *testing.T) {
	simTest(t, func(s *sim) {
		c := s.client()
		m := c.Semaphore("/locks/new", 2)
		require.NoError(s, m.Resize(s.Context(), 7))
		s.unlock(semTake(s, c.Semaphore("/locks/new", 7), 7))
		s.unlock(semTake(s, m, 7))
		before := s.srv.Requests()[zktest.OpSetData]
		require.NoError(s, m.Resize(s.Context(), 7))
		require.Equal(s, before, s.srv.Requests()[zktest.OpSetData])

		var all sync.WaitGroup
		for i := range 10 {
			all.Go(func() {
				if err := s.client().Semaphore("/locks/new", 7).Resize(s.Context(), 20+i); err != nil {
					s.Error(err)
				}
			})
		}
		all.Wait()
		_, err := c.Semaphore("/locks/new", 1).Acquire(s.Context(), 1)
		require.ErrorIs(s, err, zklock.ErrConflict)
		require.Regexp(s, `has 2\d permits at the ensemble, not 1`, err.Error())
	})
}

// A Resize whose request or reply is lost is made good.
func TestAResizeThatLosesItsConnectionIsCarriedOut(t *testing.T) {
	for name, f := range map[string]zktest.Fault{"the request": zktest.CloseBefore(), "the reply": zktest.CloseAfter()} {
		t.Run(name, func(t *testing.T) {
			simTest(t, func(s *sim) {
				dir, a := s.dir("/locks/a"), s.client()
				m := a.Semaphore(dir, 2)
				h := semTake(s, m, 2)
				waiter := semAside(s, s.client().Semaphore(dir, 2), 1)
				s.srv.Inject(f.Op(zktest.OpSetData).Path(dir).Session(a.id()).Once())
				require.NoError(s, m.Resize(s.Context(), 3))
				s.unlock(waiter.get(s))
				s.unlock(h)
				semNothingLeft(s, dir)
			})
		})
	}
}

// Data at the path that somebody else keeps there are not overwritten, whatever is called, and the refusal names them
// (scenario 67).
func TestASemaphoreDoesNotOverwriteSomebodyElsesData(t *testing.T) {
	simTest(t, func(s *sim) {
		s.dir("/locks")
		for i, data := range []string{"hello", `{"size":"3"}`, `{"size":-3}`, `{"size":3,"owner":"me"}`, `[3]`, "3", "null", "\xff\xfe", `{"size":1e99}`, "\u202egnp"} {
			dir := "/locks/" + string(rune('a'+i))
			require.NoError(s, s.srv.Create(dir, []byte(data)))
			m := s.client().Semaphore(dir, 3)
			for _, err := range []error{
				func() error { _, err := m.Acquire(s.Context(), 1); return err }(),
				func() error { _, err := m.TryAcquire(s.Context(), 1); return err }(),
				m.Resize(s.Context(), 5),
			} {
				require.ErrorIs(s, err, zklock.ErrConflict, "data %q", data)
				require.ErrorContains(s, err, dir+" has data that no lock has written")
				require.NotContains(s, err.Error(), "\u202e")
			}
			n, _ := s.srv.Node(dir)
			require.Equal(s, data, string(n.Data))
			require.Empty(s, s.srv.Children(dir))
		}
		for i, data := range []string{"", `{"size":0}`, "{}", ` { "size": 3 } `} { // nobody's, or a size
			dir := "/locks/" + string(rune('A'+i))
			require.NoError(s, s.srv.Create(dir, []byte(data)))
			s.unlock(semTake(s, s.client().Semaphore(dir, 3), 3))
			_, err := s.client().Semaphore(dir, 4).TryAcquire(s.Context(), 1)
			require.ErrorIs(s, err, zklock.ErrConflict, "data %q", data)
		}
	})
}

// A semaphore's size and a lock delay share the path's data, and neither costs the other its own (scenario 67).
func TestASemaphoreWithALockDelayKeepsBothInThePathsData(t *testing.T) {
	simTest(t, func(s *sim) {
		dir, a, b := s.dir("/locks/a"), s.client(), s.client()
		delay := zklock.WithLockDelay(30 * time.Second)
		m := a.Semaphore(dir, 3, delay)
		one, two := semTake(s, m, 1), semTake(s, b.Semaphore(dir, 3, delay), 1)
		require.NoError(s, m.Resize(s.Context(), 2))
		_, err := b.Semaphore(dir, 3, delay).TryAcquire(s.Context(), 1)
		require.ErrorIs(s, err, zklock.ErrConflict)
		require.NoError(s, s.srv.Delete(two.Node()))
		time.Sleep(time.Second)
		require.ErrorIs(s, two.Unlock(s.Context()), zklock.ErrNodeDeleted)
		began := time.Now()
		next := semTake(s, m, 1)
		require.Equal(s, 30*time.Second, time.Since(began), "after a loss")
		s.unlock(one)
		s.unlock(next)
		n, _ := s.srv.Node(dir)
		require.JSONEq(s, `{"size":2,"was":3}`, string(n.Data))
		semNothingLeft(s, dir)
	})
}

// Many clients begin at once on a path that is not there: one size wins, and all who name it get permits.
func TestManyClientsThatBeginAtOnceAgreeOnTheSize(t *testing.T) {
	simTest(t, func(s *sim) {
		var calls []*simCall
		var cs []*simClient
		for range 8 {
			cs = append(cs, s.client())
		}
		for i, c := range cs {
			calls = append(calls, simGo(s.Context(), semAcquire(c.Semaphore("/locks/new", 8+i%2), 1)))
		}
		synctest.Wait()
		held := 0
		for _, call := range calls {
			<-call.done
			if call.err != nil {
				require.ErrorIs(s, call.err, zklock.ErrConflict)
				continue
			}
			held++
			s.unlock(call.hold)
		}
		require.Equal(s, 4, held)
		semNothingLeft(s, "/locks/new")
	})
}
