package zklock_test

import (
	"context"
	"fmt"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/zklock"
	"github.com/zklock/locker/zktest"
)

// Semaphores: scenarios 33 to 35, and what is refused.

// semAcquire is Acquire of n permits as the helpers take it.
func semAcquire(m *zklock.Semaphore, n int) func(context.Context) (*zklock.Hold, error) {
	return func(ctx context.Context) (*zklock.Hold, error) { return m.Acquire(ctx, n) }
}

// semTake takes n permits that must be free.
func semTake(s *sim, m *zklock.Semaphore, n int) *zklock.Hold {
	s.Helper()
	h, err := m.Acquire(s.Context(), n)
	require.NoError(s, err)
	return h
}

// semAside starts a call for n permits and returns when it has its place in line.
func semAside(s *sim, m *zklock.Semaphore, n int) *simCall {
	c := simGo(s.Context(), semAcquire(m, n))
	synctest.Wait()
	return c
}

// semNothingLeft demands that the line is empty and no watch stands, at once or after what still goes on.
func semNothingLeft(s *sim, dir string) {
	s.Helper()
	s.empty(10*time.Second, dir)
	s.until(10*time.Second, "no watch left", func() bool { return s.srv.WatchCount() == 0 })
}

// scenario 33: two clients each want 2 of 2 permits: one gets both, then the other.
func TestScenario33_TwoClientsThatWantAllPermitsGetThemOneAfterTheOther(t *testing.T) {
	simTest(t, func(s *sim) {
		dir, a, b := s.dir("/locks/a"), s.client(), s.client()
		calls := []*simCall{
			simGo(s.Context(), semAcquire(a.Semaphore(dir, 2), 2)),
			simGo(s.Context(), semAcquire(b.Semaphore(dir, 2), 2)),
		}
		time.Sleep(time.Minute)
		first, second := calls[0], calls[1]
		if !first.over() {
			first, second = second, first
		}
		require.True(s, first.over(), "one has both")
		require.False(s, second.over(), "the other has none")
		h := first.get(s)
		require.NoError(s, h.Err())
		s.unlock(h)
		next := second.get(s)
		require.Greater(s, next.Token(), h.Token())
		s.unlock(next)
		semNothingLeft(s, dir)
	})
}

// scenario 33, with more wishes than permits in all mixtures: never half a wish, never more than there are.
func TestScenario33_PermitsAreGivenAllOrNone(t *testing.T) {
	simTest(t, func(s *sim) {
		dir := s.dir("/locks/a")
		wishes := []int{2, 1, 3, 1, 1, 2, 3, 1}
		var calls []*simCall
		for _, n := range wishes {
			calls = append(calls, semAside(s, s.client().Semaphore(dir, 3), n))
		}
		for first := 0; first < len(wishes); {
			time.Sleep(time.Second)
			sum, last := 0, first
			for last < len(wishes) && sum+wishes[last] <= 3 {
				sum += wishes[last]
				last++
			}
			for i, call := range calls[first:] {
				require.Equal(s, first+i < last, call.over(), "contender %d while %d to %d should hold", first+i, first, last-1)
			}
			s.unlock(calls[first].get(s))
			first++
		}
		semNothingLeft(s, dir)
	})
}

// scenario 34: permits are raised while waiters wait: as many wake as there is room for, in the order of arrival.
func TestScenario34_WaitersWakeWhenPermitsAreRaised(t *testing.T) {
	for _, settled := range []time.Duration{0, time.Minute} {
		t.Run(settled.String(), func(t *testing.T) {
			simTest(t, func(s *sim) {
				dir, a := s.dir("/locks/a"), s.client()
				h := semTake(s, a.Semaphore(dir, 1), 1)
				var calls []*simCall
				for range 6 {
					calls = append(calls, semAside(s, s.client().Semaphore(dir, 1), 1))
				}
				time.Sleep(settled)
				for _, size := range []int{2, 5} {
					raised := time.Now()
					require.NoError(s, s.client().Semaphore(dir, 1).Resize(s.Context(), size))
					for i, call := range calls {
						require.Equal(s, i < size-1, call.over(), "contender %d of a semaphore of %d", i, size)
					}
					require.Equal(s, raised, time.Now(), "they wake at once")
				}
				s.unlock(h)
				for _, call := range calls {
					s.unlock(call.get(s))
				}
				semNothingLeft(s, dir)
			})
		})
	}
}

// scenario 34, when one who waits wants more than there were before, and one behind it less.
func TestScenario34_ARaiseThatIsTooSmallForTheHeadLetsNobodyPast(t *testing.T) {
	simTest(t, func(s *sim) {
		dir, a, b := s.dir("/locks/a"), s.client(), s.client()
		m := a.Semaphore(dir, 3)
		h := semTake(s, m, 2)
		large, small := semAside(s, b.Semaphore(dir, 3), 3), semAside(s, s.client().Semaphore(dir, 3), 1)
		require.NoError(s, m.Resize(s.Context(), 4))
		require.False(s, large.over())
		require.False(s, small.over(), "it would fit, and has to wait its turn")
		require.NoError(s, m.Resize(s.Context(), 5))
		require.True(s, large.over())
		require.False(s, small.over())
		require.NoError(s, m.Resize(s.Context(), 6))
		require.True(s, small.over())
		for _, h := range []*zklock.Hold{h, large.get(s), small.get(s)} {
			s.unlock(h)
		}
		semNothingLeft(s, dir)
	})
}

