package zklock_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/tests/locktest"
	"github.com/zklock/locker/zklock"
	"github.com/zklock/locker/zktest/fault"
)

// Semaphores: scenarios 33 to 35, and what is refused.

// scenario 33: two clients each want 2 of 2 permits: one gets both, then the other.
func TestScenario33_TwoClientsThatWantAllPermitsGetThemOneAfterTheOther(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		dir, a, b := s.Dir("/locks/a"), s.Client(), s.Client()
		calls := []*locktest.Call{
			locktest.Go(s.Context(), locktest.Permits(a.Semaphore(dir, 2), 2)),
			locktest.Go(s.Context(), locktest.Permits(b.Semaphore(dir, 2), 2)),
		}
		time.Sleep(time.Minute)
		first, second := calls[0], calls[1]
		if !first.Over() {
			first, second = second, first
		}
		require.True(s, first.Over(), "one has both")
		require.False(s, second.Over(), "the other has none")
		h := first.Get(s)
		require.NoError(s, h.Err())
		s.Unlock(h)
		next := second.Get(s)
		require.Greater(s, next.Token(), h.Token())
		s.Unlock(next)
		s.NothingLeft(dir)
	})
}

// scenario 33, with random demands that exceed the permits: a call gets all of its permits or none, and the size is never
// exceeded.
func TestScenario33_PermitsAreGivenAllOrNone(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		dir := s.Dir("/locks/a")
		wishes := []int{2, 1, 3, 1, 1, 2, 3, 1}
		var calls []*locktest.Call
		for _, n := range wishes {
			calls = append(calls, s.Start(locktest.Permits(s.Client().Semaphore(dir, 3), n)))
		}
		for first := 0; first < len(wishes); {
			time.Sleep(time.Second)
			sum, last := 0, first
			for last < len(wishes) && sum+wishes[last] <= 3 {
				sum += wishes[last]
				last++
			}
			for i, call := range calls[first:] {
				require.Equal(s, first+i < last, call.Over(), "contender %d while %d to %d should hold", first+i, first, last-1)
			}
			s.Unlock(calls[first].Get(s))
			first++
		}
		s.NothingLeft(dir)
	})
}

// scenario 34: the size is raised while calls wait: as many hold as there is room for, in the order of arrival.
func TestScenario34_WaitersWakeWhenPermitsAreRaised(t *testing.T) {
	for _, settled := range []time.Duration{0, time.Minute} {
		t.Run(settled.String(), func(t *testing.T) {
			locktest.Simulate(t, func(s *locktest.Sim) {
				dir, a := s.Dir("/locks/a"), s.Client()
				h := s.Take(locktest.Permits(a.Semaphore(dir, 1), 1))
				var calls []*locktest.Call
				for range 6 {
					calls = append(calls, s.Start(locktest.Permits(s.Client().Semaphore(dir, 1), 1)))
				}
				time.Sleep(settled)
				for _, size := range []int{2, 5} {
					raised := time.Now()
					require.NoError(s, s.Client().Semaphore(dir, 1).Resize(s.Context(), size))
					for i, call := range calls {
						require.Equal(s, i < size-1, call.Over(), "contender %d of a semaphore of %d", i, size)
					}
					require.Equal(s, raised, time.Now(), "they wake at once")
				}
				s.Unlock(h)
				for _, call := range calls {
					s.Unlock(call.Get(s))
				}
				s.NothingLeft(dir)
			})
		})
	}
}

// scenario 34, when a waiter wants more than the old size, and one behind it wants less.
func TestScenario34_ARaiseThatIsTooSmallForTheHeadLetsNoContenderPast(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		dir, a, b := s.Dir("/locks/a"), s.Client(), s.Client()
		m := a.Semaphore(dir, 3)
		h := s.Take(locktest.Permits(m, 2))
		large, small := s.Start(locktest.Permits(b.Semaphore(dir, 3), 3)), s.Start(locktest.Permits(s.Client().Semaphore(dir, 3), 1))
		require.NoError(s, m.Resize(s.Context(), 4))
		require.False(s, large.Over())
		require.False(s, small.Over(), "it would fit, and has to wait its turn")
		require.NoError(s, m.Resize(s.Context(), 5))
		require.True(s, large.Over())
		require.False(s, small.Over())
		require.NoError(s, m.Resize(s.Context(), 6))
		require.True(s, small.Over())
		for _, h := range []*zklock.Hold{h, large.Get(s), small.Get(s)} {
			s.Unlock(h)
		}
		s.NothingLeft(dir)
	})
}

