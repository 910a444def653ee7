package zklock_test

import (
	"context"
	"fmt"
	"path"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zklock/locker/zktest/fault"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/tests/locktest"
	"github.com/zklock/locker/zklock"
)

// The lock's directory: scenarios 44 and 45.

// scenario 44: the directory is deleted while calls wait: it is made again, and the waiters queue again.
//
// The first in line may not queue again: it is notified of the deletion of the holder's znode before it can know that its own is
// deleted too. It then holds, until it is notified of its loss.
func TestScenario44_ADirectoryThatIsDeletedWhileWaitingIsMadeAgain(t *testing.T) {
	for _, waited := range []time.Duration{0, 299 * time.Millisecond, time.Second, 5 * time.Minute} {
		for _, upwards := range []bool{false, true} {
			t.Run(fmt.Sprintf("after %v, upwards %v", waited, upwards), func(t *testing.T) {
				opts := []zklock.LockOption{zklock.WithContainer()}
				if upwards {
					opts = nil
				}
				locktest.Simulate(t, func(s *locktest.Sim) {
					const dir, n = "/locks/x/a", 5
					holder := s.Client()
					h := s.Lock(holder.Mutex(dir, opts...))
					clients, calls := make([]*locktest.Client, n), make([]*locktest.Call, n)
					for i := range n {
						clients[i] = s.Client()
						calls[i] = locktest.Go(s.Context(), clients[i].Mutex(dir, opts...).Lock)
						synctest.Wait()
					}
					time.Sleep(waited)
					old := s.Server.Nodes()[dir].Stat.Czxid
					s.RemoveDir(dir, upwards)
					time.Sleep(300 * time.Millisecond)
					synctest.Wait()
					require.ErrorIs(s, h.Err(), zklock.ErrNodeDeleted)
					again := n
					if calls[0].Over() && calls[0].Get(s).Err() != nil {
						require.ErrorIs(s, calls[0].Hold.Err(), zklock.ErrNodeDeleted)
						require.True(s, upwards || waited < time.Second, "it was told of its own znode first")
						again--
						calls[0] = nil
					}
					s.Until(2*time.Second, "all have a place again", func() bool { return len(s.Server.Children(dir)) == again })
					require.Greater(s, s.Server.Nodes()[dir].Stat.Czxid, old, "the directory is a new one")
					last := h.Token()
					for done := range again { // in any order, since they queue again at the same time
						synctest.Wait()
						var got []int
						for i, call := range calls {
							if call != nil && call.Over() {
								got = append(got, i)
							}
						}
						require.Len(s, got, 1, "one holder at a time; %d were", done)
						next := calls[got[0]].Get(s)
						s.Owned(clients[got[0]], next)
						require.Greater(s, next.Token(), last)
						last = next.Token()
						calls[got[0]] = nil
						s.Unlock(next)
					}
					require.Empty(s, s.Server.Children(dir))
					require.Zero(s, s.Server.WatchCount())
				})
			})
		}
	}
}

// scenario 44, at other moments: the directory is deleted before the create, and before the list.
func TestScenario44_ADirectoryThatGoesDuringACallIsMadeAgain(t *testing.T) {
	for name, failure := range map[string]fault.Fault{
		"before the create":         fault.Hold().Op(fault.OpCreate).Path("/locks/a/*"),
		"before the list":           fault.Hold().Op(fault.OpGetChildren2),
		"before the create's reply": fault.CloseAfter().Op(fault.OpCreate).Path("/locks/a/*"),
	} {
		t.Run(name, func(t *testing.T) {
			locktest.Simulate(t, func(s *locktest.Sim) {
				dir, c := s.Dir("/locks/a"), s.Client()
				away := s.Server.Inject(fault.Refuse())
				at := s.Server.Inject(failure.Once())
				call := locktest.Go(s.Context(), c.Mutex(dir).Lock)
				<-at.Hit()
				require.False(s, call.Over())
				require.NoError(s, s.Server.DeleteAll("/locks"))
				at.Release()
				away.Remove()
				h := call.Get(s)
				s.Owned(c, h)
				require.Equal(s, []string{path.Base(h.Node())}, s.Server.Children(dir))
			})
		})
	}
}

