package zklock_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/internal/locktest"
	"github.com/zklock/locker/session"
	"github.com/zklock/locker/zklock"
	"github.com/zklock/locker/zktest"
)

// Tests of the options of a semaphore, of its holds, and of the costs of its calls.

// TryAcquire takes free permits if there is no waiter, and costs only reads if it is busy.
func TestTryAcquireCostsOnlyReadsWhenItIsBusy(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		dir, a, b := s.Dir("/locks/a"), s.Client(), s.Client()
		m := b.Semaphore(dir, 4)
		s.Unlock(s.Take(locktest.Permits(m, 1)))
		h := s.Take(locktest.Permits(a.Semaphore(dir, 4), 2))
		try := func(n int) (*zklock.Hold, map[zktest.Op]int, error) {
			synctest.Wait()
			before, _ := s.Server.Session(b.SessionID())
			h, err := m.TryAcquire(s.Context(), n)
			after, _ := s.Server.Session(b.SessionID())
			cost := map[zktest.Op]int{}
			for op, k := range after.Requests {
				if d := k - before.Requests[op]; d > 0 && op != zktest.OpPing {
					cost[op] = d
				}
			}
			return h, cost, err
		}
		reads := map[zktest.Op]int{zktest.OpGetData: 1, zktest.OpGetChildren2: 1}
		_, cost, err := try(3)
		require.ErrorIs(s, err, zklock.ErrBusy)
		require.Equal(s, map[zktest.Op]int{zktest.OpGetData: 2, zktest.OpExists: 1, zktest.OpGetChildren2: 1}, cost, "the holder's name, too")
		got, _, err := try(2)
		require.NoError(s, err)
		s.Unlock(got)
		waiter := s.Start(locktest.Permits(s.Client().Semaphore(dir, 4), 3))
		_, cost, err = try(1)
		require.ErrorIs(s, err, zklock.ErrBusy, "two are free, and somebody waits")
		require.Equal(s, reads, cost)
		_, err = b.Semaphore(dir, 4, zklock.WithWait(0)).Acquire(s.Context(), 1)
		require.ErrorIs(s, err, zklock.ErrBusy, "WithWait(0) does not wait either")
		require.Len(s, s.Server.Children(dir), 2)
		s.Unlock(h)
		s.Unlock(waiter.Get(s))
		s.NothingLeft(dir)
	})
}

// If another contender enters between the list and the create of a try, the try deletes its znode again.
func TestATryForPermitsThatAnotherContenderForestallsGivesItsPlaceUp(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		dir, a, b := s.Dir("/locks/a"), s.Client(), s.Client()
		in := s.Server.Inject(zktest.Hold().Op(zktest.OpCreate).Session(a.SessionID()).Once())
		m := a.Semaphore(dir, 2)
		try := locktest.Go(s.Context(), func(ctx context.Context) (*zklock.Hold, error) { return m.TryAcquire(ctx, 1) })
		<-in.Hit()
		h := s.Take(locktest.Permits(b.Semaphore(dir, 2), 2))
		in.Release()
		require.True(s, try.Over())
		require.ErrorIs(s, try.Err, zklock.ErrBusy)
		require.Len(s, s.Server.Children(dir), 1)
		s.Unlock(h)
		s.NothingLeft(dir)
	})
}

// WithWait bounds the wait, and the error names the holder in the way.
func TestAWaitForPermitsIsBounded(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		dir := s.Dir("/locks/a")
		h := s.Take(locktest.Permits(s.Client().Semaphore(dir, 2, zklock.WithOwner("nightly")), 2))
		m := s.Client().Semaphore(dir, 2, zklock.WithWait(time.Minute))
		began := time.Now()
		_, err := m.Acquire(s.Context(), 1)
		require.ErrorIs(s, err, zklock.ErrBusy)
		require.NotErrorIs(s, err, context.DeadlineExceeded, "the caller had none")
		require.ErrorContains(s, err, "2nd in line behind nightly")
		require.Equal(s, time.Minute, time.Since(began))
		ctx, cancel := context.WithTimeout(s.Context(), time.Second)
		defer cancel()
		_, err = m.Acquire(ctx, 1)
		require.ErrorIs(s, err, context.DeadlineExceeded, "the caller's own")
		s.Unlock(h)
		s.NothingLeft(dir)
	})
}

