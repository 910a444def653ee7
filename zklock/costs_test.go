package zklock_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"flag"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/internal/contender"
	"github.com/zklock/locker/internal/queue"
	"github.com/zklock/locker/internal/session"
	"github.com/zklock/locker/tests/locktest"
	"github.com/zklock/locker/zklock"
	"github.com/zklock/locker/zktest/fault"
)

// rewrite is datadriven's flag.
var rewrite = flag.Lookup("rewrite")

// What each call costs on the wire is in testdata/costs.txt: the requests of the client that makes
// it, how many of them are writes, the notifications that it gets, and the bytes in both
// directions. Pings are left out, and so are the names of this host and process. The requests stand
// by name: those of two goroutines have no order. To accept new costs:
//
//	go test -run Costs ./zklock -rewrite
func TestTheCostsAreThoseOfTheTable(t *testing.T) {
	const table = "testdata/costs.txt"
	var got strings.Builder
	for _, scene := range scenes {
		t.Run(strings.TrimSpace(scene.name), func(t *testing.T) {
			locktest.SimulateAlone(t, func(s *locktest.Sim) {
				m := &meter{Sim: s, out: &got}
				m.skip()
				c, err := zklock.Dial(s.Context(), s.Server.Addr(), zklock.WithDialer(m.dial))
				require.NoError(s, err)
				defer func() { require.NoError(s, c.Close()) }()
				fmt.Fprintf(&got, "%s\n", scene.name)
				scene.play(m, c, s.Client().Client)
			})
		})
	}
	if rewrite.Value.String() == "true" {
		require.NoError(t, os.WriteFile(table, []byte(got.String()), 0o644))
	}
	want, err := os.ReadFile(table)
	require.NoError(t, err)
	require.Equal(t, string(want), got.String())
}

