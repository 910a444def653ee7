package recipe_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/internal/locktest"
	"github.com/zklock/locker/recipe"
	"github.com/zklock/locker/session"
	"github.com/zklock/locker/zktest"
)

// Many callers of a few clients compete for a few locks. Contexts end and connections break at any moment. No two hold at once,
// every call returns, and no contender is left.
func TestManyCallersOfFewLocksAllHaveTheirTurn(t *testing.T) {
	for name, kinds := range map[string][]recipe.Kind{"mutex": {recipe.Lock}, "read/write": {recipe.Write, recipe.Write, recipe.Read}} {
		t.Run(name, func(t *testing.T) {
			locktest.Seeds(t, 10, func(t *testing.T, srv *zktest.Server, seed uint64) { newPress(t, srv, seed, kinds).run() })
		})
	}
}

// press is many callers of few locks.
type press struct {
	t        *testing.T
	srv      *zktest.Server
	seed     uint64
	callers  int
	dirs     int
	kinds    []recipe.Kind
	sessions []*session.Session

	mu     sync.Mutex
	inside map[string]map[recipe.Kind]int // who holds
	had    map[string]int64               // the latest czxid of an exclusive holder
}

func newPress(t *testing.T, srv *zktest.Server, seed uint64, kinds []recipe.Kind) *press {
	rnd := rand.New(rand.NewPCG(seed, 1<<33))
	p := &press{t: t, srv: srv, seed: seed, kinds: kinds, callers: 16 + rnd.IntN(35), dirs: 1 + rnd.IntN(3),
		inside: map[string]map[recipe.Kind]int{}, had: map[string]int64{}}
	for range 1 + rnd.IntN(4) {
		s, err := session.Open(within(t, soon), srv.Addr(), session.Config{Dial: locktest.SlowDial(srv, seed)})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, s.Close()) })
		p.sessions = append(p.sessions, s)
	}
	return p
}

func (p *press) run() {
	locktest.Load{Server: p.srv, Seed: p.seed, Callers: p.callers, Turns: 4, Skip: 4, Every: 300 * time.Millisecond, Drop: 4,
		Faults: []zktest.Fault{zktest.CloseAfter().Op(zktest.OpMulti), zktest.CloseBefore().Op(zktest.OpMulti),
			zktest.CloseAfter().Op(zktest.OpDelete), zktest.CloseAfter().Op(zktest.OpCreate), zktest.CloseAfter().Op(zktest.OpGetChildren2),
			zktest.CloseBefore().Op(zktest.OpSetWatches), zktest.CloseAfter().Op(zktest.OpNotify)},
	}.Run(func(rnd *rand.Rand, caller, _ int) {
		q := recipe.Queue{Dir: fmt.Sprint("/l", rnd.IntN(p.dirs)), Kind: p.kinds[rnd.IntN(len(p.kinds))],
			ACL: session.WorldACL(), Describe: func(b []byte) string { return string(b) }}
		p.turn(rnd, p.sessions[caller%len(p.sessions)], q)
	})
	p.settle()
}

// turn is one call of a lock, from its beginning to its release.
func (p *press) turn(rnd *rand.Rand, s *session.Session, q recipe.Queue) {
	ctx, cancel := locktest.Perhaps(rnd, []int{10, 1000}[rnd.IntN(2)])
	defer cancel()
	ticket, err := recipe.Enter(ctx, s, q)
	if err != nil {
		p.ended(ctx, err)
		return
	}
	if err := ticket.Wait(ctx); err != nil {
		p.ended(ctx, err)
	} else {
		ticket.Guard(func(err error) { p.t.Errorf("lost: %v", err) })
		p.enter(ticket, q, 1)
		time.Sleep(time.Duration(rnd.IntN(3)) * time.Millisecond)
		p.enter(ticket, q, -1)
	}
	ctx, cancel = locktest.Perhaps(rnd, 5)
	defer cancel()
	if err := ticket.Leave(ctx); err != nil {
		p.ended(ctx, err)
	}
}

// ended requires that a call was ended by its context.
func (p *press) ended(ctx context.Context, err error) {
	if ctx.Err() == nil || !errors.Is(err, ctx.Err()) {
		p.t.Errorf("%v", err)
	}
}

// enter counts the holders.
func (p *press) enter(ticket *recipe.Ticket, q recipe.Queue, n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	in := p.inside[q.Dir]
	if in == nil {
		in = map[recipe.Kind]int{}
		p.inside[q.Dir] = in
	}
	in[q.Kind] += n
	if alone := in[recipe.Lock] + in[recipe.Write]; alone > 1 || alone == 1 && in[recipe.Read] > 0 {
		p.t.Errorf("%s is held by %v", q.Dir, in)
	}
	if n < 0 {
		return
	}
	if _, stands := p.srv.Node(ticket.Nodes()[0]); !stands {
		p.t.Errorf("%s holds, and is gone", ticket.Nodes())
	}
	if ticket.Czxid() < p.had[q.Dir] {
		p.t.Errorf("token %d behind %d", ticket.Czxid(), p.had[q.Dir])
	}
	if q.Kind != recipe.Read {
		p.had[q.Dir] = ticket.Czxid()
	}
}

// settle checks what is left when all calls have ended.
func (p *press) settle() {
	time.Sleep(time.Minute)
	synctest.Wait()
	for i := range p.dirs {
		require.Empty(p.t, p.srv.Children(fmt.Sprint("/l", i)))
	}
	require.Zero(p.t, p.srv.WatchCount(), "%v", p.srv.Watches())
	for _, s := range p.sessions {
		require.False(p.t, recipe.Sweeping(s))
		require.Zero(p.t, s.EphemeralBytes())
	}
	require.NotZero(p.t, p.srv.Requests()[zktest.OpMulti])
}
