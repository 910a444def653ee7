package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/zklock/locker/tests/e2e/history"
	"github.com/zklock/locker/tests/ensemble"
)

// fault is one way to break something, and to mend it after a while.
type fault struct {
	name string
	// run breaks something, waits, and mends it; it returns early when ctx ends. It calls what to
	// say what it broke.
	run func(ctx context.Context, rng *rand.Rand, what func(format string, args ...any)) error
}

// between returns a duration from a to b.
func between(rng *rand.Rand, a, b time.Duration) time.Duration {
	return a + time.Duration(rng.Int64N(int64(b-a)))
}

// rest waits for d or until ctx ends.
func rest(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// pick returns the index of the leader, or of a follower; where there is no leader just now, of
// any.
func (r *Run) pick(rng *rand.Rand, leader bool) int {
	n := len(r.conf.Ensemble.Addrs)
	l := r.conf.Ensemble.Leader()
	switch {
	case l < 0:
		return rng.IntN(n)
	case leader || n == 1:
		return l
	}
	return (l + 1 + rng.IntN(n-1)) % n
}

// serverFaults are the faults that these servers allow, and the names of those they don't.
func (r *Run) serverFaults() (can []fault, cannot []string) {
	c := r.conf.Ensemble.Control
	add := func(name string, has bool,
		run func(context.Context, *rand.Rand, func(string, ...any)) error) {
		if has {
			can = append(can, fault{name, run})
		} else {
			cannot = append(cannot, name)
		}
	}
	for _, role := range []string{"leader", "follower"} {
		lead := role == "leader"
		add(role+" kill", c.Kill != nil,
			func(ctx context.Context, rng *rand.Rand, what func(string, ...any)) error {
				return r.span(ctx, rng, lead,
					between(rng, 200*time.Millisecond, 2500*time.Millisecond),
					what, c.Kill, c.Start)
			})
		add(role+" pause", c.Pause != nil,
			func(ctx context.Context, rng *rand.Rand, what func(string, ...any)) error {
				return r.span(ctx, rng, lead, between(rng, 500*time.Millisecond, 4*time.Second),
					what,
					c.Pause, c.Resume)
			})
		for _, p := range []struct {
			name string
			cut  func(int) error
		}{{"partition", c.Isolate}, {"partition (not heard)", c.Mute}, {"partition (does not hear)",
			c.Deafen}} {
			add(role+" "+p.name, p.cut != nil,
				func(ctx context.Context, rng *rand.Rand, what func(string, ...any)) error {
					return r.span(ctx, rng, lead, between(rng, 500*time.Millisecond, 4*time.Second),
						what, p.cut, func(int) error { return c.Heal() })
				})
		}
		add(role+" slow link or disk", c.Slow != nil,
			func(ctx context.Context, rng *rand.Rand, what func(string, ...any)) error {
				d := between(rng, 20*time.Millisecond, 200*time.Millisecond)
				slow := func(i int) error { return c.Slow(i, d) }
				return r.span(ctx, rng, lead, between(rng, time.Second, 4*time.Second), what, slow,
					func(i int) error { return c.Slow(i, 0) })
			})
	}
	// A leader that is stopped for about a session timeout: the case that the lease can't tell from
	// a live leader.
	add("leader pause of a timeout", c.Pause != nil,
		func(ctx context.Context, rng *rand.Rand, what func(string, ...any)) error {
			all := timeouts(r.conf.Ensemble.Tick)
			t := all[rng.IntN(len(all))]
			return r.span(ctx, rng, true, between(rng, t*9/10, t*11/10), what, c.Pause, c.Resume)
		})
	add("rolling restart", c.Kill != nil,
		func(ctx context.Context, rng *rand.Rand, what func(string, ...any)) error {
			what("all servers, one after the other")
			for i, n := range r.conf.Ensemble.Nodes {
				if err := c.Kill(i); err != nil {
					return err
				}
				if err := c.Start(i); err != nil {
					return err
				}
				for until := time.Now().Add(30 * time.Second); n.Mode() == "" && ctx.Err() == nil &&
					time.Now().Before(until); {
					rest(ctx, 50*time.Millisecond)
				}
			}
			return nil
		})
	return can, cannot
}

// span breaks one server for some time.
func (r *Run) span(
	ctx context.Context, rng *rand.Rand, leader bool, d time.Duration, what func(string, ...any),
	wreck, mend func(int) error,
) error {
	i := r.pick(rng, leader)
	what("server %d for %v", i+1, d.Round(time.Millisecond))
	if err := wreck(i); err != nil {
		return err
	}
	rest(ctx, d)
	return mend(i)
}

// clientFaults are the faults of one client: of its network, and of its process.
func (r *Run) clientFaults() []fault {
	var all []fault
	network := func(name string, atMost func(t time.Duration) time.Duration,
		wreck func(*ensemble.Proxy, *rand.Rand)) {
		all = append(all,
			fault{name, func(ctx context.Context, rng *rand.Rand, what func(string, ...any)) error {
				p := r.peers[rng.IntN(len(r.peers))]
				d := between(rng, 300*time.Millisecond, atMost(p.conf.Timeout))
				what("client %d for %v", p.conf.Client, d.Round(time.Millisecond))
				for _, x := range p.proxies {
					wreck(x, rng)
				}
				rest(ctx, d)
				p.mend(rng.IntN(2) == 0) // false: the bytes that were held back arrive now, late
				return nil
			}})
	}
	long := func(t time.Duration) time.Duration { return 2 * t }
	network("client partition", long, func(p *ensemble.Proxy, _ *rand.Rand) { p.Freeze() })
	network("client partition (not heard)", long, func(p *ensemble.Proxy, _ *rand.Rand) {
		p.HoldRequests()
	})
	network("client partition (does not hear)", long, func(p *ensemble.Proxy, _ *rand.Rand) {
		p.HoldReplies()
	})
	network("client's replies lost", long, func(p *ensemble.Proxy, _ *rand.Rand) {
		p.DropReplies()
	})
	network("client's connections cut", func(time.Duration) time.Duration { return time.Second },
		func(p *ensemble.Proxy, _ *rand.Rand) { p.Cut() })
	network("client's link slow", long, func(p *ensemble.Proxy, rng *rand.Rand) {
		p.Delay(between(rng, 0, 150*time.Millisecond), between(rng, 0, 150*time.Millisecond))
	})
	for range 2 { // twice in the deck: no lock can prevent this fault, only tokens help
		all = append(all, fault{"client process stopped", r.stopClient})
	}
	return all
}

// stopClient stops a client's process for twice its session timeout.
func (r *Run) stopClient(ctx context.Context, rng *rand.Rand, what func(string, ...any)) error {
	var can []*peer
	for _, p := range r.peers {
		if p.process != nil {
			can = append(can, p)
		}
	}
	p := can[rng.IntN(len(can))]
	d := 2 * p.conf.Timeout
	what("client %d for %v", p.conf.Client, d)
	stop := history.Stop{Client: p.conf.Client, From: history.Now()}
	if err := p.process.suspend(); err != nil {
		return err
	}
	rest(ctx, d)
	err := p.process.resume()
	stop.To = history.Now()
	r.mu.Lock()
	r.stops = append(r.stops, stop)
	r.mu.Unlock()
	return err
}

// deck deals faults at random, each once before any comes again.
type deck struct {
	all, left []fault
	rng       *rand.Rand
}

func (d *deck) next() fault {
	if len(d.left) == 0 {
		d.left = append(d.left, d.all...)
		d.rng.Shuffle(len(d.left), func(i, j int) { d.left[i], d.left[j] = d.left[j], d.left[i] })
	}
	f := d.left[0]
	d.left = d.left[1:]
	return f
}

// wreck deals faults until ctx ends: one every 3 to 5 s, but not before the previous one is over
// and ready returns.
func (r *Run) wreck(ctx context.Context, d *deck, ready func(context.Context)) error {
	if len(d.all) == 0 {
		return nil
	}
	rest(ctx, between(d.rng, 500*time.Millisecond, 2*time.Second))
	for ctx.Err() == nil {
		f := d.next()
		next := time.Now().Add(between(d.rng, 3*time.Second, 5*time.Second))
		err := f.run(ctx, d.rng, func(format string, args ...any) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.faults++
			r.say("  %6.2fs  %s: %s", time.Since(r.roundBegan).Seconds(), f.name,
				fmt.Sprintf(format, args...))
		})
		if err != nil {
			return fmt.Errorf("%s: %w", f.name, err)
		}
		rest(ctx, time.Until(next))
		ready(ctx)
	}
	return nil
}

// whole waits until all servers serve, for half a minute at most, so that no server is broken while
// another one catches up: witness.go says what ZooKeeper does then.
func (r *Run) whole(ctx context.Context) {
	for until := time.Now().Add(30 * time.Second); ctx.Err() == nil &&
		time.Now().Before(until); rest(ctx, 50*time.Millisecond) {
		serving := 0
		for _, n := range r.conf.Ensemble.Nodes {
			if n.Mode() != "" {
				serving++
			}
		}
		if serving == len(r.conf.Ensemble.Nodes) {
			return
		}
	}
}
