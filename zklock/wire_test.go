package zklock_test

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"testing"
	"time"

	"github.com/zklock/locker/internal/locktest"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/internal/ensemble"
	"github.com/zklock/locker/zklock"
)

// What each call costs on the wire. A proxy's tap counts; pings and the heartbeat of a held lock (TestHeartbeat…) are
// left out, since they do not depend on the number of calls.

// quietFor is how long a wait or a hold lasts before it costs two more reads, or one.
const quietFor = 300 * time.Millisecond

// passed returns what passed, one word a message, without heartbeats: "create", "→create" for its reply,
// "notification". With requests only, the replies and notifications are left out.
func passed(tap *ensemble.Tap, requestsOnly bool) []string {
	all := []string{}
	for _, f := range tap.Frames() {
		switch {
		case f.Op == ensemble.OpSync:
		case f.Xid == -1 && !requestsOnly:
			all = append(all, "notification")
		case f.Dir == ensemble.Requests:
			all = append(all, ensemble.OpName(f.Op))
		case f.Xid != -1 && !requestsOnly:
			all = append(all, "→"+ensemble.OpName(f.Op))
		}
	}
	return all
}

// eventually runs a scene until it took less than quietFor, so that what a longer one costs is not in the count. A scene
// returns what passed. One that shows what it should is right however long it took.
func eventually(t *testing.T, want []string, scene func(t *testing.T) []string) {
	t.Helper()
	const attempts = 50
	for range attempts {
		began := time.Now()
		got := scene(t)
		took := time.Since(began)
		if slices.Equal(got, want) {
			return
		}
		if took < quietFor {
			require.Equal(t, want, got, "the scene took %v", took)
		}
	}
	t.Fatalf("%d times the scene took longer than %v: the machine is too busy to tell", attempts, quietFor)
}

func TestFreeLockCostsACreateAndAListInOneRoundTrip(t *testing.T) {
	s := locktest.SiteOf(t, 3)
	c, p := s.Tapped(t)
	m := c.Mutex(s.Path(t))
	locktest.Unlock(t, locktest.Lock(t, m)) // the directory is there from now on

	// A reply that takes this long to arrive leaves no doubt about what was sent before it did.
	const delay = 40 * time.Millisecond
	p.Delay(delay, delay)
	eventually(t, []string{"create", "getChildren2", "→create", "→getChildren2"}, func(t *testing.T) []string {
		p.Tap().Reset()
		h := locktest.Lock(t, m)
		got := passed(p.Tap(), false)
		locktest.Unlock(t, h)
		return got
	})
}

func TestUnlockCostsADelete(t *testing.T) {
	s := locktest.SiteOf(t, 3)
	c, p := s.Tapped(t)
	m := c.Mutex(s.Path(t))
	eventually(t, []string{"delete", "→delete"}, func(t *testing.T) []string {
		h := locktest.Lock(t, m)
		p.Tap().Reset()
		locktest.Unlock(t, h)
		return passed(p.Tap(), false)
	})
}

// czxidOf reads a znode's czxid, behind a sync.
func czxidOf(t *testing.T, c *zklock.Client, node string) int64 {
	t.Helper()
	s, err := c.Session(locktest.Soon(t))
	require.NoError(t, err)
	b := s.Batch()
	b.Sync(node)
	stat := b.Exists(node)
	require.NoError(t, b.Do(locktest.Soon(t)))
	return stat.Value.Czxid
}

func TestTokenCostsNothingAndIsTheZnodesCzxid(t *testing.T) {
	s := locktest.SiteOf(t, 3)
	c, p := s.Tapped(t)
	witness := s.Client(t)
	dir := s.Path(t)
	m := c.Mutex(dir)
	first := locktest.Lock(t, m)
	locktest.Unlock(t, first)

	eventually(t, []string{"create", "getChildren2", "delete"}, func(t *testing.T) []string {
		p.Tap().Reset()
		h := locktest.Lock(t, m)
		token := h.Token()
		require.Equal(t, czxidOf(t, witness, h.Node()), int64(token))
		require.Greater(t, token, first.Token())
		locktest.Unlock(t, h)
		return passed(p.Tap(), true)
	})

	// After a wait, too: its create was answered long before.
	holder := locktest.Lock(t, witness.Mutex(dir))
	w := locktest.LockAside(t, m)
	locktest.AwaitContenders(t, witness, dir, 2)
	locktest.Unlock(t, holder)
	h := w.Result(t)
	require.Equal(t, czxidOf(t, witness, h.Node()), int64(h.Token()))
	require.Greater(t, h.Token(), holder.Token())
	locktest.Unlock(t, h)
}