// The time of WithWait is over while the waiter lists again: the error is ErrBusy all the same, and not that of the
// caller's deadline.
func TestAWaitForPermitsThatEndsDuringAnotherLookIsBusy(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		dir, c := s.Dir("/locks/a"), s.Client()
		h := s.Take(locktest.Permits(s.Client().Semaphore(dir, 2), 2))
		waiter := s.Start(locktest.Permits(c.Semaphore(dir, 2, zklock.WithWait(time.Minute)), 1))
		time.Sleep(59 * time.Second) // so that the connection is not given up for want of an answer before the end
		in := s.Server.Inject(zktest.Hold().Op(zktest.OpGetChildren2).Session(c.SessionID()).Once())
		behind := s.Start(locktest.Permits(s.Client().Semaphore(dir, 2), 1)) // whose arrival has the head look again
		<-in.Hit()
		<-waiter.Done
		in.Remove()
		require.ErrorIs(s, waiter.Err, zklock.ErrBusy)
		require.NotErrorIs(s, waiter.Err, context.DeadlineExceeded)
		s.Unlock(h)
		s.Unlock(behind.Get(s))
		s.NothingLeft(dir)
	})
}

// WithMaxHold returns the permits by itself.
func TestPermitsThatAreHeldForTooLongGoToTheNext(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		dir := s.Dir("/locks/a")
		first := s.Take(locktest.Permits(s.Client().Semaphore(dir, 2, zklock.WithMaxHold(time.Minute)), 1))
		other := s.Take(locktest.Permits(s.Client().Semaphore(dir, 2), 1))
		waiter := s.Start(locktest.Permits(s.Client().Semaphore(dir, 2), 1))
		began := time.Now()
		h := waiter.Get(s)
		require.Equal(s, time.Minute, time.Since(began))
		require.ErrorIs(s, first.Err(), zklock.ErrMaxHold)
		require.ErrorIs(s, first.Unlock(s.Context()), zklock.ErrMaxHold)
		require.NoError(s, other.Err())
		s.Unlock(other)
		s.Unlock(h)
		s.NothingLeft(dir)
	})
}

// WithLockDelay: after a loss, and not after a release, the next holder starts later. The notes of several holders, and the
// size, do not overwrite each other.
func TestALockDelayOfASemaphoreCountsAfterALossOnly(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		dir := s.Dir("/locks/a")
		delay := zklock.WithLockDelay(time.Minute)
		sem := func() *zklock.Semaphore { return s.Client().Semaphore(dir, 3, delay) }
		holds := []*zklock.Hold{s.Take(locktest.Permits(sem(), 1)), s.Take(locktest.Permits(sem(), 1)), s.Take(locktest.Permits(sem(), 1))}
		waiters := []*locktest.Call{s.Start(locktest.Permits(sem(), 1)), s.Start(locktest.Permits(sem(), 1)), s.Start(locktest.Permits(sem(), 1))}
		s.Unlock(holds[1])
		require.True(s, waiters[0].Over(), "a release is no loss")
		require.NoError(s, s.Client().Semaphore(dir, 3).Resize(s.Context(), 4))
		require.True(s, waiters[1].Over(), "nor is a change of the size")
		require.NoError(s, s.Server.Delete(holds[2].Node()))
		at := time.Now()
		waiters[2].Get(s)
		require.Equal(s, time.Minute, time.Since(at), "the lost holder's delay")
		require.NoError(s, s.Server.Delete(waiters[0].Hold.Node()))
		_, err := otherSemaphore(s, dir, 4, delay).TryAcquire(s.Context(), 1)
		require.ErrorIs(s, err, zklock.ErrBusy, "a try does not wait it out")
		time.Sleep(time.Minute)
		s.Unlock(holds[0])
		s.Unlock(waiters[1].Get(s))
		s.Unlock(waiters[2].Hold)
		s.Unlock(s.Take(locktest.Permits(otherSemaphore(s, dir, 4, delay), 4)))
		s.NothingLeft(dir)
		n, _ := s.Server.Node(dir)
		require.JSONEq(s, `{"size":4}`, string(n.Data), "no claim is left")
	})
}