// scenario 35: two clients open one semaphore with different sizes: the second gets ErrConflict, which names both.
func TestScenario35_AnotherSizeIsAConflictThatNamesBoth(t *testing.T) {
	simTest(t, func(s *sim) {
		dir, a, b := s.dir("/locks/a"), s.client(), s.client()
		h := semTake(s, a.Semaphore(dir, 17), 1)
		for name, call := range map[string]func(*zklock.Semaphore) error{
			"acquire":     func(m *zklock.Semaphore) error { _, err := m.Acquire(s.Context(), 1); return err },
			"try acquire": func(m *zklock.Semaphore) error { _, err := m.TryAcquire(s.Context(), 1); return err },
			"do": func(m *zklock.Semaphore) error {
				return m.Do(s.Context(), 1, func(context.Context) error { panic("not held") })
			},
		} {
			for _, size := range []int{23, 5} {
				err := call(b.Semaphore(dir, size))
				require.ErrorIs(s, err, zklock.ErrConflict, name)
				require.ErrorContains(s, err, "17", name)
				require.ErrorContains(s, err, fmt.Sprint(size), name)
				require.ErrorContains(s, err, dir, name)
			}
		}
		require.Len(s, s.srv.Children(dir), 1, "none of them has taken a place")
		s.unlock(h)
		_, err := b.Semaphore(dir, 23).Acquire(s.Context(), 1)
		require.ErrorIs(s, err, zklock.ErrConflict, "also when nobody uses it")
		s.unlock(semTake(s, b.Semaphore(dir, 17), 17))
		semNothingLeft(s, dir)
	})
}

// scenario 35, after a change of size: who had agreed before follows; who comes anew has to know the new one.
func TestScenario35_SemaphoresInUseFollowAResizeAndNewOnesMustKnowTheSize(t *testing.T) {
	simTest(t, func(s *sim) {
		dir, a, b := s.dir("/locks/a"), s.client(), s.client()
		ma, mb := a.Semaphore(dir, 2), b.Semaphore(dir, 2)
		s.unlock(semTake(s, ma, 1))
		s.unlock(semTake(s, mb, 1))
		require.NoError(s, ma.Resize(s.Context(), 4))
		s.unlock(semTake(s, ma, 4))
		s.unlock(semTake(s, mb, 4))
		_, err := b.Semaphore(dir, 2).Acquire(s.Context(), 1)
		require.ErrorIs(s, err, zklock.ErrConflict)
		s.unlock(semTake(s, b.Semaphore(dir, 4), 4))
		require.NoError(s, mb.Resize(s.Context(), 1))
		_, err = ma.Acquire(s.Context(), 2)
		require.ErrorIs(s, err, zklock.ErrOption, "more than there are now")
		s.unlock(semTake(s, ma, 1))
		semNothingLeft(s, dir)
	})
}

// What can never be is refused before anything is made: fewer than one permit, more than there are, a size that is none.
func TestASemaphoreRefusesNumbersThatCanNotBeBeforeAnythingIsMade(t *testing.T) {
	simTest(t, func(s *sim) {
		c := s.client()
		creates := func() int {
			r := s.srv.Requests()
			return r[zktest.OpCreate] + r[zktest.OpCreate2] + r[zktest.OpCreateContainer] + r[zktest.OpMulti] + r[zktest.OpSetData]
		}
		before := creates()
		for _, k := range []struct {
			size, n int
			says    string
		}{
			{3, 0, "less than one"}, {3, -1, "less than one"}, {3, 4, "more than the semaphore has, which is 3"},
			{1, math.MaxInt, "more than"}, {0, 1, "0 permits"}, {-1, 1, "-1 permits"}, {1<<30 + 1, 1, "is not between"},
		} {
			m := c.Semaphore("/locks/new", k.size)
			_, err := m.Acquire(s.Context(), k.n)
			require.ErrorIs(s, err, zklock.ErrOption, "%d of %d", k.n, k.size)
			require.ErrorContains(s, err, k.says)
			_, err = m.TryAcquire(s.Context(), k.n)
			require.ErrorIs(s, err, zklock.ErrOption, "%d of %d", k.n, k.size)
			require.True(s, strings.HasPrefix(err.Error(), "zklock: "), err.Error())
		}
		for _, size := range []int{0, -1, 1<<30 + 1} {
			require.ErrorIs(s, c.Semaphore("/locks/new", 1).Resize(s.Context(), size), zklock.ErrOption)
			require.ErrorIs(s, c.Semaphore("/locks/new", size).Resize(s.Context(), 1), zklock.ErrOption)
		}
		require.Equal(s, before, creates(), "something was written")
		_, ok := s.srv.Node("/locks/new")
		require.False(s, ok, "the directory was made")

		s.unlock(semTake(s, c.Semaphore("/locks/big", 1<<30), 1<<30)) // the greatest that can be
	})
}