func TestBusyTryLockCostsAReadAndNoWrite(t *testing.T) {
	s := locktest.SiteOf(t, 3)
	dir := s.Path(t)
	h := locktest.Lock(t, s.Client(t).Mutex(dir))
	c, p := s.Tapped(t)
	_, err := c.Mutex(dir).TryLock(locktest.Soon(t))
	require.ErrorIs(t, err, zklock.ErrBusy)

	p.Tap().Reset()
	for range 10 {
		_, err := c.Mutex(dir).TryLock(locktest.Soon(t))
		require.ErrorIs(t, err, zklock.ErrBusy)
	}
	require.Equal(t, slices.Repeat([]string{"getChildren2"}, 10), passed(p.Tap(), true))
	locktest.Unlock(t, h)
}

// A TryLock that succeeds looks first, so that a busy one writes nothing, and then does what Lock does.
func TestFreeTryLockCostsAListMoreThanLock(t *testing.T) {
	s := locktest.SiteOf(t, 3)
	c, p := s.Tapped(t)
	m := c.Mutex(s.Path(t))
	locktest.Unlock(t, locktest.Lock(t, m))
	eventually(t, []string{"getChildren2", "create", "getChildren2", "delete"}, func(t *testing.T) []string {
		p.Tap().Reset()
		h, err := m.TryLock(locktest.Soon(t))
		require.NoError(t, err)
		locktest.Unlock(t, h)
		return passed(p.Tap(), true)
	})
}

func TestQueuedLockCostsAWatchMoreAndTheHandOverNothing(t *testing.T) {
	s := locktest.SiteOf(t, 3)
	dir := s.Path(t)
	holder := s.Client(t).Mutex(dir)
	c, p := s.Tapped(t)
	tap := p.Tap()
	m := c.Mutex(dir)
	locktest.Unlock(t, locktest.Lock(t, m))

	// The requests of one connection pass in order: whatever the new holder had sent before its Lock returned would
	// show before its delete.
	eventually(t, []string{
		"create", "getChildren2", "→create", "→getChildren2", "setWatches", "→setWatches", // queued
		"notification",                      // handed over
		"delete", "notification", "→delete", // released: its own znode is watched too
	}, func(t *testing.T) []string {
		h := locktest.Lock(t, holder)
		tap.Reset()
		w := locktest.LockAside(t, m)
		awaitReplies(t, tap, ensemble.OpSetWatches, 1)
		locktest.Unlock(t, h)
		locktest.Unlock(t, w.Result(t))
		return passed(tap, false)
	})
	require.Equal(t, dir, path.Dir(lastPath(tap, ensemble.OpSetWatches)))
}

// One that has only ever seen itself third or further back has to look, once, when the one before it is gone: whether
// that was the holder or a waiter, a deletion does not tell.
func TestHandOverToOneThatHasSeenTwoBeforeItCostsAList(t *testing.T) {
	s := locktest.SiteOf(t, 3)
	dir := s.Path(t)
	first, second := s.Client(t).Mutex(dir), s.Client(t).Mutex(dir)
	c, p := s.Tapped(t)
	tap := p.Tap()
	m := c.Mutex(dir)
	locktest.Unlock(t, locktest.Lock(t, m))
	eventually(t, []string{
		"create", "getChildren2", "→create", "→getChildren2", "setWatches", "→setWatches",
		"notification", "getChildren2", "→getChildren2",
		"delete", "notification", "→delete",
	}, func(t *testing.T) []string {
		h := locktest.Lock(t, first)
		w2 := locktest.LockAside(t, second)
		locktest.AwaitContenders(t, c, dir, 2)
		tap.Reset()
		w3 := locktest.LockAside(t, m)
		awaitReplies(t, tap, ensemble.OpSetWatches, 1)
		locktest.Unlock(t, h)
		locktest.Unlock(t, w2.Result(t))
		locktest.Unlock(t, w3.Result(t))
		return passed(tap, false)
	})
}

