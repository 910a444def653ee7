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

	"github.com/zklock/locker/session"
	"github.com/zklock/locker/zklock"
	"github.com/zklock/locker/zktest"
)

// Options of a semaphore, what its holds can do, and what its calls cost.

// TryAcquire takes what is free when nobody waits, and costs reads only when it is busy.
func TestTryAcquireCostsOnlyReadsWhenItIsBusy(t *testing.T) {
	simTest(t, func(s *sim) {
		dir, a, b := s.dir("/locks/a"), s.client(), s.client()
		m := b.Semaphore(dir, 4)
		s.unlock(semTake(s, m, 1))
		h := semTake(s, a.Semaphore(dir, 4), 2)
		try := func(n int) (*zklock.Hold, map[zktest.Op]int, error) {
			synctest.Wait()
			before, _ := s.srv.Session(b.id())
			h, err := m.TryAcquire(s.Context(), n)
			after, _ := s.srv.Session(b.id())
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
		require.Equal(s, reads, cost)
		got, _, err := try(2)
		require.NoError(s, err)
		s.unlock(got)
		waiter := semAside(s, s.client().Semaphore(dir, 4), 3)
		_, cost, err = try(1)
		require.ErrorIs(s, err, zklock.ErrBusy, "two are free, and somebody waits")
		require.Equal(s, reads, cost)
		_, err = b.Semaphore(dir, 4, zklock.WithWait(0)).Acquire(s.Context(), 1)
		require.ErrorIs(s, err, zklock.ErrBusy, "WithWait(0) does not wait either")
		require.Len(s, s.srv.Children(dir), 2)
		s.unlock(h)
		s.unlock(waiter.get(s))
		semNothingLeft(s, dir)
	})
}

// A try that somebody forestalls between its list and its create gives its place up.
func TestATryForPermitsThatSomebodyForestallsGivesItsPlaceUp(t *testing.T) {
	simTest(t, func(s *sim) {
		dir, a, b := s.dir("/locks/a"), s.client(), s.client()
		in := s.srv.Inject(zktest.Hold().Op(zktest.OpCreate).Session(a.id()).Once())
		m := a.Semaphore(dir, 2)
		try := simGo(s.Context(), func(ctx context.Context) (*zklock.Hold, error) { return m.TryAcquire(ctx, 1) })
		<-in.Hit()
		h := semTake(s, b.Semaphore(dir, 2), 2)
		in.Release()
		require.True(s, try.over())
		require.ErrorIs(s, try.err, zklock.ErrBusy)
		require.Len(s, s.srv.Children(dir), 1)
		s.unlock(h)
		semNothingLeft(s, dir)
	})
}

// WithWait bounds the wait, and the error says who is in the way.
func TestAWaitForPermitsIsBounded(t *testing.T) {
	simTest(t, func(s *sim) {
		dir := s.dir("/locks/a")
		h := semTake(s, s.client().Semaphore(dir, 2, zklock.WithOwner("nightly")), 2)
		m := s.client().Semaphore(dir, 2, zklock.WithWait(time.Minute))
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
		s.unlock(h)
		semNothingLeft(s, dir)
	})
}

// WithWait's time is over just while the one who waits takes another look: it is busy all the same, and the deadline is
// not the caller's.
func TestAWaitForPermitsThatEndsDuringAnotherLookIsBusy(t *testing.T) {
	simTest(t, func(s *sim) {
		dir, c := s.dir("/locks/a"), s.client()
		h := semTake(s, s.client().Semaphore(dir, 2), 2)
		waiter := semAside(s, c.Semaphore(dir, 2, zklock.WithWait(time.Minute)), 1)
		time.Sleep(59 * time.Second) // so that the connection is not given up for want of an answer before the end
		in := s.srv.Inject(zktest.Hold().Op(zktest.OpGetChildren2).Session(c.id()).Once())
		behind := semAside(s, s.client().Semaphore(dir, 2), 1) // whose arrival has the head look again
		<-in.Hit()
		<-waiter.done
		in.Remove()
		require.ErrorIs(s, waiter.err, zklock.ErrBusy)
		require.NotErrorIs(s, waiter.err, context.DeadlineExceeded)
		s.unlock(h)
		s.unlock(behind.get(s))
		semNothingLeft(s, dir)
	})
}

// WithMaxHold gives the permits back by itself.
func TestPermitsThatAreHeldForTooLongGoToTheNext(t *testing.T) {
	simTest(t, func(s *sim) {
		dir := s.dir("/locks/a")
		first := semTake(s, s.client().Semaphore(dir, 2, zklock.WithMaxHold(time.Minute)), 1)
		other := semTake(s, s.client().Semaphore(dir, 2), 1)
		waiter := semAside(s, s.client().Semaphore(dir, 2), 1)
		began := time.Now()
		h := waiter.get(s)
		require.Equal(s, time.Minute, time.Since(began))
		require.ErrorIs(s, first.Err(), zklock.ErrMaxHold)
		require.ErrorIs(s, first.Unlock(s.Context()), zklock.ErrMaxHold)
		require.NoError(s, other.Err())
		s.unlock(other)
		s.unlock(h)
		semNothingLeft(s, dir)
	})
}

// WithLockDelay: after a loss, and not after a release, the next holder starts later; the claims of several holders
// do not get into each other's way, nor into the size's.
func TestALockDelayOfASemaphoreCountsAfterALossOnly(t *testing.T) {
	simTest(t, func(s *sim) {
		dir := s.dir("/locks/a")
		delay := zklock.WithLockDelay(time.Minute)
		sem := func() *zklock.Semaphore { return s.client().Semaphore(dir, 3, delay) }
		holds := []*zklock.Hold{semTake(s, sem(), 1), semTake(s, sem(), 1), semTake(s, sem(), 1)}
		waiters := []*simCall{semAside(s, sem(), 1), semAside(s, sem(), 1), semAside(s, sem(), 1)}
		s.unlock(holds[1])
		require.True(s, waiters[0].over(), "a release is no loss")
		require.NoError(s, s.client().Semaphore(dir, 3).Resize(s.Context(), 4))
		require.True(s, waiters[1].over(), "nor is a change of the size")
		require.NoError(s, s.srv.Delete(holds[2].Node()))
		at := time.Now()
		waiters[2].get(s)
		require.Equal(s, time.Minute, time.Since(at), "the lost holder's delay")
		require.NoError(s, s.srv.Delete(waiters[0].hold.Node()))
		_, err := semOther(s, dir, 4, delay).TryAcquire(s.Context(), 1)
		require.ErrorIs(s, err, zklock.ErrBusy, "a try does not wait it out")
		time.Sleep(time.Minute)
		s.unlock(holds[0])
		s.unlock(waiters[1].get(s))
		s.unlock(waiters[2].hold)
		s.unlock(semTake(s, semOther(s, dir, 4, delay), 4))
		semNothingLeft(s, dir)
		n, _ := s.srv.Node(dir)
		require.JSONEq(s, `{"size":4}`, string(n.Data), "no claim is left")
	})
}

// semOther is a semaphore of a client of its own.
func semOther(s *sim, dir string, size int, opts ...zklock.LockOption) *zklock.Semaphore {
	return s.client().Semaphore(dir, size, opts...)
}

// WithContainer: the directory goes when it is empty, with the size, and both come back.
func TestASemaphoresContainerGoesAndComesBack(t *testing.T) {
	simTest(t, func(s *sim) {
		s.dir("/locks")
		c := s.client()
		m := c.Semaphore("/locks/key", 2, zklock.WithContainer())
		var last zklock.Token
		for range 3 {
			h := semTake(s, m, 2)
			require.Greater(s, h.Token(), last)
			last = h.Token()
			time.Sleep(10 * time.Minute)
			s.owned(c, h)
			s.unlock(h)
			s.until(10*time.Minute, "the container has gone", func() bool {
				_, ok := s.srv.Node("/locks/key")
				return !ok
			})
		}
		s.unlock(semTake(s, s.client().Semaphore("/locks/key", 5, zklock.WithContainer()), 5)) // nobody remembers
	})
}

// Do holds the permits while fn runs, and gives them back whatever becomes of it.
func TestDoOfASemaphoreHoldsThePermits(t *testing.T) {
	simTest(t, func(s *sim) {
		dir := s.dir("/locks/a")
		m := s.client().Semaphore(dir, 2)
		boom := errors.New("boom")
		err := m.Do(s.Context(), 2, func(ctx context.Context) error {
			require.NoError(s, ctx.Err())
			_, err := s.client().Semaphore(dir, 2).TryAcquire(s.Context(), 1)
			require.ErrorIs(s, err, zklock.ErrBusy)
			return boom
		})
		require.ErrorIs(s, err, boom)
		require.Empty(s, s.srv.Children(dir))
		require.PanicsWithValue(s, "boom", func() {
			_ = m.Do(s.Context(), 1, func(context.Context) error { panic("boom") })
		})
		require.Empty(s, s.srv.Children(dir))
		err = m.Do(s.Context(), 1, func(ctx context.Context) error {
			require.NoError(s, s.srv.DeleteAll(dir))
			time.Sleep(time.Second)
			require.ErrorIs(s, context.Cause(ctx), zklock.ErrNodeDeleted)
			return nil
		})
		require.ErrorIs(s, err, zklock.ErrLost)
		semNothingLeft(s, dir)
	})
}

// A hold of permits is a hold: its token grows from holder to holder, Check asks, and Multi commits only while it is held.
func TestAHoldOfPermitsChecksAndFences(t *testing.T) {
	simTest(t, func(s *sim) {
		dir, data, c := s.dir("/locks/a"), s.dir("/data"), s.client()
		m := c.Semaphore(dir, 2)
		one, two := semTake(s, m, 1), semTake(s, m, 1)
		require.Greater(s, two.Token(), one.Token())
		for _, h := range []*zklock.Hold{one, two} {
			s.owned(c, h)
			require.NoError(s, h.Check(s.Context()))
			require.True(s, h.SafeUntil().After(time.Now()))
			_, err := h.Multi(s.Context(), &zk.CreateRequest{Path: data + "/x", Acl: session.WorldACL(), Flags: zk.FlagSequence})
			require.NoError(s, err)
		}
		require.NoError(s, s.srv.Delete(two.Node()))
		_, err := two.Multi(s.Context(), &zk.CreateRequest{Path: data + "/y", Acl: session.WorldACL()})
		require.ErrorIs(s, err, zklock.ErrNodeDeleted)
		require.Len(s, s.srv.Children(data), 2)
		require.ErrorIs(s, two.Check(s.Context()), zklock.ErrLost)
		require.NoError(s, one.Check(s.Context()))
		s.unlock(one)
		semNothingLeft(s, dir)
	})
}

// The queue shows who holds how many permits, and who waits.
func TestTheQueueShowsPermits(t *testing.T) {
	simTest(t, func(s *sim) {
		dir := s.dir("/locks/a")
		h := semTake(s, s.client().Semaphore(dir, 3, zklock.WithOwner("one")), 2)
		large := semAside(s, s.client().Semaphore(dir, 3, zklock.WithOwner("two")), 3)
		small := semAside(s, s.client().Semaphore(dir, 3, zklock.WithOwner("three")), 1)
		c := s.client()
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
		require.True(s, small.over())
		s.unlock(h)
		s.unlock(small.get(s))
		s.unlock(large.get(s))
		semNothingLeft(s, dir)
	})
}

// A waiter is told of its place, and an error says behind whom it stood, also after those before it have changed.
func TestAWaiterForPermitsKnowsWhoIsBeforeIt(t *testing.T) {
	simTest(t, func(s *sim) {
		dir := s.dir("/locks/a")
		var told []int
		c := s.client(zklock.WithHooks(zklock.Hooks{Queued: func(i zklock.QueuedInfo) { told = append(told, i.Ahead) }}))
		one := semTake(s, s.client().Semaphore(dir, 2, zklock.WithOwner("one")), 1)
		two := semTake(s, s.client().Semaphore(dir, 2, zklock.WithOwner("two")), 1)
		head := semAside(s, s.client().Semaphore(dir, 2, zklock.WithOwner("three")), 1)
		ctx, cancel := context.WithTimeout(s.Context(), time.Hour)
		defer cancel()
		call := simGo(ctx, semAcquire(c.Semaphore(dir, 2), 2))
		synctest.Wait()
		time.Sleep(time.Minute)
		s.unlock(one)
		time.Sleep(time.Minute)
		<-call.done
		require.ErrorIs(s, call.err, context.DeadlineExceeded)
		require.ErrorContains(s, call.err, "2nd in line behind two")
		require.Equal(s, []int{2, 1}, slices.Compact(told))
		s.unlock(two)
		s.unlock(head.get(s))
		semNothingLeft(s, dir)
	})
}

// Access that is enough to lock is enough to let the next one know: where znodes may not be written, whoever waits
// must still come in when there is room.
func TestPermitsAreGivenWhereZnodesMayNotBeWritten(t *testing.T) {
	simTest(t, func(s *sim) {
		dir := "/locks/a"
		acl := zklock.WithACL(zk.WorldACL(zk.PermCreate | zk.PermRead | zk.PermDelete)...)
		sem := func() *zklock.Semaphore { return s.client().Semaphore(dir, 2, acl) }
		one, two := semTake(s, sem(), 1), semTake(s, sem(), 1)
		head, next := semAside(s, sem(), 1), semAside(s, sem(), 1)
		s.unlock(one)
		h := head.get(s)
		s.unlock(two)
		s.until(time.Minute, "there is room for the one behind", next.over)
		s.unlock(h)
		s.unlock(next.get(s))
	})
}
