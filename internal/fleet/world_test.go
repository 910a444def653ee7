package fleet_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/zklock"
	"github.com/zklock/locker/zktest"
)

// setup is a fleet and its work.
type setup struct {
	clients int
	paths   int           // as many as clients: none waits
	timeout time.Duration // of the sessions
	hold    time.Duration // how long a client holds; 0 is for ever
	warm    time.Duration // until every client is there, and has had its first turn if holds are short
	measure time.Duration
}

// region is a third of the fleet, with servers of its own.
type region struct {
	name    string
	far     time.Duration // one way to the leader
	servers []*zktest.Member
	addrs   string
}

// forwarded are the requests that a server forwards to its leader.
var forwarded = []zktest.Op{zktest.OpConnect, zktest.OpCloseSession, zktest.OpCreate, zktest.OpCreate2, zktest.OpDelete,
	zktest.OpMulti, zktest.OpSync, zktest.OpSetData}

// world is a running fleet.
type world struct {
	setup
	t       *testing.T
	srv     *zktest.Server
	regions []*region

	ctx    context.Context
	cancel context.CancelFunc
	all    sync.WaitGroup

	counts  [3]counts      // by region
	perTick []atomic.Int64 // requests in each second since the beginning

	mu    sync.Mutex // guards the fields below
	freed []time.Time
	waits []sample
	turns int
	lost  int
	begun time.Time
	from  time.Time // of the measuring
}

// counts are requests by their cost to a server.
type counts struct{ pings, reads, writes, handshakes atomic.Int64 }

// sample is a hand-over.
type sample struct {
	region int // of the client that got the lock
	took   time.Duration
}

// build sets up the ensemble: the leader, which has no clients, and two servers per region: those of the first vote,
// the others observe.
func build(t *testing.T, s setup) *world {
	t.Helper()
	w := &world{setup: s, t: t, srv: zktest.Run(t, zktest.WithoutListener(), zktest.WithSessionTimeouts(4*time.Second, 40*time.Second)),
		freed: make([]time.Time, s.paths), begun: time.Now(), perTick: make([]atomic.Int64, int((s.warm+s.measure)/time.Second)+120)}
	w.ctx, w.cancel = context.WithCancel(t.Context())
	require.NoError(t, w.srv.Create("/locks", nil))
	for i := range s.paths {
		require.NoError(t, w.srv.Create(path(i), nil))
	}
	for _, r := range []*region{{name: "of the voters", far: 500 * time.Microsecond}, {name: "40 ms away", far: 40 * time.Millisecond},
		{name: "85 ms away", far: 85 * time.Millisecond}} {
		var addrs []string
		for range 2 {
			m, err := w.srv.Follower()
			require.NoError(t, err)
			r.servers = append(r.servers, m)
			addrs = append(addrs, m.Addr())
		}
		r.addrs = strings.Join(addrs, ",")
		w.srv.Inject(zktest.Delay(r.far).Op(forwarded...).Member(r.servers...))
		w.srv.Inject(zktest.DelayReply(r.far).Op(append(forwarded, zktest.OpNotify)...).Member(r.servers...))
		w.regions = append(w.regions, r)
	}
	return w
}

func path(i int) string { return fmt.Sprintf("/locks/%04d", i) }

// run runs the fleet, and returns when it has ended.
func (w *world) run() {
	w.t.Helper()
	for i := range w.clients {
		w.all.Go(func() { w.client(i) })
	}
	time.Sleep(w.warm)
	w.begin()
	for left := w.measure; left > 0; left -= minute {
		w.t.Logf("%v more", left) // a large fleet takes long
		time.Sleep(min(left, minute))
	}
}

// begin resets the measurements.
func (w *world) begin() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.from, w.waits, w.turns, w.lost = time.Now(), nil, 0, 0
	for i := range w.counts {
		for _, n := range []*atomic.Int64{&w.counts[i].pings, &w.counts[i].reads, &w.counts[i].writes, &w.counts[i].handshakes} {
			n.Store(0)
		}
	}
}

// end stops the fleet.
func (w *world) end() {
	w.cancel()
	w.all.Wait()
}

// client is one client's run: it arrives at some time, and takes its turns at one path.
func (w *world) client(i int) {
	rng := rand.New(rand.NewPCG(uint64(i), 7))
	if !w.pause(time.Duration(rng.Int64N(int64(w.warm / 2)))) {
		return
	}
	at := i % len(w.regions)
	c, err := zklock.Dial(w.ctx, w.regions[at].addrs, zklock.WithSessionTimeout(w.timeout), zklock.WithDialer(
		func(network, addr string, timeout time.Duration) (net.Conn, error) {
			conn, err := w.srv.Dial(network, addr, timeout)
			return &counted{Conn: conn, w: w, n: &w.counts[at]}, err
		}))
	if err != nil {
		w.t.Error(err)
		return
	}
	defer func() { _ = c.Close() }() // the fleet ends without a clean release
	which := i % w.paths
	lock := c.Mutex(path(which))
	for w.ctx.Err() == nil {
		h, err := lock.Lock(w.ctx)
		if err != nil {
			if w.ctx.Err() == nil {
				w.t.Error(err)
			}
			return
		}
		w.got(which, at)
		if w.hold == 0 {
			select {
			case <-h.Context().Done():
			case <-w.ctx.Done(): // which a hold does not end with
			}
			w.over(h)
			continue
		}
		// A simulation is too regular: each hold takes half to one and a half of its time.
		if !w.pause(w.hold/2 + time.Duration(rng.Int64N(int64(w.hold)))) {
			return
		}
		w.over(h)
		w.mu.Lock()
		w.freed[which] = time.Now()
		w.mu.Unlock()
		if err := h.Unlock(w.ctx); err != nil && !errors.Is(err, zklock.ErrLost) && w.ctx.Err() == nil {
			w.t.Error(err)
			return
		}
	}
}

// got notes a hand-over.
func (w *world) got(which, at int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.turns++
	if since := w.freed[which]; !since.IsZero() {
		w.waits = append(w.waits, sample{at, time.Since(since)})
	}
}

// over counts a hold that was lost.
func (w *world) over(h *zklock.Hold) {
	if err := h.Err(); err != nil && w.ctx.Err() == nil {
		w.mu.Lock()
		w.lost++
		w.mu.Unlock()
	}
}

func (w *world) pause(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-w.ctx.Done():
		return false
	}
}

// percentile returns one of the hand-overs to a region, or to all if it is -1.
func (w *world) percentile(region int, p float64) time.Duration {
	var took []time.Duration
	for _, s := range w.waits {
		if region < 0 || s.region == region {
			took = append(took, s.took)
		}
	}
	if len(took) == 0 {
		return 0
	}
	slices.Sort(took)
	return took[min(len(took)-1, int(float64(len(took))*p))]
}

// counted counts what a client sends; each request is one Write.
type counted struct {
	net.Conn
	w     *world
	n     *counts
	shook bool
}

func (c *counted) Write(b []byte) (int, error) {
	c.w.perTick[min(int(time.Since(c.w.begun)/time.Second), len(c.w.perTick)-1)].Add(1)
	switch {
	case !c.shook:
		c.shook = true
		c.n.handshakes.Add(1)
	case len(b) < 12:
	default:
		switch op := zktest.Op(int32(binary.BigEndian.Uint32(b[8:]))); {
		case op == zktest.OpPing:
			c.n.pings.Add(1)
		case op == zktest.OpSync:
			c.n.reads.Add(1)
		case slices.Contains(forwarded, op):
			c.n.writes.Add(1)
		default:
			c.n.reads.Add(1)
		}
	}
	return c.Conn.Write(b)
}
