package zklock_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/zklock"
	"github.com/zklock/locker/zktest"
)

const apiDelay = time.Minute

// apiDelayed takes the lock in a goroutine, and says when it got it.
func apiDelayed(t *testing.T, c *zklock.Client, delay time.Duration) <-chan time.Time {
	got := make(chan time.Time, 1)
	go func() {
		h, err := c.Mutex("/l", zklock.WithLockDelay(delay)).Lock(apiWithin(t, time.Hour))
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
	apiBubble(t, func(t *testing.T, srv *zktest.Server) {
		a, b := apiDial(t, srv), apiDial(t, srv)
		start := time.Now()
		for range 5 {
			h := apiLock(t, a.Mutex("/l", zklock.WithLockDelay(apiDelay)))
			next := apiDelayed(t, b, apiDelay)
			synctest.Wait()
			apiUnlock(t, h)
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
			s, err := c.Session(apiWithin(t, apiSoon))
			require.NoError(t, err)
			require.NoError(t, srv.Expire(s.ID()))
		},
		"close without unlock": func(t *testing.T, _ *zktest.Server, c *zklock.Client, _ *zklock.Hold) { require.NoError(t, c.Close()) },
	} {
		t.Run(name, func(t *testing.T) {
			apiBubble(t, func(t *testing.T, srv *zktest.Server) {
				a, b, d := apiDial(t, srv), apiDial(t, srv), apiDial(t, srv)
				h := apiLock(t, a.Mutex("/l", zklock.WithLockDelay(apiDelay)))
				next := apiDelayed(t, b, time.Second)
				time.Sleep(time.Second)
				third := apiDelayed(t, d, time.Second)
				time.Sleep(time.Second)
				lost := time.Now()
				lose(t, srv, a, h)
				began := <-next
				require.Equal(t, apiDelay, began.Sub(lost), "the lost holder's delay counts, from when the loss is found")
				require.Equal(t, began, <-third, "and it is waited out once")
			})
		})
	}
}

func TestAMaxHoldCountsAsALoss(t *testing.T) {
	apiBubble(t, func(t *testing.T, srv *zktest.Server) {
		a, b := apiDial(t, srv), apiDial(t, srv)
		start := time.Now()
		h := apiLock(t, a.Mutex("/l", zklock.WithLockDelay(apiDelay), zklock.WithMaxHold(10*time.Second)))
		next := apiDelayed(t, b, apiDelay)
		require.ErrorIs(t, apiEnd(h), zklock.ErrMaxHold)
		require.Equal(t, start.Add(10*time.Second).Add(apiDelay), <-next)
	})
}

func TestATryLockDoesNotWaitOutADelay(t *testing.T) {
	apiBubble(t, func(t *testing.T, srv *zktest.Server) {
		a, b := apiDial(t, srv), apiDial(t, srv)
		h := apiLock(t, a.Mutex("/l", zklock.WithLockDelay(apiDelay)))
		require.NoError(t, srv.Delete(h.Node()))
		start := time.Now()
		_, err := b.Mutex("/l", zklock.WithLockDelay(apiDelay)).TryLock(apiWithin(t, apiSoon))
		require.ErrorIs(t, err, zklock.ErrBusy)
		require.ErrorContains(t, err, "lost")
		require.Zero(t, time.Since(start))
		synctest.Wait()
		require.Empty(t, srv.Children("/l"))
	})
}

func TestALockThatWaitsOutADelaySaysSoWhenItsContextEnds(t *testing.T) {
	apiBubble(t, func(t *testing.T, srv *zktest.Server) {
		a, b := apiDial(t, srv), apiDial(t, srv)
		h := apiLock(t, a.Mutex("/l", zklock.WithLockDelay(apiDelay)))
		require.NoError(t, srv.Delete(h.Node()))
		_, err := b.Mutex("/l", zklock.WithLockDelay(apiDelay)).Lock(apiWithin(t, time.Second))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorContains(t, err, "was lost (lock delay)")
		_, err = b.Mutex("/l", zklock.WithLockDelay(apiDelay), zklock.WithWait(time.Second)).Lock(apiWithin(t, apiSoon))
		require.ErrorIs(t, err, zklock.ErrBusy)
		synctest.Wait()
		require.Empty(t, srv.Children("/l"), "its place is given up")
	})
}

func TestALateHolderCantTouchTheClaim(t *testing.T) {
	apiBubble(t, func(t *testing.T, srv *zktest.Server) {
		a, b, d := apiDial(t, srv), apiDial(t, srv), apiDial(t, srv)
		stale := apiLock(t, a.Mutex("/l", zklock.WithLockDelay(apiDelay)))
		require.NoError(t, srv.Delete(stale.Node())) // it has not heard yet
		fresh, err := b.Mutex("/l", zklock.WithLockDelay(apiDelay)).Lock(apiWithin(t, 2*apiDelay))
		require.NoError(t, err)
		claimed, _ := srv.Node("/l")
		require.ErrorIs(t, stale.Unlock(apiWithin(t, apiSoon)), zklock.ErrLost)
		after, _ := srv.Node("/l")
		require.Equal(t, claimed.Data, after.Data)
		require.NotEmpty(t, after.Data)

		require.NoError(t, srv.Delete(fresh.Node())) // and is lost, too: the delay that follows is still due
		lost := time.Now()
		require.Equal(t, apiDelay, (<-apiDelayed(t, d, apiDelay)).Sub(lost))
	})
}

func TestAClaimWhoseReplyIsLostIsTakenAwayAllTheSame(t *testing.T) {
	for n := range 4 {
		apiBubble(t, func(t *testing.T, srv *zktest.Server) {
			a, b := apiDial(t, srv), apiDial(t, srv)
			srv.Inject(zktest.CloseAfter().Op(zktest.OpMulti).Nth(n + 1))
			for range 2 {
				apiUnlock(t, apiLock(t, a.Mutex("/l", zklock.WithLockDelay(apiDelay))))
			}
			time.Sleep(5 * time.Second)
			start := time.Now()
			require.Less(t, (<-apiDelayed(t, b, apiDelay)).Sub(start), time.Second, "reply %d lost: a release is a release", n+1)
		})
	}
}

func TestADelayOfZeroHasItsPlaceInTheProtocolAndCostsNoTime(t *testing.T) {
	apiBubble(t, func(t *testing.T, srv *zktest.Server) {
		a, b := apiDial(t, srv), apiDial(t, srv)
		h := apiLock(t, a.Mutex("/l", zklock.WithLockDelay(0)))
		require.NoError(t, srv.Delete(h.Node()))
		start := time.Now()
		require.Equal(t, start, <-apiDelayed(t, b, 0))
	})
}
