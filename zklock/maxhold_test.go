package zklock_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/tests/locktest"
	"github.com/zklock/locker/zklock"
	"github.com/zklock/locker/zktest"
	"github.com/zklock/locker/zktest/fault"
)

func TestMaxHoldEndsTheContextFirstAndThenTheZnode(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T, srv *zktest.Server) {
		a, b := locktest.Dial(t, srv), locktest.Dial(t, srv)
		h := locktest.Lock(t, a.Mutex("/l", zklock.WithMaxHold(time.Minute)))
		next := make(chan time.Time, 1)
		start := time.Now()
		go func() {
			locktest.Lock(t, b.Mutex("/l"))
			next <- time.Now()
		}()
		failure := srv.Inject(fault.Hold().Op(fault.OpDelete))
		require.ErrorIs(t, locktest.End(h), zklock.ErrMaxHold)
		require.Equal(t, time.Minute, time.Since(start))
		synctest.Wait()
		require.Len(t, srv.Children("/l"), 2, "its znode goes after its context")
		failure.Remove()
		require.Equal(t, start.Add(time.Minute), <-next)
		require.ErrorIs(t, h.Err(), zklock.ErrLost)
		err := h.Unlock()
		require.ErrorIs(t, err, zklock.ErrLost)
		require.ErrorIs(t, err, zklock.ErrMaxHold)
		require.ErrorIs(t, h.Unlock(), zklock.ErrUnlocked)
		require.Len(t, srv.Children("/l"), 1)
		require.ErrorIs(t, h.Check(locktest.Soon(t)), zklock.ErrMaxHold)
		_, err = h.Multi(locktest.Soon(t))
		require.ErrorIs(t, err, zklock.ErrMaxHold)
	})
}

func TestMaxHoldWhileTheServerIsAway(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T, srv *zktest.Server) {
		c := locktest.Dial(t, srv, zklock.WithSessionTimeout(40*time.Second))
		h := locktest.Lock(t, c.Mutex("/l", zklock.WithMaxHold(5*time.Second)))
		srv.Leader().Down()
		require.ErrorIs(t, locktest.End(h), zklock.ErrMaxHold)
		srv.Leader().Up()
		time.Sleep(5 * time.Second)
		require.Empty(t, srv.Children("/l"), "deleted as soon as there is a server")
	})
}

// So a call of a database, say, that gets the context knows how long it may take.
func TestTheContextOfAHoldWithAMaximumHasItAsItsDeadline(t *testing.T) {
	for name, opts := range map[string][]zklock.LockOption{
		"alone": {zklock.WithMaxHold(time.Minute)}, "handed on": {zklock.WithMaxHold(time.Minute), zklock.WithHandoffs(2)},
		"joined": {zklock.WithMaxHold(time.Minute), zklock.WithReentrancy()},
	} {
		t.Run(name, func(t *testing.T) {
			locktest.Simulate(t, func(s *locktest.Sim) {
				c := s.Client()
				m := c.Mutex("/l", opts...)
				h := s.Lock(m)
				want := time.Now().Add(time.Minute)
				if name == "joined" {
					time.Sleep(time.Second)
					var err error
					_, h, err = m.Lock(h.Context())
					require.NoError(s, err)
				}
				short, cancel := context.WithTimeout(h.Context(), time.Hour)
				defer cancel()
				for _, ctx := range []context.Context{h.Context(), short} {
					deadline, ok := ctx.Deadline()
					require.True(s, ok)
					require.Equal(s, want, deadline)
				}
				<-short.Done()
				require.Equal(s, want, time.Now())
				require.ErrorIs(s, context.Cause(short), zklock.ErrMaxHold)
				_, ok := s.Lock(c.Mutex("/none")).Context().Deadline()
				require.False(s, ok)
			})
		})
	}
}