// otherSemaphore returns the semaphore of another client.
func otherSemaphore(s *locktest.Sim, dir string, size int, opts ...zklock.LockOption) *zklock.Semaphore {
	return s.Client().Semaphore(dir, size, opts...)
}

// WithContainer: the empty directory is deleted with the size, and both are made again.
func TestASemaphoresContainerGoesAndComesBack(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		s.Dir("/locks")
		c := s.Client()
		m := c.Semaphore("/locks/key", 2, zklock.WithContainer())
		var last zklock.Token
		for range 3 {
			h := s.Take(locktest.Permits(m, 2))
			require.Greater(s, h.Token(), last)
			last = h.Token()
			time.Sleep(10 * time.Minute)
			s.Owned(c, h)
			s.Unlock(h)
			s.Until(10*time.Minute, "the container has gone", func() bool {
				_, ok := s.Server.Node("/locks/key")
				return !ok
			})
		}
		s.Unlock(s.Take(locktest.Permits(s.Client().Semaphore("/locks/key", 5, zklock.WithContainer()), 5))) // the old size is forgotten
	})
}

// Do holds the permits while fn runs, and releases them however fn ends.
func TestDoOfASemaphoreHoldsThePermits(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		dir := s.Dir("/locks/a")
		m := s.Client().Semaphore(dir, 2)
		boom := errors.New("boom")
		err := m.Do(s.Context(), 2, func(ctx context.Context) error {
			require.NoError(s, ctx.Err())
			_, err := s.Client().Semaphore(dir, 2).TryAcquire(s.Context(), 1)
			require.ErrorIs(s, err, zklock.ErrBusy)
			return boom
		})
		require.ErrorIs(s, err, boom)
		require.Empty(s, s.Server.Children(dir))
		require.PanicsWithValue(s, "boom", func() {
			_ = m.Do(s.Context(), 1, func(context.Context) error { panic("boom") })
		})
		require.Empty(s, s.Server.Children(dir))
		err = m.Do(s.Context(), 1, func(ctx context.Context) error {
			require.NoError(s, s.Server.DeleteAll(dir))
			time.Sleep(time.Second)
			require.ErrorIs(s, context.Cause(ctx), zklock.ErrNodeDeleted)
			return nil
		})
		require.ErrorIs(s, err, zklock.ErrLost)
		s.NothingLeft(dir)
	})
}

// Check and Multi work for a hold of permits, and tokens grow from holder to holder.
func TestAHoldOfPermitsChecksAndFences(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		dir, data, c := s.Dir("/locks/a"), s.Dir("/data"), s.Client()
		m := c.Semaphore(dir, 2)
		one, two := s.Take(locktest.Permits(m, 1)), s.Take(locktest.Permits(m, 1))
		require.Greater(s, two.Token(), one.Token())
		for _, h := range []*zklock.Hold{one, two} {
			s.Owned(c, h)
			require.NoError(s, h.Check(s.Context()))
			require.True(s, h.SafeUntil().After(time.Now()))
			_, err := h.Multi(s.Context(), &zk.CreateRequest{Path: data + "/x", Acl: session.WorldACL(), Flags: zk.FlagSequence})
			require.NoError(s, err)
		}
		require.NoError(s, s.Server.Delete(two.Node()))
		_, err := two.Multi(s.Context(), &zk.CreateRequest{Path: data + "/y", Acl: session.WorldACL()})
		require.ErrorIs(s, err, zklock.ErrNodeDeleted)
		require.Len(s, s.Server.Children(data), 2)
		require.ErrorIs(s, two.Check(s.Context()), zklock.ErrLost)
		require.NoError(s, one.Check(s.Context()))
		s.Unlock(one)
		s.NothingLeft(dir)
	})
}