// scenes are what is measured: play calls meter.cost after each step of c. other is another client,
// whose requests don't count.
var scenes = []struct {
	name string
	play func(m *meter, c, other *zklock.Client)
}{
	{"A client", func(m *meter, c, _ *zklock.Client) {
		m.cost("Dial")
		require.NoError(m, c.Close())
		m.cost("Close")
	}},
	{"A free mutex", func(m *meter, c, _ *zklock.Client) {
		lock := c.Mutex("/l")
		m.skip()
		h := m.Lock(lock)
		m.cost("Lock, the first on its path")
		m.Unlock(h)
		m.cost("Unlock")
		h = m.Lock(lock)
		m.cost("Lock")
		require.NoError(m, h.Check(m.Context()))
		m.cost("Check")
		_, err := h.Multi(m.Context(), session.OpSet{Path: "/l", Version: -1})
		require.NoError(m, err)
		m.cost("Multi")
		m.pass(queue.WatchAfter)
		m.cost("held for 0.3 s")
		m.Unlock(h)
		m.skip()
		m.Unlock(m.Take(lock.TryLock))
		m.cost("TryLock and Unlock")
		m.Unlock(m.Lock(c.Mutex("/l", zklock.WithLocalHandoff())))
		m.cost("Lock and Unlock with WithLocalHandoff")
	}},
	{"A mutex that another client holds", func(m *meter, c, other *zklock.Client) {
		lock := c.Mutex("/l")
		h := m.Lock(other.Mutex("/l"))
		m.skip()
		for _, step := range []string{"TryLock", "TryLock again"} {
			_, _, err := lock.TryLock(m.Context())
			require.ErrorIs(m, err, zklock.ErrBusy)
			m.cost(step)
		}
		call := m.Start(lock.Lock)
		m.cost("Lock, in line")
		m.Unlock(h)
		mine := call.Get(m.Sim)
		m.cost("its turn")
		m.pass(2 * queue.WatchAfter)
		m.cost("held for 0.6 s")
		m.Unlock(mine)
		m.cost("Unlock")
	}},
	{"A mutex with two before us", func(m *meter, c, other *zklock.Client) {
		h := m.Lock(other.Mutex("/l"))
		second := m.Start(m.Client().Mutex("/l").Lock)
		m.skip()
		call := m.Start(c.Mutex("/l").Lock)
		m.cost("Lock, in line")
		m.Unlock(h)
		h = second.Get(m.Sim)
		m.cost("the second's turn")
		m.Unlock(h)
		h = call.Get(m.Sim)
		m.cost("its turn")
		m.Unlock(h)
	}},
	{"A wait for a mutex", func(m *meter, c, other *zklock.Client) {
		h := m.Lock(other.Mutex("/l"))
		ctx, giveUp := context.WithCancel(m.Context())
		second := locktest.Go(ctx, m.Client().Mutex("/l").Lock)
		synctest.Wait()
		call := m.Start(c.Mutex("/l").Lock)
		m.skip()
		giveUp()
		<-second.Done
		m.pass(0)
		m.cost("the one before gives up")
		m.pass(queue.WatchAfter)
		m.cost("0.3 s")
		m.pass(c.SessionStatus().Timeout)
		m.cost("a session timeout")
		m.Unlock(h)
		h = call.Get(m.Sim)
		m.cost("its turn")
		m.Unlock(h)
	}},
	{"A mutex with five hundred before us", func(m *meter, c, other *zklock.Client) {
		ctx, cancel := context.WithCancel(m.Context())
		for range 500 {
			locktest.Go(ctx, other.Mutex("/l").Lock)
		}
		synctest.Wait()
		m.skip()
		locktest.Go(ctx, c.Mutex("/l").Lock)
		m.cost("Lock, in line")
		const holderReadAfter = 500 * 3 * time.Millisecond
		m.pass(holderReadAfter - time.Millisecond)
		m.cost("almost 1.5 s")
		m.pass(time.Millisecond)
		m.cost("1.5 s")
		cancel()
	}},
	{"A mutex in which fifty clients take turns of 1 s", func(m *meter, c, _ *zklock.Client) {
		ctx, cancel := context.WithCancel(m.Context())
		var others sync.WaitGroup
		work := func(context.Context) error { time.Sleep(time.Second); return nil }
		for range 49 {
			lock := m.Client().Mutex("/l")
			others.Go(func() {
				for lock.Do(ctx, work) == nil {
				}
			})
		}
		for range 2 { // in the first round they all come at once
			m.skip()
			require.NoError(m, c.Mutex("/l").Do(ctx, work))
		}
		m.cost("a turn, with its wait of 49 s")
		cancel()
		others.Wait()
	}},
	{"A read/write lock", func(m *meter, c, other *zklock.Client) {
		theirs, lock := other.RWMutex("/l"), c.RWMutex("/l")
		m.Unlock(m.Take(theirs.Lock))
		m.skip()
		h := m.Take(lock.RLock)
		m.cost("RLock, free")
		m.Unlock(h)
		h = m.Take(theirs.Lock)
		m.skip()
		call := m.Start(lock.RLock)
		m.cost("RLock, behind a writer")
		m.Unlock(h)
		h = call.Get(m.Sim)
		m.cost("its turn")
		m.Unlock(h)
		h = m.Take(theirs.RLock)
		m.skip()
		call = m.Start(lock.Lock)
		m.cost("Lock, behind a reader")
		m.Unlock(h)
		h = call.Get(m.Sim)
		m.cost("its turn")
		m.Unlock(h)
	}},
	{"A semaphore of two", func(m *meter, c, other *zklock.Client) {
		acquire := func(c *zklock.Client) locktest.Acquire {
			return func(ctx context.Context) (context.Context, *zklock.Hold, error) {
				return c.Semaphore("/s", 2).Acquire(ctx, 1)
			}
		}
		first := m.Take(acquire(other))
		m.skip()
		h := m.Take(acquire(c))
		m.cost("Acquire, free")
		m.Unlock(h)
		m.cost("Unlock")
		h = m.Take(acquire(other))
		call := m.Start(acquire(c))
		m.cost("Acquire, first in line")
		m.Unlock(h)
		mine := call.Get(m.Sim)
		m.cost("its turn")
		m.Unlock(mine)
		h = m.Take(acquire(other))
		second := m.Start(acquire(other))
		m.skip()
		call = m.Start(acquire(c))
		m.cost("Acquire, second in line")
		m.Unlock(h)
		h = second.Get(m.Sim)
		m.pass(0)
		m.cost("the first one's turn")
		m.Unlock(h)
		mine = call.Get(m.Sim)
		m.cost("its turn")
		m.Unlock(mine)
		m.Unlock(first)
	}},
	{"A lock of three paths", func(m *meter, c, other *zklock.Client) {
		lock := c.MultiLock([]string{"/a", "/b", "/c"})
		m.Unlock(m.Take(lock.Lock))
		m.skip()
		h := m.Take(lock.Lock)
		m.cost("Lock")
		m.Unlock(h)
		m.cost("Unlock")
		m.Unlock(m.Take(lock.TryLock))
		m.cost("TryLock and Unlock")
		h = m.Lock(other.Mutex("/b"))
		_, _, err := lock.TryLock(m.Context())
		require.ErrorIs(m, err, zklock.ErrBusy)
		m.cost("TryLock, one is busy")
		m.Unlock(h)
	}},
	{"An election", func(m *meter, c, other *zklock.Client) {
		m.Unlock(m.campaign(other))
		m.skip()
		h := m.campaign(c)
		m.cost("Campaign")
		require.NoError(m, c.Election("/e").Proclaim(m.Context(), h, []byte("new")))
		m.cost("Proclaim")
		m.pass(c.SessionStatus().Timeout)
		m.cost("held for a session timeout")
		m.Unlock(h)
		m.cost("Unlock")
		h = m.campaign(other)
		m.skip()
		_, err := c.Election("/e").Leader(m.Context())
		require.NoError(m, err)
		m.cost("Leader")
		for l, err := range c.Election("/e").Observe(m.Context()) {
			require.NoError(m, err)
			synctest.Wait()
			m.cost("Observe: the leader")
			if string(l.Value) == "another" {
				break
			}
			require.NoError(m, other.Election("/e").Proclaim(m.Context(), h, []byte("another")))
		}
		m.pass(0)
		m.cost("Observe: no more")
		m.Unlock(h)
	}},
	{"A job", func(m *meter, c, _ *zklock.Client) {
		j := c.Job("/j")
		m.skip()
		for i, step := range []string{"Once, the first key of all", "Once, a second key",
			"Once, a key that is done"} {
			_, err := j.Once(m.Context(), fmt.Sprintf("key-%d", min(i, 1)),
				func(context.Context) error { return nil })
			require.NoError(m, err)
			m.cost(step)
		}
		for _, step := range []string{"Every, the first run", "Every, too soon"} {
			_, err := j.Every(m.Context(), time.Hour, func(context.Context) error { return nil })
			require.NoError(m, err)
			m.cost(step)
		}
	}},
}

