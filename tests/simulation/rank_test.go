package simulation_test

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/session"
	"github.com/zklock/locker/tests/locktest"
	"github.com/zklock/locker/zklock"
	"github.com/zklock/locker/zktest"
)

// Scenario 90: processes of higher ranks crash and start again, campaign for a moment and give up,
// or lead for a moment, all at random. A healthy candidate of rank 0 leads within a bound: what the
// order of arrival allows, and as much again, which is what the ranks cost. The order of arrival
// allows a session timeout and two ticks for those in line that have crashed, and for each process
// that crashes as it leads as much, and the time for which it has led. The bound begins again with
// each sign that somebody has led.
func TestAHealthyCandidateLeadsWithinABoundWhateverHigherRanksDo(t *testing.T) {
	forSeeds(t, 60/raceFactor, func(t *testing.T, seed uint64) { newRankWorld(t, seed).run(t) })
}

// forSeeds calls run in a bubble of its own for each seed below n, until it fails.
func forSeeds(t *testing.T, n uint64, run func(t *testing.T, seed uint64)) {
	for seed := range n {
		synctest.Test(t, func(t *testing.T) { run(t, seed) })
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

// rankWorld is one random election.
type rankWorld struct {
	srv     *zktest.Server
	seed    uint64
	timeout time.Duration
	loops   int // processes that start again and again

	all sync.WaitGroup // the processes
}

const (
	rankPath = "/elections/e"
	rankTick = 2 * time.Second // zktest's

	// longestLife bounds the time after which a process crashes: half as long after it has come to
	// lead.
	longestLife = 12 * time.Second
)

func newRankWorld(t *testing.T, seed uint64) *rankWorld {
	r := &rankWorld{srv: zktest.Run(t, zktest.WithoutListener()), seed: seed}
	d := r.dice(0)
	r.timeout = []time.Duration{4, 6, 10}[d.IntN(3)] * time.Second
	r.loops = 1 + d.IntN(3)
	return r
}

// dice is the random generator of one process.
type dice struct{ *rand.Rand }

func (r *rankWorld) dice(stream int) dice { return newDice(r.seed, stream) }

func newDice(seed uint64, stream int) dice {
	return dice{rand.New(rand.NewPCG(seed, uint64(stream)))}
}

func (d dice) between(lo, hi time.Duration) time.Duration {
	return lo + time.Duration(d.Int64N(int64(hi-lo)))
}

func (r *rankWorld) run(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	defer r.all.Wait()
	defer stop()
	for i := range r.loops {
		r.all.Go(func() { r.loop(ctx, r.dice(10+i)) })
	}
	d := r.dice(1)
	for i := range d.IntN(3) {
		r.all.Go(func() { r.poll(ctx, r.dice(20+i)) })
	}
	time.Sleep(d.between(0, 20*time.Second))

	healthy, err := r.dial(ctx, r.srv.Dial)
	require.NoError(t, err)
	defer func() { _ = healthy.Close() }()
	for range 3 {
		r.requireLeadsInTime(ctx, t, healthy)
		time.Sleep(d.between(0, r.timeout/2))
	}
}

// requireLeadsInTime campaigns with rank 0, and checks the bound.
func (r *rankWorld) requireLeadsInTime(ctx context.Context, t *testing.T, healthy *zklock.Client) {
	ctx, giveUp := context.WithCancel(ctx)
	defer giveUp()
	began := time.Now()
	led := make(chan *zklock.Hold, 1)
	r.all.Go(func() {
		_, h, err := healthy.Election(rankPath).Campaign(ctx, []byte("healthy"))
		if err != nil && ctx.Err() == nil {
			t.Error(err)
		}
		led <- h
	})
	crash := r.timeout + 2*rankTick
	byArrival := crash + time.Duration(r.loops)*(longestLife/2+crash)
	bound := 2 * byArrival
	sign := r.sign()
	// The others may lead by turns for as long as they like. That breaks no bound: then give up.
	enough := time.Now().Add(3 * bound)
	for time.Now().Before(enough) {
		select {
		case h := <-led:
			if h != nil {
				require.NoError(t, h.Unlock())
			}
			return
		case <-time.After(100 * time.Millisecond):
		}
		if now := r.sign(); now != sign {
			sign, began = now, time.Now()
		}
		require.Less(t, time.Since(began), bound, "%d processes, session timeout %v", r.loops,
			r.timeout)
	}
	giveUp()
	if h := <-led; h != nil { // at the last moment
		require.NoError(t, h.Unlock())
	}
}

// sign is the latest sign that somebody has led.
func (r *rankWorld) sign() int64 {
	n, _ := r.srv.Node(rankPath)
	return n.Stat.Mzxid
}

// loop starts a process again and again, a while after it has crashed.
func (r *rankWorld) loop(ctx context.Context, d dice) {
	rank := 1 + d.IntN(3)
	life := d.between(100*time.Millisecond, longestLife)
	pause := d.between(0, 5*time.Second)
	for ctx.Err() == nil {
		r.process(ctx, rank, life, d.IntN(2) == 0)
		sleepFor(ctx, pause)
	}
}

// process campaigns, and crashes after its life, or half as long after it has come to lead: its
// connection ends without a word, and its session runs out. A patient one crashes only when it
// leads.
func (r *rankWorld) process(ctx context.Context, rank int, life time.Duration, patient bool) {
	network := &locktest.MortalNetwork{Server: r.srv}
	c, err := r.dial(ctx, network.Dial)
	if err != nil {
		return // ctx has ended
	}
	crashed, crash := context.WithCancel(ctx)
	defer crash()
	var campaign sync.WaitGroup
	campaign.Go(func() {
		_, _, err := c.Election(rankPath).WithRank(rank).Campaign(crashed, nil)
		if err == nil {
			sleepFor(crashed, life/2)
			crash()
		}
	})
	if patient {
		<-crashed.Done()
	} else {
		sleepFor(crashed, life)
	}
	network.Cut()
	crash()
	campaign.Wait()
	_ = c.Close() // there is no connection
}

// poll campaigns again and again for a moment, and gives up.
func (r *rankWorld) poll(ctx context.Context, d dice) {
	c, err := r.dial(ctx, r.srv.Dial)
	if err != nil {
		return // ctx has ended
	}
	for ctx.Err() == nil {
		brief := zklock.WithMaxWait(d.between(time.Millisecond, 20*time.Millisecond))
		_, h, err := c.Election(rankPath, brief).WithRank(5).Campaign(ctx, nil)
		if err == nil {
			_ = h.Unlock() // ctx may have ended
		}
		sleepFor(ctx, d.between(0, 100*time.Millisecond))
	}
	_ = c.Close() // ctx has ended
}

// dial returns a client over that network.
func (r *rankWorld) dial(ctx context.Context, network session.Dialer) (*zklock.Client, error) {
	return zklock.Dial(ctx, r.srv.Addr(), zklock.WithDialer(network),
		zklock.WithSessionTimeout(r.timeout), zklock.WithoutLog())
}

func sleepFor(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}
