package zklock_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/internal/ensemble"
	"github.com/zklock/locker/internal/locktest"
	"github.com/zklock/locker/zklock"
)

// grant is a lock that a waiter got, by the number of its client.
type grant struct {
	hold   *zklock.Hold
	client int
}

// awaitSettled returns when all waiters have waited for long enough to have asked whether they may read the znode before
// theirs: by a list of its children, but for the second in line, which has read the holder's data.
func awaitSettled(t *testing.T, tap *ensemble.Tap, dir string, waiters int) {
	t.Helper()
	tap.Await(t, 2*locktest.Bound, "all to wait", func(tap *ensemble.Tap) bool {
		asked := map[string]bool{} // what is asked again after a reconnection counts once
		for _, f := range tap.Frames() {
			if f.Dir == ensemble.Requests && f.Op == ensemble.OpGetChildren2 && f.Path != dir {
				asked[f.Path] = true
			}
		}
		return len(asked) >= waiters-1
	})
}

// Scenario 27: with 1,000 waiters in line, spread over 20 sessions, a release wakes exactly one. What is counted are
// the notifications that cross the wire to the waiters.
//
// A notification that a release causes is sent before the answer to anything asked afterwards. So once every session
// has been answered a sync that it sent after the release, the count is final.
func TestOneReleaseWakesOneOfAThousandWaiters(t *testing.T) {
	const waiters, sessions = 1000, 20
	s := locktest.SiteOf(t, 3)
	dir := s.Path(t)
	outsider := s.Client(t) // whose own notifications are not among those counted
	holder := locktest.Lock(t, outsider.Mutex(dir))

	p := ensemble.NewProxy(t, s.Addrs[0])
	tap := p.Tap()
	clients := make([]*zklock.Client, sessions)
	for i := range clients {
		clients[i] = s.ClientAt(t, p.Addr())
	}
	ctx, cancel := context.WithCancel(locktest.Late(t))
	granted := make(chan grant, waiters)
	var calls sync.WaitGroup
	t.Cleanup(func() { cancel(); calls.Wait() })
	began := time.Now()
	for i := range waiters {
		if i%100 == 0 { // each lists those before it: not all at once
			locktest.AwaitContenders(t, outsider, dir, i+1)
		}
		calls.Go(func() {
			h, err := clients[i%sessions].Mutex(dir).Lock(ctx)
			switch {
			case err == nil:
				granted <- grant{h, i % sessions}
			case !errors.Is(err, context.Canceled):
				t.Error(err)
			}
		})
	}
	awaitSettled(t, tap, dir, waiters)
	awaitQuiet(t, clients, dir)
	t.Logf("%d waiters in line after %v", waiters, time.Since(began).Round(time.Millisecond))
	require.Len(t, locktest.Children(t, outsider, dir), waiters+1)

	// Nobody looks, not even the one who was woken: it has seen itself second in line, or hears that the one before it held.
	release := func(h *zklock.Hold) grant {
		t.Helper()
		tap.Reset()
		locktest.Unlock(t, h)
		var next grant
		select {
		case next = <-granted:
		case <-locktest.Soon(t).Done():
			t.Fatal("nobody was woken")
		}
		awaitQuiet(t, clients, dir)
		require.Empty(t, granted, "one release, one new holder")
		require.Zero(t, tap.Count(ensemble.OpGetChildren2, ensemble.OpGetChildren, ensemble.OpExists, ensemble.OpSetWatches, ensemble.OpGetData),
			"requests: %v", tap.Requests())
		return next
	}

	// The holder outside releases: among the waiters there is one notification.
	next := release(holder)
	require.Equal(t, 1, tap.Notifications())

	// A waiter that has become the holder releases, and so on: the one behind it hears of its mark and of its deletion. Its
	// own session watches its znode too, and hears of the deletion that it asked for: that is the only other notification,
	// unless the one who is woken lives in the same session, which has one watch for both.
	for range 10 {
		want := 3
		before := next
		next = release(before.hold)
		if before.client == next.client {
			want = 2
		}
		require.Equal(t, want, tap.Notifications())
		for _, f := range tap.Frames() {
			if f.Xid == -1 {
				require.Equal(t, before.hold.Node(), strings.TrimSuffix(f.Path, "-released"))
			}
		}
	}

	// All others give up at once, while each one's watch is on a znode that goes as well.
	cancel()
	calls.Wait()
	locktest.Unlock(t, next.hold)
	locktest.AwaitContenders(t, outsider, dir, 0)
}

// awaitQuiet returns when every session has been answered a request that was sent after the call began: so each has got all
// notifications of what happened before.
func awaitQuiet(t *testing.T, clients []*zklock.Client, dir string) {
	t.Helper()
	ctx := locktest.Soon(t)
	var all sync.WaitGroup
	for _, c := range clients {
		all.Go(func() {
			ses, err := c.Session(ctx)
			if err == nil {
				err = ses.Sync(ctx, dir)
			}
			if err == nil {
				_, _, err = ses.ACL(ctx, dir) // a read, of a kind that no lock call makes: seen after all that was synced
			}
			if err != nil {
				t.Error(fmt.Errorf("asking a session for what it has heard: %w", err))
			}
		})
	}
	all.Wait()
}
