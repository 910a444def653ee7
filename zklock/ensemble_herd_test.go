package zklock_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/internal/ensemble"
	"github.com/zklock/locker/zklock"
)

// Scenario 27: with 1,000 waiters in line, spread over 20 sessions, a release wakes exactly two: the next one, who holds,
// and the one behind it, who makes ready. What is counted are the notifications that cross the wire to the waiters.
//
// A notification that a release causes is sent before the answer to anything asked afterwards. So once every session
// has been answered a sync that it sent after the release, the count is final.
func TestOneReleaseWakesTwoOfAThousandWaiters(t *testing.T) {
	const waiters, sessions = 1000, 20
	s := siteOf(t, 3)
	dir := s.Path(t)
	outsider := s.Client(t) // whose own notifications are not among those counted
	holder := siteLock(t, outsider.Mutex(dir))

	p := ensemble.NewProxy(t, s.Addrs[0])
	tap := p.Tap()
	clients := make([]*zklock.Client, sessions)
	for i := range clients {
		clients[i] = s.ClientAt(t, p.Addr())
	}
	type got struct {
		hold   *zklock.Hold
		client int
	}
	ctx, cancel := context.WithCancel(siteLongContext(t))
	granted := make(chan got, waiters)
	var calls sync.WaitGroup
	t.Cleanup(func() { cancel(); calls.Wait() })
	began := time.Now()
	for i := range waiters {
		if i%100 == 0 { // each lists those before it: not all at once
			siteAwaitQueue(t, outsider, dir, i+1)
		}
		calls.Go(func() {
			h, err := clients[i%sessions].Mutex(dir).Lock(ctx)
			switch {
			case err == nil:
				granted <- got{h, i % sessions}
			case !errors.Is(err, context.Canceled):
				t.Error(err)
			}
		})
	}
	// Everybody has settled: watches the one before, and the own znode, and knows who holds.
	tap.Await(t, 2*siteBound, "all to wait", func(tap *ensemble.Tap) bool { return tap.Count(ensemble.OpGetData) == waiters })
	herdQuiet(t, clients, dir)
	t.Logf("%d waiters in line after %v", waiters, time.Since(began).Round(time.Millisecond))
	require.Len(t, siteQueue(t, outsider, dir), waiters+1)

	// Only the one behind the next one looks; and it reads who holds now, if that one holds for long.
	release := func(h *zklock.Hold) got {
		t.Helper()
		tap.Reset()
		siteUnlock(t, h)
		var next got
		select {
		case next = <-granted:
		case <-siteContext(t).Done():
			t.Fatal("nobody was woken")
		}
		herdQuiet(t, clients, dir)
		require.Empty(t, granted, "one release, one new holder")
		require.Equal(t, 1, tap.Count(ensemble.OpGetChildren2, ensemble.OpGetChildren), "requests: %v", tap.Requests())
		require.Zero(t, tap.Count(ensemble.OpExists), "requests: %v", tap.Requests())
		return next
	}

	// The holder outside releases, then the waiter that has become the holder, and so on. Such a one's own session
	// watches its znode too, and hears of the deletion that it asked for. A session has one watch for all of its own.
	next := got{holder, -1}
	var order, heard []int
	for range 12 {
		before := next
		next = release(before.hold)
		order, heard = append(order, before.client), append(heard, tap.Notifications())
		for _, f := range tap.Frames() {
			if f.Xid == -1 {
				require.Equal(t, before.hold.Node(), f.Path)
			}
		}
	}
	for i := range 10 { // who they were is known by now
		told := map[int]bool{order[i]: true, order[i+1]: true, order[i+2]: true}
		delete(told, -1) // outside
		require.Equal(t, len(told), heard[i], "release %d", i)
	}

	// All others give up at once, while each one's watch is on a znode that goes as well.
	cancel()
	calls.Wait()
	siteUnlock(t, next.hold)
	siteAwaitQueue(t, outsider, dir, 0)
}

// herdQuiet returns when every session has been answered a request that was sent after the call began: so each has got all
// notifications of what happened before.
func herdQuiet(t *testing.T, clients []*zklock.Client, dir string) {
	t.Helper()
	ctx := siteContext(t)
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
