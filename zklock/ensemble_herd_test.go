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

// awaitSettled returns when all waiters have waited for long enough to have found out whether they may read their predecessor: by a
// list of its children; the second in line has read the holder's data instead.
func awaitSettled(t *testing.T, tap *ensemble.Tap, dir string, waiters int) {
	t.Helper()
	tap.Await(t, 2*locktest.Bound, "all to wait", func(tap *ensemble.Tap) bool {
		asked := map[string]bool{} // a request that is repeated after a reconnection counts once
		for _, f := range tap.Frames() {
			if f.Dir == ensemble.Requests && f.Op == ensemble.OpGetChildren2 && f.Path != dir {
				asked[f.Path] = true
			}
		}
		return len(asked) >= waiters-1
	})
}

// herd is many calls that wait for one lock.
type herd struct {
	dir      string
	outsider *zklock.Client // whose own notifications are not among those counted
	tap      *ensemble.Tap  // on the wire of the clients
	clients  []*zklock.Client
	granted  chan grant
	calls    sync.WaitGroup
}

// enter makes that many calls wait, and returns when all do.
func (h *herd) enter(t *testing.T, ctx context.Context, waiters int) {
	t.Helper()
	for i := range waiters {
		if i%100 == 0 { // each lists those before it: not all at once
			locktest.AwaitContenders(t, h.outsider, h.dir, i+1)
		}
		client := i % len(h.clients)
		h.calls.Go(func() {
			hold, err := h.clients[client].Mutex(h.dir).Lock(ctx)
			switch {
			case err == nil:
				h.granted <- grant{hold, client}
			case !errors.Is(err, context.Canceled):
				t.Error(err)
			}
		})
	}
	awaitSettled(t, h.tap, h.dir, waiters)
	awaitQuiet(t, h.clients, h.dir)
	require.Len(t, locktest.Children(t, h.outsider, h.dir), waiters+1)
}

// release returns the one waiter that a release has woken. No waiter has listed the directory, not even that one: its latest list
// showed it second in line, or its predecessor's mark says that that one held. (A waiter may read its predecessor: a session
// whose connection was slow asks a second time whether it may.)
func (h *herd) release(t *testing.T, hold *zklock.Hold) grant {
	t.Helper()
	h.tap.Reset()
	locktest.Unlock(t, hold)
	var next grant
	select {
	case next = <-h.granted:
	case <-locktest.Soon(t).Done():
		t.Fatal("nobody was woken")
	}
	awaitQuiet(t, h.clients, h.dir)
	require.Empty(t, h.granted, "one release, one new holder")
	require.Zero(t, h.tap.Count(ensemble.OpSetWatches), "requests: %v", h.tap.Requests())
	for _, f := range h.tap.Frames() {
		if f.Dir == ensemble.Requests && f.Path == h.dir {
			require.Contains(t, []int32{ensemble.OpSync, ensemble.OpGetACL}, f.Op, "awaitQuiet's")
		}
	}
	return next
}

// Scenario 27: with 1,000 waiters in line, of 20 sessions, a release wakes exactly one. The test counts the notifications that
// are sent to the waiters.
//
// A server sends the notifications of a release before its answers to later requests. So the count is final once each session
// has the answer to a sync that it sent after the release.
func TestOneReleaseWakesOneOfAThousandWaiters(t *testing.T) {
	const waiters, sessions = 1000, 20
	s := locktest.SiteOf(t, 3)
	p := ensemble.NewProxy(t, s.Addrs[0])
	h := &herd{dir: s.Path(t), outsider: s.Client(t), tap: p.Tap(), granted: make(chan grant, waiters)}
	holder := locktest.Lock(t, h.outsider.Mutex(h.dir))
	for range sessions {
		h.clients = append(h.clients, s.ClientAt(t, p.Addr()))
	}
	ctx, cancel := context.WithCancel(locktest.Late(t))
	t.Cleanup(func() { cancel(); h.calls.Wait() })
	began := time.Now()
	h.enter(t, ctx, waiters)
	t.Logf("%d waiters in line after %v", waiters, time.Since(began).Round(time.Millisecond))

	// The holder outside releases: among the waiters there is one notification.
	next := h.release(t, holder)
	require.Equal(t, 1, h.tap.Notifications())

	// A waiter that has become the holder releases, and so on. The next one is notified of the mark and of the deletion. The
	// releasing session watches the deleted znode too: that is the only other notification, and there is none if the waiter that
	// is woken is of the same session, which has one watch for both.
	for range 10 {
		want := 3
		before := next
		next = h.release(t, before.hold)
		if before.client == next.client {
			want = 2
		}
		require.Equal(t, want, h.tap.Notifications())
		for _, f := range h.tap.Frames() {
			if f.Xid == -1 {
				require.Equal(t, before.hold.Node(), strings.TrimSuffix(f.Path, "-released"))
			}
		}
	}

	// All others give up at once, while the znode that each one watches is deleted as well.
	cancel()
	h.calls.Wait()
	locktest.Unlock(t, next.hold)
	locktest.AwaitContenders(t, h.outsider, h.dir, 0)
}

// awaitQuiet returns when every session has the answer to a request that it sent after the call began: so each has received all
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
				_, _, err = ses.ACL(ctx, dir) // a kind of read that no lock call makes, and that shows everything up to the sync
			}
			if err != nil {
				t.Error(fmt.Errorf("asking a session for what it has heard: %w", err))
			}
		})
	}
	all.Wait()
}
