package simulation_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/zklock/locker/internal/session"
	"github.com/zklock/locker/zklock"
)

const (
	maxTimeout = 10 * time.Second // of a session
	// longest bounds the time for which any operation lasts: its call, by its deadline, and then
	// its hold.
	longest = 60 * time.Second
)

// player is one client and the program that uses it: it starts fifty operations at random instants,
// each in a goroutine of its own.
type player struct {
	w        *world
	i        int
	name     string
	rnd      *rand.Rand
	timeout  time.Duration
	allBegun chan struct{} // closed when it has begun its last operation

	mu      sync.Mutex // guards what follows
	c       *zklock.Client
	closing bool          // c is being closed, or was
	closed  time.Duration // when a client of the player was last closed
	dials   uint64
	held    []*acquisition

	wg sync.WaitGroup // its operations
}

func newPlayer(w *world, i int) *player {
	p := &player{w: w, i: i, name: fmt.Sprintf("c%d", i), rnd: w.rand(10 + uint64(i)),
		allBegun: make(chan struct{})}
	p.timeout = []time.Duration{4, 6, 10}[p.rnd.IntN(3)] * time.Second
	return p
}

// r returns the remainder (see grain) of the nth operation, one for each kind of its instants.
func (p *player) r(n, kind int) int { return remOperations + kind*500 + p.i*64 + n }

func (p *player) note(format string, args ...any) { p.w.note(p.name, format, args...) }

// closedSince reports whether a client of the player was closed at began or later.
func (p *player) closedSince(began time.Duration) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.closing || p.closed >= began && p.closed > 0
}

// dial connects the client to a random member, over a new wire.
func (p *player) dial(network, addr string, timeout time.Duration) (net.Conn, error) {
	p.mu.Lock()
	p.dials++
	key := mix(p.w.seed, uint64(p.i), p.dials)
	p.mu.Unlock()
	pause(context.Background(), travel(key), remWires+4*p.i)
	m := p.w.members[mix(key, 1)%uint64(len(p.w.members))]
	conn, err := m.Dial(network, addr, timeout)
	if err != nil {
		return nil, err
	}
	w := newWire(conn, key, remWires+1+4*p.i)
	w.slow = p.w.busy
	return w, nil
}

// ensure returns the player's client, and dials a new one if that was closed. It returns nil if ctx
// ends first.
func (p *player) ensure(ctx context.Context) *zklock.Client {
	for ctx.Err() == nil {
		p.mu.Lock()
		c, closing := p.c, p.closing
		p.mu.Unlock()
		if c != nil && !closing {
			return c
		}
		limit := 8 * time.Second
		bounded, done := context.WithTimeout(ctx, limit)
		began := p.w.now()
		fresh, err := zklock.Dial(bounded, p.w.srv.Addr(), zklock.WithDialer(p.dial),
			zklock.WithSessionTimeout(p.timeout),
			zklock.WithHooks(zklock.Hooks{Session: p.session}), zklock.WithLogger(
				slog.New(missed{p})))
		ended := bounded.Err()
		done()
		p.within(began, limit, "dial")
		p.mu.Lock()
		if err == nil {
			p.c, p.closing = fresh, false
		}
		p.mu.Unlock()
		// A dial fails only because its time is over, or because the session was ended by force
		// before the client got the reply to its handshake.
		if err != nil && !(ended != nil && errors.Is(err, ended)) &&
			!errors.Is(err, zklock.ErrSessionExpired) {
			p.w.violated("%s: dial: %v", p.name, err)
		}
	}
	return nil
}

// missed is the client's logger: a waiter that has found by a look what no event had told is a
// violation.
type missed struct{ p *player }

func (missed) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelWarn }
func (m missed) WithAttrs([]slog.Attr) slog.Handler             { return m }
func (m missed) WithGroup(string) slog.Handler                  { return m }

