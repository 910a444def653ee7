package zklock_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/internal/locktest"
	"github.com/zklock/locker/zklock"
	"github.com/zklock/locker/zktest"
)

const lockDelay = time.Minute

// delayedWaiter takes the lock in a goroutine, and reports when it got it.
func delayedWaiter(t *testing.T, c *zklock.Client, delay time.Duration) <-chan time.Time {
	got := make(chan time.Time, 1)
	go func() {
		h, err := c.Mutex("/l", zklock.WithLockDelay(delay)).Lock(locktest.Within(t, time.Hour))
		if err != nil {
			t.Error(err)
			close(got)
			return
		}
		began := time.Now()
		if err := h.Unlock(context.Background()); err != nil {
			t.Error(err)
		}
		got <- began
	}()
	return got
}

func TestAReleaseNeedsNoDelay(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T, srv *zktest.Server) {
		a, b := locktest.Dial(t, srv), locktest.Dial(t, srv)
		start := time.Now()
		for range 5 {
			h := locktest.Lock(t, a.Mutex("/l", zklock.WithLockDelay(lockDelay)))
			next := delayedWaiter(t, b, lockDelay)
			synctest.Wait()
			locktest.Unlock(t, h)
			<-next
		}
		require.Zero(t, time.Since(start))
		synctest.Wait()
		node, _ := srv.Node("/l")
		require.Empty(t, node.Data, "no claim is left")
	})
}

func TestAfterALossTheNextHolderStartsLater(t *testing.T) {
	for name, lose := range map[string]func(t *testing.T, srv *zktest.Server, c *zklock.Client, h *zklock.Hold){
		"an admin": func(t *testing.T, srv *zktest.Server, _ *zklock.Client, h *zklock.Hold) {
			require.NoError(t, srv.Delete(h.Node()))
		},
		"expiry": func(t *testing.T, srv *zktest.Server, c *zklock.Client, _ *zklock.Hold) {
			s, err := c.Session(locktest.Soon(t))
			require.NoError(t, err)
			require.NoError(t, srv.Expire(s.ID()))
		},
		"close without unlock": func(t *testing.T, _ *zktest.Server, c *zklock.Client, _ *zklock.Hold) { require.NoError(t, c.Close()) },
	} {
		t.Run(name, func(t *testing.T) {
			locktest.Bubble(t, func(t *testing.T, srv *zktest.Server) {
				a, b, d := locktest.Dial(t, srv), locktest.Dial(t, srv), locktest.Dial(t, srv)
				h := locktest.Lock(t, a.Mutex("/l", zklock.WithLockDelay(lockDelay)))
				next := delayedWaiter(t, b, time.Second)
				time.Sleep(time.Second)
				third := delayedWaiter(t, d, time.Second)
				time.Sleep(time.Second)
				lost := time.Now()
				lose(t, srv, a, h)
				began := <-next
				require.Equal(t, lockDelay, began.Sub(lost), "the lost holder's delay counts, from when the loss is found")
				require.Equal(t, began, <-third, "and it is waited out once")
			})
		})
	}
}

func TestAMaxHoldCountsAsALoss(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T, srv *zktest.Server) {
		a, b := locktest.Dial(t, srv), locktest.Dial(t, srv)
		start := time.Now()
		h := locktest.Lock(t, a.Mutex("/l", zklock.WithLockDelay(lockDelay), zklock.WithMaxHold(10*time.Second)))
		next := delayedWaiter(t, b, lockDelay)
		require.ErrorIs(t, locktest.End(h), zklock.ErrMaxHold)
		require.Equal(t, start.Add(10*time.Second).Add(lockDelay), <-next)
	})
}

func TestATryLockDoesNotWaitOutADelay(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T, srv *zktest.Server) {
		a, b := locktest.Dial(t, srv), locktest.Dial(t, srv)
		h := locktest.Lock(t, a.Mutex("/l", zklock.WithLockDelay(lockDelay)))
		require.NoError(t, srv.Delete(h.Node()))
		start := time.Now()
		_, err := b.Mutex("/l", zklock.WithLockDelay(lockDelay)).TryLock(locktest.Soon(t))
		require.ErrorIs(t, err, zklock.ErrBusy)
		require.ErrorContains(t, err, "lost")
		require.Zero(t, time.Since(start))
		synctest.Wait()
		require.Empty(t, srv.Children("/l"))
	})
}

func TestALockThatWaitsOutADelaySaysSoWhenItsContextEnds(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T, srv *zktest.Server) {
		a, b := locktest.Dial(t, srv), locktest.Dial(t, srv)
		h := locktest.Lock(t, a.Mutex("/l", zklock.WithLockDelay(lockDelay)))
		require.NoError(t, srv.Delete(h.Node()))
		_, err := b.Mutex("/l", zklock.WithLockDelay(lockDelay)).Lock(locktest.Within(t, time.Second))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorContains(t, err, "was lost (lock delay)")
		_, err = b.Mutex("/l", zklock.WithLockDelay(lockDelay), zklock.WithWait(time.Second)).Lock(locktest.Soon(t))
		require.ErrorIs(t, err, zklock.ErrBusy)
		synctest.Wait()
		require.Empty(t, srv.Children("/l"), "its place is given up")
	})
}

func TestALateHolderCantTouchTheClaim(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T, srv *zktest.Server) {
		a, b, d := locktest.Dial(t, srv), locktest.Dial(t, srv), locktest.Dial(t, srv)
		stale := locktest.Lock(t, a.Mutex("/l", zklock.WithLockDelay(lockDelay)))
		require.NoError(t, srv.Delete(stale.Node())) // it has not been notified yet
		fresh, err := b.Mutex("/l", zklock.WithLockDelay(lockDelay)).Lock(locktest.Within(t, 2*lockDelay))
		require.NoError(t, err)
		claimed, _ := srv.Node("/l")
		require.ErrorIs(t, stale.Unlock(locktest.Soon(t)), zklock.ErrLost)
		after, _ := srv.Node("/l")
		require.Equal(t, claimed.Data, after.Data)
		require.NotEmpty(t, after.Data)

		require.NoError(t, srv.Delete(fresh.Node())) // and is lost, too: the delay that follows is still due
		lost := time.Now()
		require.Equal(t, lockDelay, (<-delayedWaiter(t, d, lockDelay)).Sub(lost))
	})
}

func TestAClaimWhoseReplyIsLostIsTakenAwayAllTheSame(t *testing.T) {
	for n := range 4 {
		locktest.Bubble(t, func(t *testing.T, srv *zktest.Server) {
			a, b := locktest.Dial(t, srv), locktest.Dial(t, srv)
			srv.Inject(zktest.CloseAfter().Op(zktest.OpMulti).Nth(n + 1))
			for range 2 {
				locktest.Unlock(t, locktest.Lock(t, a.Mutex("/l", zklock.WithLockDelay(lockDelay))))
			}
			time.Sleep(5 * time.Second)
			start := time.Now()
			require.Less(t, (<-delayedWaiter(t, b, lockDelay)).Sub(start), time.Second, "reply %d lost: a release is a release", n+1)
		})
	}
}

func TestADelayOfZeroHasItsPlaceInTheProtocolAndCostsNoTime(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T, srv *zktest.Server) {
		a, b := locktest.Dial(t, srv), locktest.Dial(t, srv)
		h := locktest.Lock(t, a.Mutex("/l", zklock.WithLockDelay(0)))
		require.NoError(t, srv.Delete(h.Node()))
		start := time.Now()
		require.Equal(t, start, <-delayedWaiter(t, b, 0))
	})
}
