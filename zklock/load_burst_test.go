package zklock_test

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/internal/ensemble"
	"github.com/zklock/locker/session"
	"github.com/zklock/locker/zklock"
)

// A thousand callers that ask at once wait for each other's answers as well as their own. As long as answers keep
// coming the server is well: a connection given up for that would have everything asked again, of a server that is
// busy already, and again.
func TestABurstOfRequestsIsNoReasonToGiveAConnectionUpThatAnswers(t *testing.T) {
	const callers, rounds, names = 1000, 4, 400
	s := siteOf(t, 3)
	dir := s.Path(t)
	timeout := s.ShortTimeout()
	patience := timeout / 4 // after so long without an answer, a connection is given up

	ctx := siteLongContext(t)
	witness, err := s.Client(t).Session(ctx)
	require.NoError(t, err)
	require.NoError(t, witness.CreateAll(ctx, dir, nil, session.Persistent, siteWorld))
	for i := range names {
		err := session.ErrUnknownOutcome
		for errors.Is(err, session.ErrUnknownOutcome) { // a machine that stands still is not what this is about
			_, err = witness.Create(ctx, fmt.Sprintf("%s/%064d", dir, i), nil, session.Ephemeral, siteWorld)
		}
		if !errors.Is(err, zk.ErrNodeExists) {
			require.NoError(t, err)
		}
	}

	const attempts = 10
	for range attempts {
		var broken atomic.Int64
		var cause, failed atomic.Value
		c, p := s.Tapped(t, zklock.WithSessionTimeout(timeout), zklock.WithHooks(zklock.Hooks{Session: func(i zklock.SessionInfo) {
			if i.State == session.Disconnected {
				broken.Add(1)
				cause.Store(fmt.Sprint(i.Err))
			}
		}}))
		ses, err := c.Session(ctx)
		require.NoError(t, err)
		var all sync.WaitGroup
		began := time.Now()
		for range callers {
			all.Go(func() {
				for range rounds {
					if _, _, err := ses.List(ctx, dir); err != nil {
						failed.Store(err.Error())
						return
					}
				}
			})
		}
		all.Wait()
		took, gap, breaks := time.Since(began), loadGap(p.Tap()), broken.Load()
		siteClose(t, c)
		t.Logf("%d answers in %v, at most %v without one; connection lost %d times", callers*rounds, siteMillis(took), siteMillis(gap), breaks)
		if gap < patience/2 && failed.Load() != nil { // else the machine stood still for so long that a lease may be over
			t.Fatal(failed.Load())
		}
		if breaks == 0 && failed.Load() == nil && took > patience {
			return
		}
		require.True(t, breaks == 0 || gap >= patience/2, "the server went on answering, and was left %d times: %v", breaks, cause.Load())
		// Else the machine was too fast for the burst to last, or too slow for the answers to keep coming.
	}
	t.Fatalf("%d times the burst was over within %v or the server stood still for %v", attempts, patience, patience/2)
}

// loadGap is the longest time between two answers of one connection.
func loadGap(tap *ensemble.Tap) (gap time.Duration) {
	last := map[int]time.Time{}
	for _, f := range tap.Frames() {
		if f.Dir != ensemble.Replies {
			continue
		}
		if at, ok := last[f.Conn]; ok {
			gap = max(gap, f.At.Sub(at))
		}
		last[f.Conn] = f.At
	}
	return gap
}