// The queue shows who holds how many permits, and who waits.
func TestTheQueueShowsPermits(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		dir := s.Dir("/locks/a")
		h := s.Take(locktest.Permits(s.Client().Semaphore(dir, 3, zklock.WithOwner("one")), 2))
		large := s.Start(locktest.Permits(s.Client().Semaphore(dir, 3, zklock.WithOwner("two")), 3))
		small := s.Start(locktest.Permits(s.Client().Semaphore(dir, 3, zklock.WithOwner("three")), 1))
		c := s.Client()
		line, err := c.Queue(s.Context(), dir)
		require.NoError(s, err)
		require.Len(s, line, 3)
		for i, want := range []struct {
			owner   string
			permits int
			holds   bool
		}{{"one", 2, true}, {"two", 3, false}, {"three", 1, false}} {
			require.Equal(s, zklock.KindSemaphore, line[i].Kind)
			require.Equal(s, want.owner, line[i].Owner)
			require.Equal(s, want.permits, line[i].Permits)
			require.Equal(s, want.holds, line[i].Holds)
		}
		require.NoError(s, c.Break(s.Context(), dir, line[1].Token)) // the large one; it queues again, behind
		require.True(s, small.Over())
		s.Unlock(h)
		s.Unlock(small.Get(s))
		s.Unlock(large.Get(s))
		s.NothingLeft(dir)
	})
}

// Hooks report a waiter's place, and its error names the holder, also after the contenders before it have changed.
func TestAWaiterForPermitsKnowsWhoIsBeforeIt(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		dir := s.Dir("/locks/a")
		var told []int
		c := s.Client(zklock.WithHooks(zklock.Hooks{Queued: func(i zklock.QueuedInfo) { told = append(told, i.Ahead) }}))
		one := s.Take(locktest.Permits(s.Client().Semaphore(dir, 2, zklock.WithOwner("one")), 1))
		two := s.Take(locktest.Permits(s.Client().Semaphore(dir, 2, zklock.WithOwner("two")), 1))
		head := s.Start(locktest.Permits(s.Client().Semaphore(dir, 2, zklock.WithOwner("three")), 1))
		ctx, cancel := context.WithTimeout(s.Context(), time.Hour)
		defer cancel()
		call := locktest.Go(ctx, locktest.Permits(c.Semaphore(dir, 2), 2))
		synctest.Wait()
		time.Sleep(time.Minute)
		s.Unlock(one)
		time.Sleep(time.Minute)
		<-call.Done
		require.ErrorIs(s, call.Err, context.DeadlineExceeded)
		require.ErrorContains(s, call.Err, "2nd in line behind two")
		require.Equal(s, []int{2, 1}, slices.Compact(told))
		s.Unlock(two)
		s.Unlock(head.Get(s))
		s.NothingLeft(dir)
	})
}

// Permissions that are enough to lock are enough to notify the next contender: where znodes may not be set, a waiter must
// still hold when there is room.
func TestPermitsAreGivenWhereZnodesMayNotBeWritten(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		dir := "/locks/a"
		acl := zklock.WithACL(zk.WorldACL(zk.PermCreate | zk.PermRead | zk.PermDelete)...)
		sem := func() *zklock.Semaphore { return s.Client().Semaphore(dir, 2, acl) }
		one, two := s.Take(locktest.Permits(sem(), 1)), s.Take(locktest.Permits(sem(), 1))
		head, next := s.Start(locktest.Permits(sem(), 1)), s.Start(locktest.Permits(sem(), 1))
		s.Unlock(one)
		h := head.Get(s)
		s.Unlock(two)
		s.Until(time.Minute, "there is room for the one behind", next.Over)
		s.Unlock(h)
		s.Unlock(next.Get(s))
	})
}

// A semaphore that is refused at another lock's path leaves nothing there, and the mutex still works.
func TestASemaphoreThatIsRefusedLeavesNoSize(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		c := s.Client()
		h := s.Lock(c.Mutex("/l"))
		for _, acquire := range []locktest.Acquire{
			locktest.Permits(c.Semaphore("/l", 3), 1),
			func(ctx context.Context) (*zklock.Hold, error) { return c.Semaphore("/l", 3).TryAcquire(ctx, 1) },
			func(ctx context.Context) (*zklock.Hold, error) { return nil, c.Semaphore("/l", 3).Resize(ctx, 5) },
		} {
			_, err := acquire(s.Context())
			require.ErrorIs(s, err, zklock.ErrConflict)
			n, _ := s.Server.Node("/l")
			require.Empty(s, n.Data)
		}
		s.Unlock(h)
	})
}
