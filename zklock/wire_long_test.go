package zklock_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/internal/ensemble"
	"github.com/zklock/locker/internal/locktest"
	"github.com/zklock/locker/zklock"
)

// A long wait costs reads of the size and the data of the holder's znode, once for all waiters of a session, so that the
// error of a wait that ends in vain can name the holder. They also show whether we may read the znode: otherwise we would
// not be notified of its deletion. They are made once for each predecessor, however long the wait. The watch on our own
// znode, which is set with the other one, is kept for the hold.
func TestLongWaitCostsTwoReadsMore(t *testing.T) {
	s := locktest.SiteOf(t, 3)
	dir := s.Path(t)
	h := locktest.Lock(t, s.Client(t).Mutex(dir))
	c, p := s.Tapped(t)
	tap := p.Tap()
	w := locktest.LockAside(t, c.Mutex(dir))
	awaitReplies(t, tap, ensemble.OpGetData, 1)
	locktest.Pass(2 * quietFor)
	require.Equal(t, []string{"create", "getChildren2", "setWatches", "exists", "getData"}, passed(tap, true))
	require.Equal(t, h.Node(), lastPath(tap, ensemble.OpGetData))

	tap.Reset()
	locktest.Unlock(t, h)
	mine := w.Result(t)
	locktest.Pass(2 * quietFor)
	require.Empty(t, passed(tap, true), "neither the hand-over nor a long hold after it costs anything more")
	locktest.Unlock(t, mine)
	awaitNotification(t, tap, mine.Node())
	require.Equal(t, []string{"multi"}, passed(tap, true))
}

// A waiter that moves up after a long wait, and is still behind the same holder, knows its name already.
func TestThirdInLineAfterALongWaitReadsTheHolderNoMore(t *testing.T) {
	s := locktest.SiteOf(t, 3)
	dir := s.Path(t)
	h := locktest.Lock(t, s.Client(t).Mutex(dir))
	second := locktest.LockAside(t, s.Client(t).Mutex(dir))
	c, p := s.Tapped(t)
	tap := p.Tap()
	locktest.AwaitContenders(t, c, dir, 2)
	third := locktest.LockAside(t, c.Mutex(dir))
	awaitReplies(t, tap, ensemble.OpGetData, 1)
	require.Equal(t, h.Node(), lastPath(tap, ensemble.OpGetData))
	awaitFrames(t, tap, "a read of the second", 1, func(f ensemble.Frame) bool {
		return f.Dir == ensemble.Requests && f.Op == ensemble.OpGetChildren2 && f.Path != dir
	})

	tap.Reset()
	require.ErrorIs(t, second.Abandon(), context.Canceled)
	awaitReplies(t, tap, ensemble.OpSetWatches, 1)
	locktest.Pass(2 * quietFor)
	require.Equal(t, []string{"getChildren2", "removeWatches", "setWatches"}, passed(tap, true))
	locktest.Unlock(t, h)
	locktest.Unlock(t, third.Result(t))
}

// A hold that lasts watches its own znode, from quietFor on, once.
func TestLongHoldCostsAWatchMore(t *testing.T) {
	s := locktest.SiteOf(t, 3)
	c, p := s.Tapped(t)
	tap := p.Tap()
	m := c.Mutex(s.Path(t))
	locktest.Unlock(t, locktest.Lock(t, m))
	tap.Reset()
	h := locktest.Lock(t, m)
	awaitReplies(t, tap, ensemble.OpExists, 1) // after the watch: is the znode still ours, and not another of the same name?
	locktest.Pass(2 * quietFor)
	require.Equal(t, []string{"create", "getChildren2", "setWatches", "exists"}, passed(tap, true))
	require.Equal(t, h.Node(), lastPath(tap, ensemble.OpSetWatches))
	locktest.Unlock(t, h)
	awaitNotification(t, tap, h.Node())
	require.Equal(t, []string{"create", "getChildren2", "setWatches", "exists", "delete"}, passed(tap, true))
}