// campaign has c lead /e.
func (m *meter) campaign(c *zklock.Client) *zklock.Hold {
	_, h, err := c.Election("/e").Campaign(m.Context(), []byte("value"))
	require.NoError(m, err)
	return h
}

// pass lets d pass, and what was due then happen.
func (m *meter) pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// meter counts what its client sends and is sent.
type meter struct {
	*locktest.Sim
	out *strings.Builder

	mu sync.Mutex // guards tally
	tally
}

// tally is what a step has cost so far.
type tally struct {
	requests map[string]int // how often
	writes   int            // transactions
	reads    int
	events   int
	bytes    int
}

// cost writes what step has cost, and begins the next one.
func (m *meter) cost(step string) {
	t := m.skip()
	requests := strings.TrimPrefix(fmt.Sprint(t.requests), "map") // by name
	fmt.Fprintf(m.out, "\t%-38s %d writes, %d reads, %d events, %d bytes: %s\n", step, t.writes,
		t.reads, t.events, t.bytes, requests)
}

// skip begins a step, and returns what came before it.
func (m *meter) skip() tally {
	synctest.Wait()
	m.mu.Lock()
	defer m.mu.Unlock()
	before := m.tally
	m.tally = tally{requests: make(map[string]int)}
	return before
}

func (m *meter) dial(network, addr string, limit time.Duration) (net.Conn, error) {
	conn, err := m.Server.Dial(network, addr, limit)
	return &metered{Conn: conn, m: m}, err
}

// metered is a connection whose frames a meter counts.
type metered struct {
	net.Conn
	m       *meter
	in, out []byte // the frames that have not passed whole
}

func (c *metered) Write(b []byte) (int, error) {
	c.out = frames(append(c.out, b...), c.m.request)
	return c.Conn.Write(b)
}

func (c *metered) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.in = frames(append(c.in, b[:n]...), c.m.reply)
	return n, err
}

// frames passes the whole frames of b to take, and returns the rest.
func frames(b []byte, take func(frame []byte)) (rest []byte) {
	for len(b) >= 4 && len(b) >= 4+int(binary.BigEndian.Uint32(b)) {
		n := 4 + int(binary.BigEndian.Uint32(b))
		take(b[:n])
		b = b[n:]
	}
	return b
}

func (m *meter) request(frame []byte) {
	op := fault.Op(binary.BigEndian.Uint32(frame[8:]))
	if binary.BigEndian.Uint32(frame[4:]) == 0 { // a handshake has the protocol's version there
		op = fault.OpConnect
	}
	if op == fault.OpPing {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.bytes += length(frame)
	switch op {
	case fault.OpConnect, fault.OpCloseSession, fault.OpCreate, fault.OpCreate2,
		fault.OpCreateContainer, fault.OpDelete,
		fault.OpSetData, fault.OpMulti:
		m.writes++
	default:
		m.reads++
	}
	m.requests[op.String()]++
}

func (m *meter) reply(frame []byte) {
	xid := int32(binary.BigEndian.Uint32(frame[4:]))
	if xid == -2 { // the answer to a ping
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.bytes += length(frame)
	if xid == -1 {
		m.events++
	}
}

// length is a frame's, without the names of this host and process.
func length(frame []byte) int {
	who := fmt.Appendf(nil, `"host":%q,"pid":%d`, contender.Hostname(), os.Getpid())
	return len(frame) - bytes.Count(frame, who)*len(who)
}