func (m missed) Handle(_ context.Context, r slog.Record) error {
	if strings.HasPrefix(r.Message, "a waiter was not notified") && !m.p.w.garbles {
		r.Attrs(func(a slog.Attr) bool {
			m.p.w.violated("%s was not notified: %s %s", m.p.name, a.Key, short(a.Value.String()))
			return true
		})
	}
	return nil
}

// session is the client's hook: it notes the client's sessions.
func (p *player) session(info session.Change) {
	if info.State == session.Connected {
		p.w.oracle.mu.Lock()
		p.w.oracle.names[info.ID] = p.name
		p.w.oracle.mu.Unlock()
	}
	p.note("session %v %v", info.State, errText{info.Err})
}

// close closes the client.
func (p *player) close() {
	p.mu.Lock()
	c := p.c
	began := p.w.now()
	p.closing, p.closed = true, began
	p.mu.Unlock()
	p.note("close")
	if err := c.Close(); err != nil {
		p.w.violated("%s: close: %v", p.name, err)
	}
	p.within(began, 2500*time.Millisecond, "close")
}

// handOver is the time for which a call that gives up waits at most until the connection has
// accepted the deletion of its znode. It may wait on two connections, when the second one opens
// meanwhile.
const handOver = 50 * time.Millisecond

// within checks that a call took no longer than its limit and twice handOver.
func (p *player) within(began, limit time.Duration, what string) {
	if took := p.w.now() - began; took > limit+2*handOver+time.Millisecond {
		p.w.violated("%s: %s took %v, with a limit of %v", p.name, what, took, limit)
	}
}

// unlocks bounds how long a release waits for its answer.
func (p *player) unlocks() time.Duration { return min(p.timeout/10, time.Second) }

// play starts the operations, and waits until they have ended.
func (p *player) play(ctx context.Context) {
	p.ensure(ctx)
	together := 0 // further operations at this instant
	for n := range operations {
		if together--; together < 0 {
			rest := 600 * time.Millisecond
			if p.w.patient {
				rest *= 6
			}
			pause(ctx, upTo(p.rnd, rest), p.r(n, 0))
			if p.w.busy {
				together = p.rnd.IntN(8)
			}
		}
		if c := p.ensure(ctx); c != nil {
			p.operate(ctx, c, n)
		}
	}
	close(p.allBegun)
	p.wg.Wait()
}

// operate starts one operation.
func (p *player) operate(ctx context.Context, c *zklock.Client, n int) {
	k := p.rnd.IntN(len(p.w.paths))
	path, fam := p.w.paths[k], p.w.fam[k]
	t, g := p.any()
	o := op{p: p, c: c, n: n, path: path, t: t, g: g, limit: p.span()}
	switch pick := p.rnd.IntN(100); {
	case pick < 62 || pick < 88 && t == nil:
		o.draw(k, fam)
		switch how := p.rnd.IntN(8); {
		case how == 0 && fam == famMutex:
			o.key = p.rnd.IntN(6)
			p.start(ctx, &o, o.job)
		case how < 3 && o.kind != "election":
			o.try = false
			p.start(ctx, &o, o.do)
		default:
			p.start(ctx, &o, o.acquire)
		}
	case pick < 68:
		p.start(ctx, &o, o.check)
	case pick < 77 && t.kind != "read" && t.kind != "semaphore":
		p.start(ctx, &o, o.multi)
	case pick < 81 && !t.do:
		p.start(ctx, &o, o.unlock)
	case pick < 85 && t.kind == "election":
		p.start(ctx, &o, o.proclaim)
	case pick < 88 && (t.kind == "write" || t.kind == "mutex" || t.kind == "multi"):
		o.hold = upTo(p.rnd, time.Second)
		p.start(ctx, &o, o.reenter)
	case pick < 91:
		p.start(ctx, &o, o.queue)
	case pick < 93:
		o.victim = p.rnd.IntN(3)
		p.start(ctx, &o, o.breakOne)
	case pick < 96 && fam == famMutex:
		p.start(ctx, &o, o.observe)
	case pick < 98 && fam == famMutex:
		p.start(ctx, &o, o.leader)
	case pick < 98 && fam == famSem:
		o.permits = 1 + p.rnd.IntN(5)
		p.start(ctx, &o, o.resize)
	case pick >= 98:
		p.wg.Go(p.close) // the next operation dials again
		pause(ctx, 0, p.r(n, 3))
	default:
		p.start(ctx, &o, o.queue)
	}
}