func TestThirdInLineLooksOnceMoreWhenTheSecondLeaves(t *testing.T) {
	s := locktest.SiteOf(t, 3)
	dir := s.Path(t)
	first, second := s.Client(t).Mutex(dir), s.Client(t).Mutex(dir)
	c, p := s.Tapped(t)
	tap := p.Tap()
	m := c.Mutex(dir)
	locktest.Unlock(t, locktest.Lock(t, m))

	eventually(t, []string{
		"create", "getChildren2", "setWatches", // queued behind the second
		"getChildren2", "setWatches", // the second has left: behind the first
		"delete",
	}, func(t *testing.T) []string {
		h := locktest.Lock(t, first)
		w2 := locktest.LockAside(t, second)
		locktest.AwaitContenders(t, c, dir, 2)
		tap.Reset()
		w3 := locktest.LockAside(t, m)
		awaitReplies(t, tap, ensemble.OpSetWatches, 1)
		require.ErrorIs(t, w2.Abandon(), context.Canceled)
		awaitReplies(t, tap, ensemble.OpSetWatches, 2)
		require.Equal(t, h.Node(), lastPath(tap, ensemble.OpSetWatches))
		locktest.Unlock(t, h)
		locktest.Unlock(t, w3.Result(t))
		return passed(tap, true)
	})
}

// What a wait that lasts costs more: the size and then the data of the holder's znode, so that a wait that ends in vain
// says behind whom, which are read once for all waiters of a session. That also tells whether we may read it: otherwise we would
// not be told of its end. All come once for each predecessor, whatever the
// length of the wait. The watch on the own znode, set with the other one, is the hold's afterwards.
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
	require.Equal(t, []string{"delete"}, passed(tap, true))
}

// A waiter that has waited for long and moves up behind the same holder knows its name already.
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
	require.Equal(t, []string{"getChildren2", "setWatches"}, passed(tap, true))
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
	awaitReplies(t, tap, ensemble.OpExists, 1) // behind the watch: is the znode still ours, and no other of its name?
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
			for i := range locks {
				locktest.Lock(t, c.Mutex(fmt.Sprint(dir, "/", locks, "-", i)))
			}
			awaitReplies(t, tap, ensemble.OpMulti, 1) // what was written to lock puts the first one off
			tap.Reset()
			const beats = 5
			tap.Await(t, locktest.Bound, "heartbeats", func(tap *ensemble.Tap) bool { return tap.Count(ensemble.OpMulti) > beats })
			var at []time.Time
			for _, f := range tap.Frames() {
				if f.Dir == ensemble.Requests && f.Op == ensemble.OpMulti {
					at = append(at, f.At)
				}
			}
			// A busy machine makes some late, and the next one after a late one comes a full fifth after it was sent;
			// and a lease that has become thin is confirmed at once: no bound is sharp.
			span, due := at[beats].Sub(at[0]), beats*timeout/5
			t.Logf("%d heartbeats in %v: one every %v at a timeout of %v", beats, span, span/beats, timeout)
			require.Greater(t, span, due/2, "they come too often")
			require.Less(t, span, due*3, "they come too seldom")
		})
	}
}

// A wait that outlasts three quarters of the timeout without a write has only plain pings behind its lease: it takes
// one question to the leader to begin a hold with a lease that is worth having.
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

// awaitReplies waits until the nth reply to requests of one kind has passed.
func awaitReplies(t *testing.T, tap *ensemble.Tap, op int32, n int) {
	t.Helper()
	awaitFrames(t, tap, fmt.Sprintf("%d replies to %s", n, ensemble.OpName(op)), n, func(f ensemble.Frame) bool {
		return f.Dir == ensemble.Replies && f.Xid != -1 && f.Op == op
	})
}

// awaitNotification waits for the word that something happened to a znode.
func awaitNotification(t *testing.T, tap *ensemble.Tap, node string) {
	t.Helper()
	awaitFrames(t, tap, "a notification of "+node, 1, func(f ensemble.Frame) bool { return f.Xid == -1 && f.Path == node })
}

// awaitFrames looks more often than ensemble.Until does: most of what is waited for here comes within a millisecond or
// two, and the scene that it belongs to has quietFor for everything.
func awaitFrames(t *testing.T, tap *ensemble.Tap, what string, n int, match func(ensemble.Frame) bool) {
	t.Helper()
	ticker := time.NewTicker(time.Millisecond)
	defer ticker.Stop()
	for deadline := time.Now().Add(locktest.Bound); ; <-ticker.C {
		seen := 0
		for _, f := range tap.Frames() {
			if match(f) {
				seen++
			}
		}
		if seen >= n {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal(errors.New("waited for " + what + "; so far passed:\n" + tap.String()))
		}
	}
}

// lastPath is the path of the last request of one kind.
func lastPath(tap *ensemble.Tap, op int32) (p string) {
	for _, f := range tap.Frames() {
		if f.Dir == ensemble.Requests && f.Op == op {
			p = f.Path
		}
	}
	return p
}
