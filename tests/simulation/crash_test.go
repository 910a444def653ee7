package simulation_test

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	zksession "github.com/zklock/locker/internal/session"
	"github.com/zklock/locker/internal/unsealed"
	"github.com/zklock/locker/tests/locktest"
	"github.com/zklock/locker/zklock"
	"github.com/zklock/locker/zktest"
)

// Scenario 84: processes crash at random, while they take a lock, wait for it, hold it or release
// it. What they have sent still arrives. Each starts again, and closes the sessions that the
// crashed one had, as a Client with a session file does, and the guard of zklock run. No two hold
// at once, and nobody waits for the end of a crashed process's session.
func TestScenario84_ProcessesThatCrashAndComeBack(t *testing.T) {
	forSeeds(t, 40/raceFactor, func(t *testing.T, seed uint64) { newCrashWorld(t, seed).run(t) })
}

const (
	crashLock = "/locks/crash"

	// crashTimeout is so long that no session runs out while the test waits for a lock.
	crashTimeout = 10 * time.Minute

	// longestTurn bounds the time from a request to the lock, with all crashers in line: for each,
	// a hold, a pause after a crash, and the close of its session, which has to wait for what the
	// crashed process had sent.
	longestTurn = (crashers + 1) * (longestWork + longestPause + 15*time.Second)

	crashers     = 3
	longestWork  = 2 * time.Second
	longestPause = 2 * time.Second
)

// crashWorld is one random run.
type crashWorld struct {
	srv    *zktest.Server
	seed   uint64
	inside locktest.Exclusion
	dials  atomic.Uint64
	all    sync.WaitGroup // the processes
}

func newCrashWorld(t *testing.T, seed uint64) *crashWorld {
	srv := zktest.Run(t, zktest.WithoutListener(),
		zktest.WithSessionTimeouts(time.Second, crashTimeout))
	return &crashWorld{srv: srv, seed: seed}
}

func (w *crashWorld) dice(stream int) dice { return newDice(w.seed, stream) }

func (w *crashWorld) run(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	for i := range crashers {
		w.all.Go(func() { w.crashAgainAndAgain(ctx, t, w.dice(i)) })
	}
	w.requireTurns(ctx, t)
	stop()
	w.all.Wait()
	require.NoError(t, w.inside.Err())
	time.Sleep(13 * time.Second) // until the last messages have arrived
}

// requireTurns has a process that does not crash take the lock some times.
func (w *crashWorld) requireTurns(ctx context.Context, t *testing.T) {
	d := w.dice(crashers)
	p := w.newProcess(nil)
	c, err := p.dial(ctx)
	require.NoError(t, err)
	defer func() { _ = c.Close() }() // whether the server has answered is no matter
	for range 10 {
		bounded, done := context.WithTimeout(ctx, longestTurn)
		p.turn(bounded, c, d.between(0, longestWork))
		require.NoError(t, bounded.Err(), "waits for a process that has crashed")
		done()
		sleepFor(ctx, d.between(0, time.Second))
	}
}

// crashAgainAndAgain starts a process, lets it crash, and starts the next one.
func (w *crashWorld) crashAgainAndAgain(ctx context.Context, t *testing.T, d dice) {
	var left []zksession.Key
	for ctx.Err() == nil {
		p := w.newProcess(left)
		p.live(ctx, d)
		left = p.left()
		sleepFor(ctx, d.between(0, longestPause))
	}
}

// process is one life of a process.
type process struct {
	w       *crashWorld
	network *locktest.MortalNetwork

	mu   sync.Mutex // guards what follows
	dead bool
	hold *zklock.Hold    // that the process works under; nil if there is none
	keys []zksession.Key // of the sessions that are not known to be closed
}

func (w *crashWorld) newProcess(left []zksession.Key) *process {
	wrap := func(conn net.Conn) net.Conn {
		return newWire(conn, mix(w.seed, w.dials.Add(1)), remWires)
	}
	return &process{w: w, network: &locktest.MortalNetwork{Server: w.srv, Wrap: wrap}, keys: left}
}

func (p *process) dial(ctx context.Context) (*zklock.Client, error) {
	noteKeys := unsealed.OnSession(p.note).(zklock.Option)
	return zklock.Dial(ctx, p.w.srv.Addr(), append(p.options(), noteKeys)...)
}

func (p *process) options() []zklock.Option {
	return []zklock.Option{zklock.WithDialer(p.network.Dial),
		zklock.WithSessionTimeout(crashTimeout), zklock.WithoutLog()}
}

func (p *process) note(k zksession.Key) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.keys = append(p.keys, k)
}

func (p *process) left() []zksession.Key {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.keys
}

// live closes the sessions of the life before, and takes the lock again and again, until the
// process crashes.
func (p *process) live(ctx context.Context, d dice) {
	ctx, end := context.WithTimeout(ctx, d.between(0, 6*time.Second)) // of this life
	defer end()
	var running sync.WaitGroup
	for _, k := range p.left() {
		running.Go(func() { p.close(ctx, k) })
	}
	c, err := p.dial(ctx)
	if err == nil {
		work := make([]time.Duration, 20)
		for i := range work {
			work[i] = d.between(0, longestWork)
		}
		running.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				p.turn(ctx, c, work[i%len(work)])
			}
		})
	}
	<-ctx.Done()
	p.crash()
	running.Wait()
	if c != nil {
		_ = c.Close() // there is no connection
	}
}

// close closes a session of the life before.
func (p *process) close(ctx context.Context, k zksession.Key) {
	conf, err := unsealed.SessionConfig(p.options())
	if err != nil {
		panic(err) // they are constant
	}
	if zksession.CloseByKey(ctx, p.w.srv.Addr(), conf, k, "") != nil {
		return // it has crashed: the next life tries again
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range p.keys {
		if p.keys[i] == k {
			p.keys = append(p.keys[:i:i], p.keys[i+1:]...)
			return
		}
	}
}

// turn takes the lock, works under it, and releases it, unless the process crashes meanwhile.
func (p *process) turn(ctx context.Context, c *zklock.Client, work time.Duration) {
	_, h, err := c.Mutex(crashLock).Lock(ctx)
	if err != nil {
		return // ctx has ended
	}
	if p.enter(h) {
		sleepFor(ctx, work)
		p.leave(h)
	}
	_ = h.Unlock() // it may have crashed
}

// enter begins work under h. It returns false if the process has crashed.
func (p *process) enter(h *zklock.Hold) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.dead {
		return false
	}
	p.hold = h
	p.w.inside.Enter(h)
	return true
}

// leave ends work under h, if the crash has not.
func (p *process) leave(h *zklock.Hold) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.hold == h {
		p.hold = nil
		p.w.inside.Leave(h)
	}
}

// crash ends the process with all that it does.
func (p *process) crash() {
	p.network.Cut()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.dead = true
	if p.hold != nil {
		p.w.inside.Leave(p.hold)
		p.hold = nil
	}
}
