package zklock_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/zklock"
	"github.com/zklock/locker/zktest"
)

// An Unlock that comes while a Downgrade waits for the network returns within its own context; the lock is given up,
// whichever of the two znodes there is in the end (scenario 62).
func TestAnUnlockDuringADowngradeReturnsWithinItsContext(t *testing.T) {
	for name, fault := range map[string]zktest.Fault{
		"request on its way": zktest.Hold(), "reply on its way": zktest.HoldReply(), "reply lost": zktest.CloseAfter(),
		"frozen": zktest.Freeze(),
	} {
		for _, reentrant := range []bool{false, true} {
			t.Run(name+map[bool]string{true: ", with a read under it"}[reentrant], func(t *testing.T) {
				simTest(t, func(s *sim) {
					dir, a := s.dir("/locks/a"), s.client()
					m := a.RWMutex(dir, zklock.WithReentrancy())
					w := rwTake(s, m.Lock)
					var read *zklock.Hold
					if reentrant {
						read = rwTake(s, rwUnder(w, m.RLock))
					}
					away := s.srv.Inject(zktest.Refuse()) // after a connection that breaks
					in := s.srv.Inject(fault.Op(zktest.OpMulti).Session(a.id()).Once())
					call := simGo(s.Context(), rwDowngrade(m, w))
					<-in.Hit()
					synctest.Wait()
					ctx, cancel := context.WithTimeout(s.Context(), 200*time.Millisecond)
					defer cancel()
					unlock := simGo(ctx, func(ctx context.Context) (*zklock.Hold, error) { return nil, w.Unlock(ctx) })
					<-unlock.done
					require.ErrorIs(s, unlock.err, context.DeadlineExceeded)
					require.Equal(s, 200*time.Millisecond, unlock.spent)
					require.Error(s, w.Context().Err())
					_, err := m.Downgrade(s.Context(), w)
					require.ErrorIs(s, err, zklock.ErrNotHeld)
					away.Remove()
					in.Remove()
					<-call.done
					require.ErrorIs(s, call.err, zklock.ErrNotHeld, "it was released meanwhile")
					if reentrant {
						require.NoError(s, read.Err())
						s.owned(a, read)
						require.Equal(s, "R", rwReaders(s, dir))
						s.unlock(read)
					}
					s.empty(time.Second, dir)
					s.unlock(rwTake(s, m.Lock))
					rwNothingLeft(s, dir)
				})
			})
		}
	}
}

// The write lock and the last read under it are released in the same moment, many times: each Unlock is its own.
func TestAWriteAndAReadUnderItReleasedInOneMomentBothSucceed(t *testing.T) {
	simTest(t, func(s *sim) {
		dir, a := s.dir("/locks/a"), s.client()
		m := a.RWMutex(dir, zklock.WithReentrancy())
		for i := range 200 {
			w := rwTake(s, m.Lock)
			r := rwTake(s, rwUnder(w, m.RLock))
			// The write's Unlock has been counted, and waits for its context's value, when the read's comes; or the other way.
			first, second := w, r
			if i%2 == 1 {
				first, second = r, w
			}
			asked, release := make(chan struct{}, 100), make(chan struct{})
			one := simGo(slowContext{s.Context(), func() { asked <- struct{}{}; <-release }},
				func(ctx context.Context) (*zklock.Hold, error) { return nil, first.Unlock(ctx) })
			<-asked
			two := simGo(s.Context(), func(ctx context.Context) (*zklock.Hold, error) { return nil, second.Unlock(ctx) })
			if i%4 < 2 {
				synctest.Wait()
			}
			close(release)
			<-one.done
			<-two.done
			require.NoError(s, one.err)
			require.NoError(s, two.err)
			require.Empty(s, s.srv.Children(dir))
		}
		rwNothingLeft(s, dir)
	})
}

// No hook runs under a mutex of this package: whatever it is told of, the locks, and the hold that it concerns, can be
// used, by the hook itself and by others (scenario 62).
func TestAHookMayUseTheHoldsThatItIsToldOf(t *testing.T) {
	for _, kind := range []string{"mutex", "handoff", "rw", "reentrant rw", "multi", "semaphore"} {
		t.Run(kind, func(t *testing.T) {
			simTest(t, func(s *sim) {
				var c *simClient
				var mu sync.Mutex // guards what follows
				var known []*zklock.Hold
				told := map[string]int{}
				know := func(h *zklock.Hold) *zklock.Hold {
					mu.Lock()
					defer mu.Unlock()
					known = append(known, h)
					return h
				}
				use := func(event string) {
					mu.Lock()
					told[event]++
					holds := slices.Clone(known)
					mu.Unlock()
					done := make(chan struct{})
					go func() { // somebody else, who would wait for a mutex that the hook's caller holds
						defer close(done)
						c.Status()
						for _, h := range holds {
							_, _, _, _ = h.Err(), h.Token(), h.Nodes(), h.SafeUntil()
						}
						if event == "downgraded" || event == "released" || event == "lost" {
							for _, h := range holds {
								_ = h.Unlock(s.Context()) // ErrNotHeld, mostly
							}
						}
					}()
					<-done
				}
				c = s.client(zklock.WithHooks(zklock.Hooks{
					Asked:      func(zklock.LockInfo) { use("asked") },
					Queued:     func(zklock.QueuedInfo) { use("queued") },
					Acquired:   func(zklock.AcquiredInfo) { use("acquired") },
					Failed:     func(zklock.FailedInfo) { use("failed") },
					Downgraded: func(zklock.DowngradedInfo) { use("downgraded") },
					Released:   func(zklock.ReleasedInfo) { use("released") },
					Lost:       func(zklock.LostInfo) { use("lost") },
					Retried:    func(zklock.RetriedInfo) { use("retried") },
				}))
				dirs := s.multiDirs(2)
				var lock rwCall
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
					lock = semAcquire(c.Semaphore(dirs[0], 1), 1)
				}
				h := rwTake(s, lock)
				short, cancel := context.WithTimeout(s.Context(), time.Second)
				defer cancel()
				_, err := lock(short)
				require.ErrorIs(s, err, context.DeadlineExceeded)
				know(h)
				switch kind {
				case "rw":
					_, err := rw.Downgrade(s.Context(), h)
					require.NoError(s, err)
				case "reentrant rw":
					know(rwTake(s, rwUnder(h, rw.RLock)))
					s.unlock(h) // the hook releases the read lock
				}
				if kind != "reentrant rw" {
					_ = h.Unlock(s.Context())
				}
				for i := range 2 {
					if kind == "rw" && i == 0 { // the reader of the downgrade
						require.NoError(s, s.srv.Delete(dirs[0]+"/"+s.srv.Children(dirs[0])[0]))
						time.Sleep(time.Second)
					}
					require.NoError(s, s.srv.Delete(know(rwTake(s, lock)).Node()))
					time.Sleep(time.Second)
				}
				s.multiEmpty(time.Second, dirs)
				want := []string{"asked", "queued", "acquired", "failed", "lost"}
				if kind != "rw" {
					want = append(want, "released")
				}
				if kind == "rw" || kind == "reentrant rw" {
					want = append(want, "downgraded")
				}
				mu.Lock()
				defer mu.Unlock()
				for _, event := range want {
					require.NotZero(s, told[event], event)
				}
			})
		})
	}
}
