package zklock_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/tests/locktest"
	"github.com/zklock/locker/zklock"
)

// hookUser is a client whose hooks use the client itself and all holds that the test has so far.
type hookUser struct {
	s *locktest.Sim
	c *locktest.Client

	mu    sync.Mutex // guards what follows
	known []*zklock.Hold
	told  map[string]int
}

// know adds a hold to those that the hooks use.
func (u *hookUser) know(h *zklock.Hold) *zklock.Hold {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.known = append(u.known, h)
	return h
}

// use is called by each hook.
func (u *hookUser) use(event string) {
	u.mu.Lock()
	u.told[event]++
	c, holds := u.c, slices.Clone(u.known)
	u.mu.Unlock()
	done := make(chan struct{})
	go func() { // another goroutine, which would wait for a mutex that the hook's caller holds
		defer close(done)
		c.Status()
		for _, h := range holds {
			_, _, _, _ = h.Err(), h.Token(), h.Nodes(), h.SafeUntil()
		}
		if event == "released" || event == "lost" {
			for _, h := range holds {
				_ = h.Unlock() // usually ErrUnlocked
			}
		}
	}()
	<-done
}

func (u *hookUser) hooks() zklock.Hooks {
	return zklock.Hooks{
		Asked:    func(zklock.LockInfo) { u.use("asked") },
		Queued:   func(zklock.LockInfo) { u.use("queued") },
		Acquired: func(zklock.LockInfo) { u.use("acquired") },
		Failed:   func(zklock.LockInfo) { u.use("failed") },
		Released: func(zklock.LockInfo) { u.use("released") },
		Lost:     func(zklock.LockInfo) { u.use("lost") },
		Retried:  func(zklock.LockInfo) { u.use("retried") },
	}
}

// requireTold requires that each of these hooks was called.
func (u *hookUser) requireTold(events []string) {
	u.s.Helper()
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, event := range events {
		require.NotZero(u.s, u.told[event], event)
	}
}

// under is call with the context of a hold.
func under(h *zklock.Hold, call locktest.Acquire) locktest.Acquire {
	return func(context.Context) (context.Context, *zklock.Hold, error) { return call(h.Context()) }
}

// No hook runs under a mutex of this package: during each hook the locks, and the hold that it
// reports, can be used, by the hook itself and by other goroutines.
func TestAHookMayUseTheHoldsThatItIsToldOf(t *testing.T) {
	for _, kind := range []string{"mutex", "handoff", "rw", "reentrant rw", "multi", "semaphore"} {
		t.Run(kind, func(t *testing.T) {
			locktest.Simulate(t, func(s *locktest.Sim) {
				u := &hookUser{s: s, told: map[string]int{}}
				c := s.Client(zklock.WithHooks(u.hooks()))
				u.c = c
				dirs := dirs(s, 2)
				var lock locktest.Acquire
				rw := c.RWMutex(dirs[0], zklock.WithReentrancy())
				switch kind {
				case "mutex":
					lock = c.Mutex(dirs[0]).Lock
				case "handoff":
					lock = c.Mutex(dirs[0], zklock.WithLocalHandoff()).Lock
				case "rw", "reentrant rw":
					lock = rw.Lock
				case "multi":
					lock = c.MultiLock(dirs).Lock
				case "semaphore":
					lock = locktest.Permits(c.Semaphore(dirs[0], 1), 1)
				}
				h := s.Take(lock)
				short, cancel := context.WithTimeout(s.Context(), time.Second)
				defer cancel()
				_, _, err := lock(short)
				require.ErrorIs(s, err, context.DeadlineExceeded)
				u.know(h)
				if kind == "reentrant rw" {
					s.Unlock(u.know(s.Take(under(h, rw.Lock))))
				}
				_ = h.Unlock()
				for range 2 {
					require.NoError(s, s.Server.Delete(u.know(s.Take(lock)).Node()))
					time.Sleep(time.Second)
				}
				emptyAll(s, time.Second, dirs)
				u.requireTold([]string{"asked", "queued", "acquired", "failed", "lost", "released"})
			})
		})
	}
}

// A hold has no goroutine and no connection of its own: the timers and heartbeats of one session
// serve all holds.
func TestAHoldHasNoGoroutineOfItsOwn(t *testing.T) {
	locktest.SimulateAlone(t, func(s *locktest.Sim) {
		dir, c := s.Dir("/l"), s.Client()
		s.Unlock(s.Lock(c.Mutex(dir)))
		time.Sleep(time.Second)
		before := locktest.Goroutines()
		var holds []*zklock.Hold
		for i := range 500 {
			holds = append(holds, s.Lock(c.Mutex(fmt.Sprintf("%s/%d", dir, i))))
		}
		time.Sleep(time.Minute) // past the moment from which a hold is watched
		require.LessOrEqual(s, locktest.Goroutines(), before+2, "goroutines of 500 holds")
		for _, h := range holds {
			s.Unlock(h)
		}
	})
}
