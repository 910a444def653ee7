package session_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/internal/session"
)

// Restoring many watches after a reconnection does not keep the session's mutex, which every reply and every heartbeat needs. A
// machine that stands still may delay one trial, not all of them.
func TestRestoringManyWatchesKeepsNoCallerFromTheSession(t *testing.T) {
	const watches, trials = 100_000, 10
	paths := make([]string, watches)
	for i := range paths {
		paths[i] = fmt.Sprint("/contender-", i)
	}
	r := session.NewRig()
	defer r.Stop()
	got := make(chan error, 1)
	go func() { _, err := r.WatchAll(context.Background(), paths...); got <- err }()
	answered(t, r, got)
	for trial := 1; ; trial++ {
		r.Break(errors.New("the connection broke"))
		began, restored := time.Now(), make(chan struct{})
		go func() { r.Reconnect(); close(restored) }()
		longest := time.Duration(0)
		for done := false; !done; {
			asked := time.Now()
			r.ID() // which needs the mutex
			longest = max(longest, time.Since(asked))
			select {
			case <-restored:
				done = true
			default:
			}
		}
		took := time.Since(began)
		queued, _ := r.QueuedCalls()
		require.Greater(t, queued, watches*len(paths[0])/(128<<10), "all are asked for, by some requests")
		require.NoError(t, r.Answer(0, nil))
		require.Equal(t, watches, r.WatchedPaths())
		if longest < took/4 {
			return
		}
		require.Less(t, trial, trials, "the mutex was held for %v of %v, in every trial", longest, took)
	}
}

// Watches that are requested while others are being restored are requested once, and none is forgotten.
func TestWatchesThatComeDuringARestorationAreAskedForOnce(t *testing.T) {
	r := session.NewRig()
	defer r.Stop()
	old := make([]string, 20_000)
	for i := range old {
		old[i] = fmt.Sprint("/old-", i)
	}
	got := make(chan error, 1)
	go func() { _, err := r.WatchAll(context.Background(), old...); got <- err }()
	answered(t, r, got)
	r.Break(errors.New("the connection broke"))

	const late = 200
	all := make(chan error, late)
	began := make(chan struct{})
	go func() {
		close(began)
		for i := range late {
			go func() { _, err := r.WatchAll(context.Background(), fmt.Sprint("/new-", i)); all <- err }()
		}
	}()
	<-began
	r.Reconnect()
	for range late {
		answered(t, r, all)
	}
	require.Equal(t, len(old)+late, r.WatchedPaths())
	queued, pending := r.QueuedCalls()
	require.Zero(t, queued+pending)
}

// answered answers every request until a call has returned, and requires that it succeeded.
func answered(t *testing.T, r *session.Rig, got <-chan error) {
	t.Helper()
	for ctx := within(t, soon); ; {
		require.NoError(t, r.Answer(0, nil))
		select {
		case err := <-got:
			require.NoError(t, err)
			return
		case <-ctx.Done():
			require.FailNow(t, "a call does not return")
		case <-time.After(time.Millisecond): // more may have been queued since
		}
	}
}
