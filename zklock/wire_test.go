package zklock_test

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/tests/ensemble"
	"github.com/zklock/locker/tests/locktest"
	"github.com/zklock/locker/zklock"
)

// Tests of what each call costs on the wire, counted by a proxy's tap. Pings and the heartbeat of a held lock
// (TestOneHeartbeat… of session) are left out, since they do not depend on the number of calls.

// quietFor is how long a wait or a hold lasts before it costs two more reads, or one.
const quietFor = 300 * time.Millisecond

// passed returns the messages, one word each, without heartbeats: "create", "→create" for its reply, "notification". With
// requestsOnly, the replies and notifications are left out.
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

// eventually repeats a scene until it took less than quietFor, so that the requests of a longer one are not counted. A scene
// returns its messages. If they are the expected ones, the time does not matter.
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

	// With a reply that takes this long it is certain which requests were sent before it arrived.
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

func TestBusyTryLockCostsAReadAndNoWrite(t *testing.T) {
	s := locktest.SiteOf(t, 3)
	dir := s.Path(t)
	h := locktest.Lock(t, s.Client(t).Mutex(dir))
	c, p := s.Tapped(t)
	_, _, err := c.Mutex(dir).TryLock(locktest.Soon(t))
	require.ErrorIs(t, err, zklock.ErrBusy)

	p.Tap().Reset()
	for range 10 {
		_, _, err := c.Mutex(dir).TryLock(locktest.Soon(t))
		require.ErrorIs(t, err, zklock.ErrBusy)
	}
	require.Equal(t, slices.Repeat([]string{"getChildren2"}, 10), passed(p.Tap(), true))
	locktest.Unlock(t, h)
}

// A TryLock lists first, so that a busy one writes nothing, and then does what Lock does.
func TestFreeTryLockCostsAListMoreThanLock(t *testing.T) {
	s := locktest.SiteOf(t, 3)
	c, p := s.Tapped(t)
	m := c.Mutex(s.Path(t))
	locktest.Unlock(t, locktest.Lock(t, m))
	eventually(t, []string{"getChildren2", "create", "getChildren2", "delete"}, func(t *testing.T) []string {
		p.Tap().Reset()
		_, h, err := m.TryLock(locktest.Soon(t))
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

	// The requests of one connection are in order: anything that the new holder sent before its Lock returned would come
	// before its release.
	eventually(t, []string{
		"create", "getChildren2", "→create", "→getChildren2", "setWatches", "→setWatches", // queued
		"notification",                    // handed over
		"multi", "notification", "→multi", // released, with a mark: its own znode is watched too
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

// The mark of its predecessor tells a waiter that was third or further back in its latest list that the predecessor has held.
func TestHandOverToOneThatHasSeenTwoBeforeItCostsNothingEither(t *testing.T) {
	s := locktest.SiteOf(t, 3)
	dir := s.Path(t)
	first, second := s.Client(t).Mutex(dir), s.Client(t).Mutex(dir)
	c, p := s.Tapped(t)
	tap := p.Tap()
	m := c.Mutex(dir)
	locktest.Unlock(t, locktest.Lock(t, m))
	scene := func(t *testing.T) []string {
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
	}
	scene(t) // servers before 3.9 are asked for the access list, once
	eventually(t, []string{
		"create", "getChildren2", "→create", "→getChildren2", "setWatches", "→setWatches",
		"notification", "notification", // the mark, and the deletion
		"multi", "notification", "→multi",
	}, scene)
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
		"getChildren2", "removeWatches", "setWatches", // the second has left, without a mark: behind the first
		"multi",
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

// awaitReplies waits until the nth reply to requests of one kind has passed.
func awaitReplies(t *testing.T, tap *ensemble.Tap, op int32, n int) {
	t.Helper()
	awaitFrames(t, tap, fmt.Sprintf("%d replies to %s", n, ensemble.OpName(op)), n, func(f ensemble.Frame) bool {
		return f.Dir == ensemble.Replies && f.Xid != -1 && f.Op == op
	})
}

// awaitNotification waits for a notification about a znode.
func awaitNotification(t *testing.T, tap *ensemble.Tap, node string) {
	t.Helper()
	awaitFrames(t, tap, "a notification of "+node, 1, func(f ensemble.Frame) bool { return f.Xid == -1 && f.Path == node })
}

// awaitFrames polls more often than ensemble.Until does: most messages here arrive within a millisecond or two, and the
// whole scene must not take longer than quietFor.
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
