package zklock_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/tests/ensemble"
	"github.com/zklock/locker/tests/locktest"
	"github.com/zklock/locker/zklock"
)

// Scenarios 17 and 18: a holder that is cut off, or connected only to a server that has lost its
// leader, stops by its own clock: its context has ended when another client's Lock returns. In each
// trial one client holds a lock of which another client is next in line.

const trialsAtOnce = 20

// trial is one of them.
type trial struct {
	holder *zklock.Client
	hold   *zklock.Hold

	// set by the next client in line, when its Lock has returned
	alive bool
	got   time.Time
	err   error

	mu    sync.Mutex // guards what follows
	cut   time.Time  // when the fault began
	ended time.Time  // when the holder's context ended
}

// scene is a kind of fault.
type scene struct {
	site *locktest.Site
	// holder is the connect string of the holders, next that of the others.
	holder, next string
	fault        func() // affects all holders
}

// hold takes the lock of each trial, each with its own client.
func (sc scene) hold(ctx context.Context, t *testing.T, dir string, trials int) []*trial {
	t.Helper()
	s := sc.site
	all := make([]*trial, trials)
	var setUp sync.WaitGroup
	for i := range all {
		all[i] = &trial{}
		setUp.Go(func() {
			// The heartbeats of the sessions must not be in phase, so that the fault meets them at
			// all phases.
			locktest.Pass(rand.N(s.ShortTimeout() / 5))
			tr := all[i]
			var err error
			if tr.holder, err = s.Dial(t, sc.holder,
				zklock.WithSessionTimeout(s.ShortTimeout())); err == nil {
				_, tr.hold, err = tr.holder.Mutex(fmt.Sprint(dir, "/", i)).Lock(ctx)
			}
			if err != nil {
				t.Error(err)
				return
			}
			context.AfterFunc(tr.hold.Context(), func() {
				now := time.Now()
				tr.mu.Lock()
				tr.ended = now
				tr.mu.Unlock()
			})
		})
	}
	setUp.Wait()
	require.False(t, t.Failed())
	return all
}

// strike begins the fault, and records when for the clients that still hold.
func (sc scene) strike(all []*trial) {
	for _, tr := range all {
		tr.mu.Lock()
		if tr.hold.Err() == nil {
			tr.cut = time.Now()
		}
		tr.mu.Unlock()
	}
	sc.fault()
}

// run makes a number of trials at once, and returns those in which the fault met a holder: on a
// machine that stood still for longer than a lease, some may have lost their locks before.
func (sc scene) run(t *testing.T, trials int) []*trial {
	t.Helper()
	s := sc.site
	dir := s.Path(t)
	ctx, cancel := context.WithTimeout(context.Background(), locktest.Bound)
	defer cancel()
	others := []*zklock.Client{s.ClientAt(t, sc.next), s.ClientAt(t, sc.next)}
	all := sc.hold(ctx, t, dir, trials)

	var calls sync.WaitGroup
	for i, tr := range all {
		calls.Go(func() {
			var h *zklock.Hold
			_, h, tr.err = others[i%len(others)].Mutex(fmt.Sprint(dir, "/", i)).Lock(ctx)
			tr.alive = tr.hold.Context().Err() == nil // before anything else
			tr.got = time.Now()
			if tr.err == nil {
				tr.err = h.Unlock()
			}
		})
	}
	for i, tr := range all {
		path := fmt.Sprint(dir, "/", i)
		ensemble.Until(t, locktest.Bound, "a contender behind the holder of "+path, func() error {
			if n := len(locktest.Children(t, others[0], path)); n < 2 && tr.hold.Err() == nil {
				return fmt.Errorf("there are %d contenders", n)
			}
			return nil
		})
	}

	sc.strike(all)
	calls.Wait()
	var holders []*zklock.Client
	for _, tr := range all {
		holders = append(holders, tr.holder)
	}
	locktest.Close(t, holders...)

	var met []*trial
	for _, tr := range all {
		require.NoError(t, tr.err)
		if !tr.cut.IsZero() {
			met = append(met, tr)
		}
	}
	return met
}

// play runs trials, in at least the given number of rounds, until enough have met their fault, and
// checks them.
func play(t *testing.T, rounds int, scene func() scene) {
	t.Helper()
	var margins, after []time.Duration
	for round := 0; len(margins) < trialsAtOnce; round++ {
		require.Less(t, round, rounds+10,
			"holders lose their locks before anything is done to them")
		sc := scene()
		for _, tr := range sc.run(t, min(trialsAtOnce/rounds, trialsAtOnce-len(margins))) {
			require.False(t, tr.alive,
				"another client's Lock returned while the holder's context had not ended")
			require.ErrorIs(t, tr.hold.Err(), zklock.ErrLost)
			require.ErrorIs(t, tr.hold.Err(), zklock.ErrLeaseExpired)
			tr.mu.Lock()
			margins, after = append(margins, tr.got.Sub(tr.ended)), append(after,
				tr.ended.Sub(tr.cut))
			tr.mu.Unlock()
		}
		sc.site.Mend(t)
	}
	slices.Sort(margins)
	slices.Sort(after)
	n := len(margins)
	t.Logf("%d trials: the holder stopped %v to %v after the fault (median %v), and %v to %v (median %v) before the next Lock returned",
		n, locktest.Millis(after[0]), locktest.Millis(after[n-1]), locktest.Millis(after[n/2]),
		locktest.Millis(margins[0]), locktest.Millis(margins[n-1]), locktest.Millis(margins[n/2]))
}

// rounds is how often a fault that affects all holders at once is repeated, because its moment
// within the servers' ticks is the same for all of them.
func rounds() int {
	if locktest.Long() {
		return trialsAtOnce
	}
	return 2
}

// The holders' server still answers reads and pings for some ticks after it has lost its leader.
func TestHolderStopsBeforeTheNextBeginsWhenItsFollowerIsCutOff(t *testing.T) {
	s := locktest.SiteBeside(t, 3)
	s.Control(t)
	play(t, rounds(), func() scene {
		node := (s.Leader(t) + 1) % 3
		return scene{site: s, holder: s.Addrs[node], next: s.Others(node),
			fault: func() { s.Isolate(node) }}
	})
}

// The holders know only the leader, so that they cannot connect to another server.
func TestHolderStopsBeforeTheNextBeginsWhenItsLeaderIsKilled(t *testing.T) {
	s := locktest.SiteBeside(t, 3)
	s.Control(t)
	play(t, rounds(), func() scene {
		node := s.Leader(t)
		return scene{site: s, holder: s.Addrs[node], next: s.Others(node),
			fault: func() { s.Kill(t, node) }}
	})
}
