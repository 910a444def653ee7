package zklock_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/tests/locktest"
	"github.com/zklock/locker/zklock"
)

func TestWaitersSayTheirPlaceInTheLocalLine(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		c := s.Client()
		m := c.Mutex("/l", zklock.WithHandoffs(5), zklock.WithOwner("us"))
		bounded := c.Mutex("/l", zklock.WithHandoffs(5), zklock.WithOwner("us"), zklock.WithMaxWait(time.Second))
		h := s.Lock(m)
		calls := inLine(s, m, 2)
		ctx, cancel := context.WithTimeout(s.Context(), time.Second)
		defer cancel()
		_, _, err := m.Lock(ctx)
		require.ErrorIs(s, err, context.DeadlineExceeded)
		require.ErrorContains(s, err, "4th in line behind us (")
		_, _, err = bounded.Lock(s.Context())
		require.ErrorIs(s, err, zklock.ErrBusy)
		require.NotErrorIs(s, err, context.DeadlineExceeded)
		require.ErrorContains(s, err, "4th in line behind us (")
		s.Unlock(h)
		for _, c := range calls {
			s.Unlock(c.Get(s))
		}
		clean(s, "/l")

		// Behind two outsiders and one of us.
		other := s.Client()
		h = s.Lock(other.Mutex("/l", zklock.WithOwner("them")))
		second := locktest.Go(s.Context(), other.Mutex("/l").Lock)
		synctest.Wait()
		calls = inLine(s, m, 1)
		ctx, cancel = context.WithTimeout(s.Context(), 2*time.Second)
		defer cancel()
		_, _, err = m.Lock(ctx)
		require.ErrorContains(s, err, "4th in line behind them (")
		s.Unlock(h)
		s.Unlock(second.Get(s))
		s.Unlock(calls[0].Get(s))
		clean(s, "/l")
	})
}

func TestAWaitWithoutAConnectionSaysSo(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		c := s.Client(zklock.WithSessionTimeout(40 * time.Second))
		m := c.Mutex("/l", zklock.WithHandoffs(5), zklock.WithMaxWait(2*time.Second))
		s.Server.Leader().Down()
		time.Sleep(time.Second)
		for range 3 {
			_, _, err := m.Lock(s.Context())
			require.ErrorIs(s, err, context.DeadlineExceeded)
			require.NotErrorIs(s, err, zklock.ErrBusy, "nobody can say whether it is")
			require.ErrorContains(s, err, "waiting for a connection")
		}
		s.Server.Leader().Up()
		s.Unlock(s.Lock(m))
		clean(s, "/l")
	})
}

func TestHooksAndStatusOfALocalLine(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		var mu sync.Mutex
		var diary []string
		note := func(format string, args ...any) {
			mu.Lock()
			defer mu.Unlock()
			diary = append(diary, fmt.Sprintf(format, args...))
		}
		c := s.Client(zklock.WithHooks(zklock.Hooks{
			Asked:    func(i zklock.LockInfo) { note("asked") },
			Queued:   func(i zklock.LockInfo) { note("queued %d %t", i.Ahead, strings.HasPrefix(i.Who, "us (")) },
			Acquired: func(i zklock.LockInfo) { note("acquired after %v", i.Waited) },
			Released: func(i zklock.LockInfo) { note("released after %v", i.Held) },
			Failed:   func(i zklock.LockInfo) { note("failed") },
			Lost:     func(i zklock.LockInfo) { note("lost %v", i.Err) },
		}))
		m := c.Mutex("/l", zklock.WithHandoffs(5), zklock.WithOwner("us"))
		h := s.Lock(m)
		calls := inLine(s, m, 2)
		st := c.Status()
		require.Len(s, st.Holds, 1)
		require.Len(s, st.Waits, 2)
		require.Equal(s, []int{1, 2}, []int{st.Waits[0].Ahead, st.Waits[1].Ahead})
		require.Equal(s, h.Node(), st.Waits[1].Holder)
		time.Sleep(time.Second)
		s.Unlock(h)
		h = calls[0].Get(s)
		synctest.Wait()
		require.Len(s, c.Status().Waits, 1)
		time.Sleep(time.Second)
		require.NoError(s, s.Server.Delete(h.Node()))
		h = calls[1].Get(s)
		s.Unlock(h)
		synctest.Wait()
		st = c.Status()
		require.Empty(s, st.Holds)
		require.Empty(s, st.Waits)
		require.Len(s, diary, 11)
		require.Equal(s, []string{"asked", "acquired after 0s", "asked", "queued 1 true", "asked", "queued 2 true"}, diary[:6])
		// The status has the hold that ends and the next one independently, in either order.
		require.ElementsMatch(s, []string{"released after 1s", "acquired after 1s"}, diary[6:8])
		require.ElementsMatch(s, []string{"lost zklock: the lock's znode was deleted by somebody else", "acquired after 2s"}, diary[8:10])
		require.Equal(s, "released after 0s", diary[10])
	})
}