// scenario 44, repeatedly: the directory is deleted each time that it is being made again.
func TestScenario44_ADirectoryThatGoesAgainAndAgainIsMadeAgainEachTime(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		const dir = "/locks/deep/er/a"
		c := s.Client()
		made := s.Server.Inject(fault.Hold().Op(fault.OpCreate).Path(dir + "/*").Times(6))
		call := locktest.Go(s.Context(), c.Mutex(dir).Lock)
		for i := range 6 {
			require.NoError(s, made.Wait(s.Context(), i+1))
			if i > 0 {
				require.NoError(s, s.Server.DeleteAll("/locks"))
			}
			made.Release()
		}
		s.Owned(c, call.Get(s))
	})
}

// scenario 45: many clients create the directory at once, some as a container, some as a persistent znode: all succeed.
func TestScenario45_ManyClientsCreateTheDirectoryAtOnceInDifferentModes(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		const dir, n = "/not/yet/there/a", 24
		var wg sync.WaitGroup
		errs := make([]error, n)
		// All creates of the directory wait until all clients have found it missing.
		missing := s.Server.Inject(fault.Hold().Op(fault.OpCreate, fault.OpCreateContainer).Path("/not", "/not/yet", "/not/yet/there", dir))
		inside, most := 0, 0
		var mu sync.Mutex
		for i := range n {
			var opts []zklock.LockOption
			if i%2 == 0 {
				opts = append(opts, zklock.WithContainer())
			}
			if i%3 == 0 {
				opts = append(opts, zklock.WithACL(zk.WorldACL(zk.PermAll)...))
			}
			c := s.Client()
			wg.Go(func() {
				errs[i] = c.Mutex(dir, opts...).Do(s.Context(), func(context.Context) error {
					mu.Lock()
					inside++
					most = max(most, inside)
					mu.Unlock()
					time.Sleep(time.Second)
					mu.Lock()
					inside--
					mu.Unlock()
					return nil
				})
			})
		}
		require.NoError(s, missing.Wait(s.Context(), n))
		synctest.Wait()
		require.Equal(s, n, missing.Hits(), "each has asked for the directory once")
		_, there := s.Server.Node("/not")
		require.False(s, there)
		for range 8 { // from the leaf to the root and back, all of them in step
			missing.Release()
			synctest.Wait()
		}
		missing.Remove()
		wg.Wait()
		for i, err := range errs {
			require.NoError(s, err, "client %d", i)
		}
		require.Equal(s, 1, most)
		require.Empty(s, s.Server.Children(dir))
	})
}

// scenario 45, the modes: the first one's counts, and the parents stay.
func TestScenario45_TheFirstOnesModeCountsForTheDirectoryAlone(t *testing.T) {
	for _, container := range []bool{true, false} {
		t.Run(fmt.Sprintf("container first %v", container), func(t *testing.T) {
			locktest.Simulate(t, func(s *locktest.Sim) {
				const dir = "/app/locks/a"
				c := s.Client()
				first, second := c.Mutex(dir), c.Mutex(dir, zklock.WithContainer())
				if container {
					first, second = second, first
				}
				s.Unlock(s.Lock(first))
				s.Unlock(s.Lock(second))
				time.Sleep(locktest.LongTime)
				_, there := s.Server.Node(dir)
				require.Equal(s, !container, there)
				_, there = s.Server.Node("/app/locks")
				require.True(s, there)
			})
		})
	}
}

// Scenario 50, for the data of the directory itself: another client keeps 1 MB at a lock's path, and a burst of calls that read
// the directory's data (a semaphore's size) costs no other hold of the client.
func TestScenario50_MuchDataAtALocksPathCostNoOtherHold(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		dir, c := s.Dir("/l"), slowClient(s, 1_250_000)
		require.NoError(s, s.Server.SetData(dir, bulk))
		_, other, err := c.Mutex("/other").Lock(s.Context())
		require.NoError(s, err)
		ends := make(chan error, 25) // 20 s for their data, if all asked at once
		for range cap(ends) {
			go func() {
				_, _, err := c.Semaphore(dir, 3).Acquire(s.Context(), 1)
				ends <- err
			}()
		}
		for range cap(ends) {
			require.ErrorIs(s, <-ends, zklock.ErrConflict)
		}
		time.Sleep(time.Minute)
		require.NoError(s, other.Err())
	})
}
