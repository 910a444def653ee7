package zklock_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/internal/session"
	"github.com/zklock/locker/internal/unsealed"
	"github.com/zklock/locker/tests/locktest"
	"github.com/zklock/locker/zklock"
	"github.com/zklock/locker/zktest"
	"github.com/zklock/locker/zktest/fault"
)

// crashLoop is a new release: it starts, campaigns, crashes a second later, and is started again.
// Each crash leaves a znode in line, until its session runs out.
type crashLoop struct {
	srv    *zktest.Server
	rank   int
	period time.Duration // from one start to the next

	processes sync.WaitGroup
}

func (l *crashLoop) run(ctx context.Context) {
	for ctx.Err() == nil {
		l.processes.Go(func() { l.process(ctx) })
		select {
		case <-time.After(l.period):
		case <-ctx.Done():
		}
	}
}

// process is one start of the release.
func (l *crashLoop) process(ctx context.Context) {
	network := &locktest.MortalNetwork{Server: l.srv}
	c, err := zklock.Dial(ctx, l.srv.Addr(), zklock.WithDialer(network.Dial), zklock.WithoutLog())
	if err != nil {
		return // ctx has ended
	}
	life, end := context.WithTimeout(ctx, time.Second)
	defer end()
	crashed, crash := context.WithCancel(context.WithoutCancel(ctx))
	defer crash()
	var campaign sync.WaitGroup
	campaign.Go(func() {
		_, h, err := c.Election("/e").WithRank(l.rank).Campaign(crashed, []byte("new"))
		if err == nil {
			<-h.Context().Done()
		}
	})
	<-life.Done()
	network.Cut() // first, so that the campaign leaves its znode behind
	crash()
	_ = c.Close() // there is no connection
	campaign.Wait()
}

// Scenario 90: while a leader of the old release leads, a new release of higher rank crashes again
// and again. When the leader resigns, a healthy candidate of the old release leads within a session
// timeout and two ticks, in which the znodes before it go, and as much again for those for which it
// has stepped aside. Without ranks only the first of the two counts.
func TestScenario90_ACrashLoopOfAHigherRankCostsATimeoutAndNotTheLeadership(t *testing.T) {
	const gone = 10*time.Second + 2*2*time.Second // a session timeout and two ticks
	for rank, bound := range []time.Duration{gone, 2 * gone} {
		for seconds := 1; seconds <= 12; seconds++ {
			period := time.Duration(seconds) * time.Second
			t.Run(fmt.Sprintf("rank %d, every %v", rank, period), func(t *testing.T) {
				locktest.Bubble(t, func(t *testing.T, srv *zktest.Server) {
					ctx, stop := context.WithCancel(t.Context())
					loop := &crashLoop{srv: srv, rank: rank, period: period}
					leader := locktest.Take(t,
						locktest.Campaign(locktest.Dial(t, srv).Election("/e"), "old leader"))
					var all sync.WaitGroup
					all.Go(func() { loop.run(ctx) })
					time.Sleep(20 * time.Second)

					healthy := locktest.AcquireAside(t,
						locktest.Campaign(locktest.Dial(t, srv).Election("/e"), "healthy"))
					time.Sleep(time.Second)
					resigned := time.Now()
					locktest.Unlock(t, leader)
					next := healthy.Result(t)
					took := time.Since(resigned)
					stop()
					all.Wait()
					loop.processes.Wait()
					locktest.Unlock(t, next)
					require.LessOrEqual(t, took, bound)
				})
			})
		}
	}
}

// Scenario 90: candidates of higher rank come and go. Whenever a candidate of the lowest rank has
// entered, or has stepped aside, another of them enters behind it, and the one before it gives up.
// So at each of its turns one of higher rank is in line. It steps aside for the first, and leads
// at its next turn.
func TestScenario90_CandidatesThatComeAndGoKeepNobodyFromLeading(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T, srv *zktest.Server) {
		leader := locktest.Take(t,
			locktest.Campaign(locktest.Dial(t, srv).Election("/e"), "leader"))
		healthy := locktest.AcquireAside(t,
			locktest.Campaign(locktest.Dial(t, srv).Election("/e"), "healthy"))
		pollers, err := unsealed.Session(t.Context(), locktest.Dial(t, srv))
		require.NoError(t, err)
		enter := func() (node string) {
			made, err := pollers.Create(t.Context(),
				"/e/_c_0123456789abcdef0123456789abcdef-rank-1-lock-", nil,
				session.EphemeralSequential, session.WorldACL())
			require.NoError(t, err)
			return made.Path
		}

		synctest.Wait()
		poller := enter()
		locktest.Unlock(t, leader)
		steps := 0
		for synctest.Wait(); !healthy.Over(); synctest.Wait() { // it has stepped aside
			steps++
			require.LessOrEqual(t, steps, 1)
			next := enter()
			require.NoError(t, pollers.Delete(t.Context(), poller, -1))
			poller = next
		}
		require.Equal(t, 1, steps)
		locktest.Unlock(t, healthy.Result(t))
	})
}

// A candidate of a higher rank leads next, however many of lower ranks came before it. Each of them
// costs two round trips, in which it lists and leaves.
func TestScenario90_TwoHundredCandidatesStepAside(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T, srv *zktest.Server) {
		const (
			others = 200
			trip   = time.Millisecond
		)
		election := func() *zklock.Election { return locktest.Dial(t, srv).Election("/e") }
		leader := locktest.Take(t, locktest.Campaign(election(), "leader"))
		var waiting []*locktest.Aside
		for range others {
			waiting = append(waiting,
				locktest.AcquireAside(t, locktest.Campaign(election(), "old")))
			synctest.Wait() // they arrive in this order
		}
		ranked := locktest.AcquireAside(t, locktest.Campaign(election().WithRank(1), "new"))
		synctest.Wait()
		slow := srv.Inject(fault.Delay(trip))
		resigned := time.Now()
		locktest.Unlock(t, leader)
		next := ranked.Result(t)
		took := time.Since(resigned)
		slow.Remove()
		require.LessOrEqual(t, took, (2*others+3)*trip)
		locktest.Unlock(t, next)
		for _, w := range waiting {
			locktest.Unlock(t, w.Result(t))
		}
	})
}