// While anything is held a session asks the leader every fifth of its timeout, whatever the number of locks; while
// nothing is, it only pings.
func TestHeartbeatIsOneCheckOfAZnodePerFifthOfTheTimeoutWhileHeld(t *testing.T) {
	s := locktest.SiteOf(t, 3)
	c, p := s.Tapped(t, zklock.WithSessionTimeout(s.ShortTimeout()))
	tap := p.Tap()
	ses, err := c.Session(locktest.Soon(t))
	require.NoError(t, err)
	timeout := ses.Timeout()
	dir := s.Path(t)
	locktest.Unlock(t, locktest.Lock(t, c.Mutex(dir)))

	tap.Reset()
	const idlePings = 7 // a timeout and more
	tap.Await(t, locktest.Bound, "pings", func(tap *ensemble.Tap) bool { return tap.Pings() >= idlePings })
	require.Zero(t, tap.Count(), "nothing is held, and yet passed:\n%s", tap)

	for _, locks := range []int{1, 20} {
		t.Run(fmt.Sprint(locks, " held"), func(t *testing.T) {
			// On a busy machine some heartbeats are late, the next one after a late one comes a full fifth later, and a
			// lease that runs thin is confirmed at once. So no bound is sharp, and one trial of three has to be within it.
			const beats, trials = 5, 3
			due := beats * timeout / 5
			for trial := 1; ; trial++ {
				span, err := heartbeats(t, s, locks, beats)
				t.Logf("%d heartbeats in %v: one every %v at a timeout of %v; %v", beats, span, span/beats, timeout, err)
				if err == nil && span > due/2 && span < due*3 {
					return
				}
				require.Less(t, trial, trials, "they come too often, too seldom, or too late for the session")
			}
		})
	}
}

// heartbeats returns the time from the first to the n-th later heartbeat of a new session that holds some locks, or why the
// session has ended before.
func heartbeats(t *testing.T, s *locktest.Site, locks, n int) (time.Duration, error) {
	t.Helper()
	c, p := s.Tapped(t, zklock.WithSessionTimeout(s.ShortTimeout()))
	tap := p.Tap()
	ses, err := c.Session(locktest.Soon(t))
	require.NoError(t, err)
	dir := s.Path(t)
	for i := range locks {
		locktest.Lock(t, c.Mutex(fmt.Sprint(dir, "/", i)))
	}
	tap.Reset()
	tap.Await(t, locktest.Bound, "heartbeats", func(tap *ensemble.Tap) bool {
		return tap.Count(ensemble.OpMulti) > n+1 || ses.Err() != nil
	})
	if err := ses.Err(); err != nil {
		return 0, err
	}
	var at []time.Time
	for _, f := range tap.Frames() {
		if f.Dir == ensemble.Requests && f.Op == ensemble.OpMulti {
			at = append(at, f.At)
		}
	}
	return at[n+1].Sub(at[1]), nil // the writes of locking postpone the first one
}

// After a wait of more than three quarters of the timeout without a write, little of the lease is left, since pings do not
// confirm it: one request to the leader renews it before the hold begins.
func TestHandOverAfterAVeryLongWaitConfirmsTheLease(t *testing.T) {
	s := locktest.SiteOf(t, 3)
	dir := s.Path(t)
	h := locktest.Lock(t, s.Client(t).Mutex(dir))
	c, p := s.Tapped(t, zklock.WithSessionTimeout(s.ShortTimeout()))
	tap := p.Tap()
	ses, err := c.Session(locktest.Soon(t))
	require.NoError(t, err)
	w := locktest.LockAside(t, c.Mutex(dir))
	ensemble.Until(t, locktest.Bound, "the create to confirm the lease", func() error {
		if !ses.SafeUntil().After(time.Now()) {
			return errors.New("it has not")
		}
		return nil
	})
	ensemble.Until(t, locktest.Bound, "the lease of a session that only waits to run out", func() error {
		if left := time.Until(ses.SafeUntil()); left > 0 {
			return fmt.Errorf("it is safe for another %v", left)
		}
		return nil
	})
	require.NoError(t, ses.Err(), "a session that only waits lasts")
	require.Zero(t, tap.Count(ensemble.OpMulti), "and asks nothing of the leader")

	tap.Reset()
	locktest.Unlock(t, h)
	mine := w.Result(t)
	require.GreaterOrEqual(t, tap.Count(ensemble.OpMulti), 1)
	require.Greater(t, time.Until(mine.SafeUntil()), ses.Timeout()/16, "half of what it begins with, for a slow test")
	for _, passed := range passed(tap, true) {
		require.Equal(t, "multi", passed, "beside the heartbeats")
	}
	locktest.Unlock(t, mine)
}
