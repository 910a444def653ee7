//go:build unix

package zklock_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/internal/session"
	"github.com/zklock/locker/internal/unsealed"
	"github.com/zklock/locker/tests/ensemble"
	"github.com/zklock/locker/tests/locktest"
	"github.com/zklock/locker/zklock"
	"github.com/zklock/locker/zktest"
)

// The lock of a killed process becomes free when its session ends: within the session timeout,
// rounded up to a full tick; and a follower's reports to the leader are up to half a tick late.
// That leaves half of the second tick for everything else.
func TestKilledHoldersLockIsFreeWithinTheTimeoutAndTwoTicks(t *testing.T) {
	const trials = 6
	s := locktest.SiteBeside(t, 3)
	dir := s.Path(t)
	next := s.Client(t)
	timeout := s.ShortTimeout()
	stalls := locktest.Stalls(t)
	took := make([]time.Duration, trials)
	var all sync.WaitGroup
	for i := range trials {
		all.Go(func() {
			path := fmt.Sprint(dir, "/", i)
			child, err := crashStart(t, childHolds,
				childOrders{Connect: s.Connect(), Path: path, Timeout: timeout, Tick: s.Tick})
			if err == nil {
				locktest.Pass(rand.N(timeout)) // at a random phase of heartbeats and ticks
				took[i], err = crashKill(next, path, child)
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	require.False(t, t.Failed())
	slices.Sort(took)
	stalled := stalls()
	t.Logf("%d trials: %v to %v after the kill, at a timeout of %v and a tick of %v; this process was kept from running for up to %v",
		trials, locktest.Millis(took[0]), locktest.Millis(
			took[trials-1]), timeout, s.Tick, locktest.Millis(stalled))
	// A leader and a follower are involved, which a busy machine delays like this process.
	require.Less(t, took[trials-1], timeout+2*s.Tick+3*stalled)
}

// crashKill kills a holder and returns how long the next client in line waits from then on.
func crashKill(next *zklock.Client, path string, holder *crashChild) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(context.Background(), locktest.Bound)
	defer cancel()
	var hold *zklock.Hold
	var lockErr error
	var call sync.WaitGroup
	call.Go(func() { _, hold, lockErr = next.Mutex(path).Lock(ctx) })
	err := func() error {
		ses, err := unsealed.Session(ctx, next)
		if err != nil {
			return err
		}
		for names := []string(nil); len(names) < 2; {
			// until it is in line: a list takes a round trip, so this is no busy loop
			if names, _, err = ses.List(ctx, path); err != nil {
				return err
			}
		}
		return nil
	}()
	began := time.Now()
	if err = errors.Join(err, holder.cmd.Process.Kill()); err != nil {
		cancel()
	}
	call.Wait()
	took := time.Since(began)
	if err = errors.Join(err, lockErr); err != nil {
		return 0, err
	}
	if hold.Token() <= holder.Hello.Token {
		return 0, fmt.Errorf("token %d was followed by token %d", holder.Hello.Token, hold.Token())
	}
	return took, hold.Unlock()
}

// Scenario 90: a release of higher rank is killed (SIGKILL) a while after each start, and started
// again, while a candidate of the old release waits. When the old release's leader resigns, that
// candidate leads within the bound of TestAHealthyCandidateLeadsWithinABoundWhateverHigherRanksDo:
// twice what the order of arrival may take, with one process that crashes.
func TestScenario90_ProcessesOfAHigherRankAreKilledAgainAndAgain(t *testing.T) {
	s := locktest.SiteBeside(t, 3)
	timeout := s.ShortTimeout()
	// The last of them come to lead, and die soon after.
	for _, tenths := range []time.Duration{1, 3, 6, 9, 12} {
		life := tenths * timeout / 10
		t.Run(fmt.Sprintf("after %v", life), func(t *testing.T) {
			t.Parallel()
			healthyAfterKills(t, s, life)
		})
	}
}

// healthyAfterKills checks the bound for processes that are killed after that life.
func healthyAfterKills(t *testing.T, s *locktest.Site, life time.Duration) {
	path, timeout := s.Path(t), s.ShortTimeout()
	orders := childOrders{Connect: s.Connect(), Path: path, Rank: 1, Timeout: timeout, Tick: s.Tick}
	leader := locktest.Take(t, locktest.Campaign(s.Client(t).Election(path), "old leader"))

	ctx, stop := context.WithCancel(t.Context())
	crashes := make(chan error, 1000)
	var loop sync.WaitGroup
	loop.Go(func() {
		for ctx.Err() == nil {
			child, err := crashStart(t, childLeads, orders)
			if err == nil {
				locktest.Pass(life)
				err = child.cmd.Process.Kill()
			}
			crashes <- err
			if err != nil {
				return
			}
		}
	})
	require.NoError(t, <-crashes)
	healthy := locktest.AcquireAside(t, locktest.Campaign(s.Client(t).Election(path), "healthy"))
	require.NoError(t, <-crashes)
	stalls := locktest.Stalls(t)
	resigned := time.Now()
	locktest.Unlock(t, leader)
	next := healthy.Result(t)
	took, stalled := time.Since(resigned), stalls()
	stop()
	loop.Wait()
	more := len(crashes)
	close(crashes)
	for err := range crashes {
		require.NoError(t, err)
	}
	locktest.Unlock(t, next)
	t.Logf(
		"%d more crashes; the healthy candidate led after %v, at a timeout of %v and a tick of %v",
		more, locktest.Millis(took), timeout, s.Tick)
	gone := timeout + 2*s.Tick
	require.Less(t, took, 2*(gone+life+gone)+3*stalled)
}

// stopped is a holder that is stopped, and its lock's next holder.
type stopped struct {
	role  string
	child *crashChild
	data  string // a znode that a holder may write
	wait  *locktest.Aside
	hold  *zklock.Hold // the next holder's
	ours  int32        // version of data after the next holder's write
}

// requireLost lets the stopped holder report: its context has ended, and its write was refused.
func (p *stopped) requireLost(t *testing.T, ses *session.Session) {
	t.Helper()
	w, err := p.child.Listen()
	require.NoError(t, err)
	t.Logf(
		"%s: stopped for %v; context ended %d ticks of %v later: %s; write: %s; writes that succeeded: %d",
		p.role, locktest.Millis(w.Stopped), w.Ticks, childClock, w.Cause, w.Refused, w.Written)
	require.True(t, w.Lost, "cause %q, write %q", w.Cause, w.Refused)
	require.LessOrEqual(t, w.Ticks, 1)
	if p.role == childWrites {
		require.Positive(t, w.Written)
	}
	require.NoError(t, p.hold.Check(locktest.Soon(t)), "the other holder is not disturbed")
	require.NoError(t, ses.Sync(locktest.Soon(t), p.data))
	data, stat, err := ses.Get(locktest.Soon(t), p.data)
	require.NoError(t, err)
	require.Equal(t, fmt.Sprint(byNext), string(data), "what the new holder wrote")
	require.Equal(t, p.ours, stat.Version)
	locktest.Unlock(t, p.hold)
}

// Scenario 20: a holder process is stopped for twice its session timeout. When it goes on it finds
// its context ended, at the latest at the next tick of its clock, and its next guarded write is
// refused. Another client has held the lock meanwhile, and no late write of the first holder is in
// the znode that both write to.
func TestStoppedHolderFindsItsContextEndedAndItsWritesRefused(t *testing.T) {
	s := locktest.SiteBeside(t, 3)
	next := s.Client(t)
	ses, err := unsealed.Session(locktest.Soon(t), next)
	require.NoError(t, err)
	for trial := 1; !stopHolders(t, s, next, ses); trial++ {
		require.Less(t, trial, 5, "holders lose their locks before they are stopped")
	}
}

// stopHolders is one trial. It returns false if a holder lost its lock before it was stopped, as
// happens on a machine that stands still for longer than a lease.
func stopHolders(t *testing.T, s *locktest.Site, next *zklock.Client, ses *session.Session) bool {
	dir, timeout := s.Path(t), s.ShortTimeout()
	require.NoError(t,
		ses.CreateAll(locktest.Soon(t), dir, nil, session.Persistent, session.WorldACL()))

	parts := map[string]*stopped{}
	for _, role := range []string{childLooks, childWrites} {
		p := &stopped{role: role, data: dir + "/data-" + role}
		parts[role] = p
		_, err := ses.Create(locktest.Soon(t), p.data, nil, session.Persistent, session.WorldACL())
		require.NoError(t, err)
		path := dir + "/" + role
		p.child, err = crashStart(t, role,
			childOrders{Connect: s.Connect(), Path: path, Data: p.data, Timeout: timeout,
				Tick: s.Tick})
		require.NoError(t, err)
		p.wait = locktest.LockAside(t, next.Mutex(path))
		ensemble.Until(t, locktest.Bound, "a contender behind the holder of "+path, func() error {
			if n := len(locktest.Children(t, next, path)); n != 2 && !p.wait.Over() {
				return fmt.Errorf("there are %d contenders", n)
			}
			return nil
		})
	}
	ensemble.Until(t, locktest.Bound, "writes under the lock", func() error {
		_, stat, err := ses.Get(locktest.Soon(t), parts[childWrites].data)
		if err == nil && stat.Version < 20 && !parts[childWrites].wait.Over() {
			err = fmt.Errorf("so far %d", stat.Version)
		}
		return err
	})
	if parts[childLooks].wait.Over() || parts[childWrites].wait.Over() {
		return false
	}

	began := time.Now()
	for _, p := range parts {
		p.child.Signal(t, syscall.SIGSTOP)
	}
	for role, p := range parts {
		p.hold = p.wait.Result(t)
		t.Logf("%s: another holder after %v", role, locktest.Millis(time.Since(began)))
		require.Greater(t, p.hold.Token(), p.child.Hello.Token)
		_, err := childMulti(childOrders{Data: p.data}, p.hold, byNext)
		require.NoError(t, err)
		_, stat, err := ses.Get(locktest.Soon(t), p.data)
		require.NoError(t, err)
		p.ours = stat.Version
	}
	locktest.Pass(time.Until(began.Add(2 * timeout)))
	for _, p := range parts {
		p.child.Signal(t, syscall.SIGCONT)
	}

	for _, p := range parts {
		p.requireLost(t, ses)
	}
	return true
}

// Scenario 63: a process is stopped for longer than its session lasts, and another one has the lock
// when it goes on. Its worker, a loop on ctx.Err() or on ctx.Done() inside Do, begins no further
// item. (The stop may come between the check and the item, which no context can prevent; so a trial
// in which an item was begun is repeated.)
func TestScenario63_AWorkerThatWasStoppedHandlesNothingAfterWaking(t *testing.T) {
	const tick, timeout, workers, trials = 200 * time.Millisecond, time.Second, 4, 3
	for trial := 1; ; trial++ {
		srv := zktest.Run(t, zktest.WithTick(tick))
		var all [workers]*crashChild
		for i := range all {
			var err error
			all[i], err = crashStart(t, childLoops,
				childOrders{Connect: srv.Addr(), Path: fmt.Sprint("/locks/", i), Timeout: timeout,
					Tick: tick})
			require.NoError(t, err)
		}
		for _, child := range all {
			child.Signal(t, syscall.SIGSTOP)
		}
		ctx, cancel := context.WithTimeout(t.Context(), locktest.Bound)
		require.NoError(t, srv.Await(ctx, func() bool { return len(srv.Sessions()) == 0 }))
		cancel()
		locktest.Pass(timeout / 2)
		for _, child := range all {
			child.Signal(t, syscall.SIGCONT)
		}
		begun := 0
		for _, child := range all {
			w, err := child.Listen()
			require.NoError(t, err)
			require.True(t, w.Lost, "%+v", w)
			begun += w.Items
		}
		if begun == 0 {
			return
		}
		require.Less(t, trial, trials,
			"%d items were begun after the stop, and some in every trial", begun)
	}
}
