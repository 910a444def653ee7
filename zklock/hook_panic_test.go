package zklock_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/tests/locktest"
	"github.com/zklock/locker/zklock"
	"github.com/zklock/locker/zktest"
)

// A hook panics at each moment of a call, and the caller recovers, as net/http does for its handlers.
func TestScenario70_APanicOfAHookLeavesNoPlaceAndNoHold(t *testing.T) {
	for event, hooks := range map[string]func(oops func()) zklock.Hooks{
		"asked":    func(oops func()) zklock.Hooks { return zklock.Hooks{Asked: func(zklock.LockInfo) { oops() }} },
		"queued":   func(oops func()) zklock.Hooks { return zklock.Hooks{Queued: func(zklock.LockInfo) { oops() }} },
		"retried":  func(oops func()) zklock.Hooks { return zklock.Hooks{Retried: func(zklock.LockInfo) { oops() }} },
		"acquired": func(oops func()) zklock.Hooks { return zklock.Hooks{Acquired: func(zklock.LockInfo) { oops() }} },
		"failed":   func(oops func()) zklock.Hooks { return zklock.Hooks{Failed: func(zklock.LockInfo) { oops() }} },
		"released": func(oops func()) zklock.Hooks { return zklock.Hooks{Released: func(zklock.LockInfo) { oops() }} },
	} {
		for _, kind := range anyKinds {
			t.Run(event+", "+kind.name, func(t *testing.T) {
				locktest.Simulate(t, func(s *locktest.Sim) {
					dir := s.Dir("/l")
					c := s.Client(zklock.WithHooks(hooks(func() { panic("a metric is registered twice") })))
					theirs := s.Take(kind.lock(s.Client().Client, dir))
					recovered := make(chan any, 1)
					go func() {
						defer func() { recovered <- recover() }()
						ctx := locktest.Within(s, time.Hour)
						if event == "failed" {
							ctx = locktest.Within(s, time.Second)
						}
						if _, h, err := kind.lock(c.Client, dir)(ctx); err == nil {
							_ = h.Unlock()
						}
					}()
					time.Sleep(time.Minute)
					if event == "retried" {
						require.NoError(s, s.Server.Expire(c.SessionID()))
					}
					time.Sleep(time.Minute)
					s.Unlock(theirs)
					require.Equal(s, "a metric is registered twice", <-recovered)
					s.Empty(time.Minute, dir)
					require.Empty(s, c.Status().Waits)
					require.NoError(s, c.Close())
				})
			})
		}
	}
}

// Of a reentrant call only its own hold is given up.
func TestAPanicOfAHookLeavesTheHoldThatAReentrantCallCountsUp(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T, srv *zktest.Server) {
		calls := 0
		c := locktest.Dial(t, srv, zklock.WithHooks(zklock.Hooks{Acquired: func(zklock.LockInfo) {
			if calls++; calls == 2 {
				panic("oops")
			}
		}}))
		m := c.Mutex("/l", zklock.WithReentrancy())
		h := locktest.Lock(t, m)
		require.PanicsWithValue(t, "oops", func() { _, _, _ = m.Lock(h.Context()) })
		require.NoError(t, h.Err())
		locktest.Unlock(t, h)
		require.Empty(t, srv.Children("/l"))
	})
}
