package zklock_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/internal/locktest"
	"github.com/zklock/locker/zklock"
	"github.com/zklock/locker/zktest"
)

// An Unlock that comes while a Downgrade waits for the network returns within its own context. The lock is released,
// whichever of the two znodes exists in the end (scenario 62).
func TestAnUnlockDuringADowngradeReturnsWithinItsContext(t *testing.T) {
	for name, fault := range map[string]zktest.Fault{
		"request on its way": zktest.Hold(), "reply on its way": zktest.HoldReply(), "reply lost": zktest.CloseAfter(),
		"frozen": zktest.Freeze(),
	} {
		for _, reentrant := range []bool{false, true} {
			t.Run(name+map[bool]string{true: ", with a read under it"}[reentrant], func(t *testing.T) {
				locktest.Simulate(t, func(s *locktest.Sim) {
					dir, a := s.Dir("/locks/a"), s.Client()
					m := a.RWMutex(dir, zklock.WithReentrancy())
					w := s.Take(m.Lock)
					var read *zklock.Hold
					if reentrant {
						read = s.Take(under(w, m.RLock))
					}
					away := s.Server.Inject(zktest.Refuse()) // after a connection that breaks
					in := s.Server.Inject(fault.Op(zktest.OpMulti).Session(a.SessionID()).Once())
					call := locktest.Go(s.Context(), downgrade(m, w))
					<-in.Hit()
					synctest.Wait()
					ctx, cancel := context.WithTimeout(s.Context(), 200*time.Millisecond)
					defer cancel()
					unlock := locktest.Go(ctx, func(ctx context.Context) (*zklock.Hold, error) { return nil, w.Unlock(ctx) })
					<-unlock.Done
					require.ErrorIs(s, unlock.Err, context.DeadlineExceeded)
					require.Equal(s, 200*time.Millisecond, unlock.Spent)
					require.Error(s, w.Context().Err())
					_, err := m.Downgrade(s.Context(), w)
					require.ErrorIs(s, err, zklock.ErrNotHeld)
					away.Remove()
					in.Remove()
					<-call.Done
					require.ErrorIs(s, call.Err, zklock.ErrNotHeld, "it was released meanwhile")
					if reentrant {
						require.NoError(s, read.Err())
						s.Owned(a, read)
						require.Equal(s, "R", readers(s, dir))
						s.Unlock(read)
					}
					s.Empty(time.Second, dir)
					s.Unlock(s.Take(m.Lock))
					s.NothingLeft(dir)
				})
			})
		}
	}
}

// The write lock and the last read lock under it are released at the same moment, many times: both Unlocks succeed.
func TestAWriteAndAReadUnderItReleasedInOneMomentBothSucceed(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		dir, a := s.Dir("/locks/a"), s.Client()
		m := a.RWMutex(dir, zklock.WithReentrancy())
		for i := range 200 {
			w := s.Take(m.Lock)
			r := s.Take(under(w, m.RLock))
			// One Unlock has been counted, and waits for its context's value, when the other one comes; in both orders.
			first, second := w, r
			if i%2 == 1 {
				first, second = r, w
			}
			asked, release := make(chan struct{}, 100), make(chan struct{})
			one := locktest.Go(slowContext{s.Context(), func() { asked <- struct{}{}; <-release }},
				func(ctx context.Context) (*zklock.Hold, error) { return nil, first.Unlock(ctx) })
			<-asked
			two := locktest.Go(s.Context(), func(ctx context.Context) (*zklock.Hold, error) { return nil, second.Unlock(ctx) })
			if i%4 < 2 {
				synctest.Wait()
			}
			close(release)
			<-one.Done
			<-two.Done
			require.NoError(s, one.Err)
			require.NoError(s, two.Err)
			require.Empty(s, s.Server.Children(dir))
		}
		s.NothingLeft(dir)
	})
}

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
		if event == "downgraded" || event == "released" || event == "lost" {
			for _, h := range holds {
				_ = h.Unlock(u.s.Context()) // ErrNotHeld, mostly
			}
		}
	}()
	<-done
}

func (u *hookUser) hooks() zklock.Hooks {
	return zklock.Hooks{
		Asked:      func(zklock.LockInfo) { u.use("asked") },
		Queued:     func(zklock.QueuedInfo) { u.use("queued") },
		Acquired:   func(zklock.AcquiredInfo) { u.use("acquired") },
		Failed:     func(zklock.FailedInfo) { u.use("failed") },
		Downgraded: func(zklock.DowngradedInfo) { u.use("downgraded") },
		Released:   func(zklock.ReleasedInfo) { u.use("released") },
		Lost:       func(zklock.LostInfo) { u.use("lost") },
		Retried:    func(zklock.RetriedInfo) { u.use("retried") },
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

// No hook runs under a mutex of this package: during each hook the locks, and the hold that it reports, can be used, by the hook
// itself and by other goroutines (scenario 62).
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
					lock = c.Mutex(dirs[0], zklock.WithLocalHandoff(3)).Lock
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
				_, err := lock(short)
				require.ErrorIs(s, err, context.DeadlineExceeded)
				u.know(h)
				switch kind {
				case "rw":
					_, err := rw.Downgrade(s.Context(), h)
					require.NoError(s, err)
				case "reentrant rw":
					u.know(s.Take(under(h, rw.RLock)))
					s.Unlock(h) // the hook releases the read lock
				}
				if kind != "reentrant rw" {
					_ = h.Unlock(s.Context())
				}
				for i := range 2 {
					if kind == "rw" && i == 0 { // the reader of the downgrade
						require.NoError(s, s.Server.Delete(dirs[0]+"/"+s.Server.Children(dirs[0])[0]))
						time.Sleep(time.Second)
					}
					require.NoError(s, s.Server.Delete(u.know(s.Take(lock)).Node()))
					time.Sleep(time.Second)
				}
				emptyAll(s, time.Second, dirs)
				want := []string{"asked", "queued", "acquired", "failed", "lost"}
				if kind != "rw" {
					want = append(want, "released")
				}
				if kind == "rw" || kind == "reentrant rw" {
					want = append(want, "downgraded")
				}
				u.requireTold(want)
			})
		})
	}
}
