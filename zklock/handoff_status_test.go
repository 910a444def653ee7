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