// scenario 35: programs give one semaphore different sizes, as during a rolling deploy from 8 to 10 and back. The ensemble's
// counts for all; who has another is warned once.
func TestScenario35_TheSizeAtTheEnsembleCountsAndAnotherIsWarnedOf(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		dir := s.Dir("/locks/a")
		s.Unlock(s.Take(locktest.Permits(s.Client().Semaphore(dir, 8), 1)))
		for _, size := range []int{10, 8, 5} {
			var log bytes.Buffer
			c := s.Client(zklock.WithLogger(slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn}))))
			m := c.Semaphore(dir, size)
			for range 2 {
				h := s.Take(locktest.Permits(m, 5))
				_, _, err := m.TryAcquire(s.Context(), 4)
				require.ErrorIs(s, err, zklock.ErrBusy, "3 are left")
				s.Unlock(h)
			}
			_, _, err := m.Acquire(s.Context(), 9)
			require.ErrorIs(s, err, zklock.ErrInvalid)
			require.ErrorContains(s, err, "more than the semaphore has, which is 8")
			if size == 8 {
				require.Empty(s, log.String())
			} else {
				require.Equal(s, 1, strings.Count(log.String(), "\n"), log.String())
				require.Contains(s, log.String(), fmt.Sprintf("path=%s ensemble=8 program=%d", dir, size))
			}
		}
		s.NothingLeft(dir)
	})
}

// After a change of size, semaphores in use follow it, and new ones have it.
func TestScenario35_SemaphoresFollowAResize(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		dir, a, b := s.Dir("/locks/a"), s.Client(), s.Client()
		ma, mb := a.Semaphore(dir, 2), b.Semaphore(dir, 2)
		s.Unlock(s.Take(locktest.Permits(ma, 1)))
		s.Unlock(s.Take(locktest.Permits(mb, 1)))
		require.NoError(s, ma.Resize(s.Context(), 4))
		s.Unlock(s.Take(locktest.Permits(ma, 4)))
		s.Unlock(s.Take(locktest.Permits(mb, 4)))
		fresh := b.Semaphore(dir, 2)
		s.Unlock(s.Take(locktest.Permits(fresh, 1)))
		s.Unlock(s.Take(locktest.Permits(fresh, 4)))
		require.NoError(s, mb.Resize(s.Context(), 1))
		_, _, err := ma.Acquire(s.Context(), 2)
		require.ErrorIs(s, err, zklock.ErrInvalid, "more than there are now")
		s.Unlock(s.Take(locktest.Permits(ma, 1)))
		s.NothingLeft(dir)
	})
}

// Impossible numbers are refused before anything is made: fewer than one permit, more than the size, a size below one.
func TestASemaphoreRefusesNumbersThatCanNotBeBeforeAnythingIsMade(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		c := s.Client()
		creates := func() int {
			r := s.Server.Requests()
			return r[fault.OpCreate] + r[fault.OpCreate2] + r[fault.OpCreateContainer] + r[fault.OpMulti] + r[fault.OpSetData]
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
			_, _, err := m.Acquire(s.Context(), k.n)
			require.ErrorIs(s, err, zklock.ErrInvalid, "%d of %d", k.n, k.size)
			require.ErrorContains(s, err, k.says)
			_, _, err = m.TryAcquire(s.Context(), k.n)
			require.ErrorIs(s, err, zklock.ErrInvalid, "%d of %d", k.n, k.size)
			require.True(s, strings.HasPrefix(err.Error(), "zklock: "), err.Error())
		}
		for _, size := range []int{0, -1, 1<<30 + 1} {
			require.ErrorIs(s, c.Semaphore("/locks/new", 1).Resize(s.Context(), size), zklock.ErrInvalid)
			require.ErrorIs(s, c.Semaphore("/locks/new", size).Resize(s.Context(), 1), zklock.ErrInvalid)
		}
		require.Equal(s, before, creates(), "something was written")
		_, ok := s.Server.Node("/locks/new")
		require.False(s, ok, "the directory was made")

		s.Unlock(s.Take(locktest.Permits(c.Semaphore("/locks/big", 1<<30), 1<<30))) // the greatest that is allowed
	})
}

func TestASemaphoresSizeAndWhatIsFreeCanBeRead(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		c, other := s.Client(), s.Client()
		sem := c.Semaphore("/s", 5)
		sizes := func(wantSize, wantFree int) {
			s.Helper()
			size, free, err := sem.Size(s.Context())
			require.NoError(s, err)
			require.Equal(s, []int{wantSize, wantFree}, []int{size, free})
		}
		sizes(5, 5)
		_, there := s.Server.Node("/s")
		require.False(s, there, "nothing is written")

		h := s.Take(locktest.Permits(other.Semaphore("/s", 5), 2))
		sizes(5, 3)
		waiter := s.Start(locktest.Permits(other.Semaphore("/s", 5), 4))
		sizes(5, 0)
		s.Unlock(h)
		next := waiter.Get(s)
		sizes(5, 1)
		require.NoError(s, sem.Resize(s.Context(), 2))
		sizes(2, 0)
		s.Unlock(next)
		sizes(2, 2)

		require.NoError(s, s.Server.SetData("/s", []byte("somebody else's")))
		_, _, err := sem.Size(s.Context())
		require.ErrorIs(s, err, zklock.ErrConflict)
		_, _, err = c.Semaphore("s", 1).Size(s.Context())
		require.ErrorIs(s, err, zklock.ErrPath)
	})
}