// span draws a time limit: usually seconds, sometimes shorter than a round trip. Where calls share
// transactions it is often so short that it ends while these are in flight.
func (p *player) span() time.Duration {
	switch n := p.rnd.IntN(10); {
	case n == 0:
		return upTo(p.rnd, 3*time.Millisecond)
	case n > 3 && p.w.patient:
		return 20*time.Second + upTo(p.rnd, 25*time.Second)
	case n > 5 && p.w.busy:
		return upTo(p.rnd, 30*time.Millisecond)
	case n < 3:
		return 5*time.Second + upTo(p.rnd, 15*time.Second)
	}
	return 50*time.Millisecond + upTo(p.rnd, 4*time.Second)
}

// start runs an operation, with a deadline or, in one of four cases, with a cancellation at that
// instant.
func (p *player) start(ctx context.Context, o *op, f func(ctx context.Context)) {
	cancels := p.rnd.IntN(4) == 0
	now := time.Now()
	due := at(now, o.limit, p.r(o.n, 1))
	o.limit = due.Sub(now)
	p.wg.Go(func() {
		o.began = p.w.now()
		var done context.CancelFunc
		if cancels {
			ctx, done = context.WithCancel(ctx)
			t := time.AfterFunc(o.limit, done)
			defer t.Stop()
		} else {
			ctx, done = context.WithDeadline(ctx, due)
		}
		defer done()
		f(ctx)
	})
}

// any returns one of the client's holds that has not been released, or nil.
func (p *player) any() (*acquisition, *hold) {
	p.w.oracle.mu.Lock()
	defer p.w.oracle.mu.Unlock()
	p.mu.Lock()
	defer p.mu.Unlock()
	n := p.rnd.IntN(1 << 20)
	var all []*acquisition
	for _, t := range p.held {
		if t.open() != nil {
			all = append(all, t)
		}
	}
	p.held = all
	if len(all) == 0 {
		return nil, nil
	}
	t := all[n%len(all)]
	return t, t.open()
}

// open returns a hold of t that has not been released, or nil.
func (t *acquisition) open() *hold {
	for _, g := range t.holds {
		if !g.released {
			return g
		}
	}
	return nil
}

// errText formats an error without the parts that differ from run to run.
type errText struct{ err error }

// String returns the name of the first sentinel that the error matches.
func (e errText) String() string {
	if e.err == nil {
		return "ok"
	}
	for _, known := range []struct {
		err  error
		text string
	}{
		{zklock.ErrBusy, "busy"}, {zklock.ErrClosed, "closed"}, {zklock.ErrDeadlock, "deadlock"},
		{zklock.ErrConflict, "conflict"}, {zklock.ErrInvalid, "option"},
		{zklock.ErrNoLeader, "no leader"},
		{zklock.ErrNotRecorded, "not recorded"}, {zklock.ErrUnlocked, "unlocked"},
		{zklock.ErrUnknownOutcome, "unknown outcome"},
		{zklock.ErrSessionExpired, "session expired"}, {zklock.ErrLeaseExpired, "lease expired"},
		{zklock.ErrNodeDeleted, "node deleted"}, {zklock.ErrNodeGone, "node gone"},
		{zklock.ErrMaxHold, "max hold"},
		{context.DeadlineExceeded, "deadline"}, {context.Canceled, "cancelled"},
		{session.ErrGarbled, "garbled"}, {session.ErrConnection, "connection"},
	} {
		if errors.Is(e.err, known.err) {
			return known.text
		}
	}
	return "error"
}
