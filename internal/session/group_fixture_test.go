package session_test

import (
	"context"
	"fmt"
	"net"
	"path"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/internal/session"
	"github.com/zklock/locker/zktest"
	"github.com/zklock/locker/zktest/fault"
)

// gate holds back all writes while it is shut, so that the requests made meanwhile wait to be
// written at the same moment.
type gate struct {
	mu   sync.Mutex    // guards open
	open chan struct{} // closed while the gate is open
}

func newGate() *gate {
	g := &gate{open: make(chan struct{})}
	close(g.open)
	return g
}

func (g *gate) shut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.open = make(chan struct{})
}

func (g *gate) lift() {
	g.mu.Lock()
	defer g.mu.Unlock()
	close(g.open)
}

// gatedConn writes when the gate is open.
type gatedConn struct {
	net.Conn
	g *gate
}

func (c gatedConn) Write(b []byte) (int, error) {
	c.g.mu.Lock()
	open := c.g.open
	c.g.mu.Unlock()
	<-open
	return c.Conn.Write(b)
}

// lockers is a session of whose calls several enter and leave locks at the same moment.
type lockers struct {
	*session.Session
	t    *testing.T
	srv  *zktest.Server
	gate *gate
	base map[fault.Op]int
}

// withLocks runs fn with such a session, and the directories /d0 to /d(dirs−1), under simulated
// time.
func withLocks(t *testing.T, dirs int, fn func(t *testing.T, l *lockers), opts ...zktest.Option) {
	t.Helper()
	bubble(t, func(t *testing.T, srv *zktest.Server) {
		l := &lockers{t: t, srv: srv, gate: newGate()}
		l.Session = open(t, srv, func(c *session.Config) {
			c.Timeout = 10 * time.Second
			c.Dial = func(network, addr string, timeout time.Duration) (net.Conn, error) {
				conn, err := srv.Dial(network, addr, timeout)
				return gatedConn{conn, l.gate}, err
			}
		})
		for i := range dirs {
			require.NoError(t, l.CreateAll(t.Context(), dir(i), nil, session.Persistent, everybody))
		}
		l.base = srv.Requests()
		fn(t, l)
	}, opts...)
}

func dir(i int) string { return fmt.Sprintf("/d%d", i) }

// at returns how many requests of a type the server has been sent since withLocks began.
func (l *lockers) at(op fault.Op) int { return l.srv.Requests()[op] - l.base[op] }

// together runs each call in its own goroutine, started in order, so that their first requests are
// written at the same moment: one more request, which is sent first, makes them wait. It returns a
// function that waits for the calls.
func (l *lockers) together(calls ...func()) (wait func()) {
	l.t.Helper()
	l.gate.shut()
	var wg sync.WaitGroup
	wg.Go(func() { _ = l.Sync(context.Background(), "/") }) // it may fail like the others
	synctest.Wait()
	for _, call := range calls {
		wg.Go(call)
		synctest.Wait()
	}
	l.gate.lift()
	return wg.Wait
}

// entered is the result of a call that enters a lock.
type entered struct {
	session.Created
	err     error
	names   []string // the directory, read behind the create
	listErr error
}

// enter enters the lock at dir as a recipe does: it makes a contender and lists the directory.
func (l *lockers) enter(ctx context.Context, dir string) entered {
	b := l.Grouped()
	made := b.Create(dir+"/n-", []byte(dir), session.EphemeralSequential, everybody)
	list := b.List(dir)
	_ = b.Do(ctx) // the results say the same
	return entered{made.Value, made.Err, list.Value.Names, list.Err}
}

// enterAll enters locks at the same moment.
func (l *lockers) enterAll(ctx context.Context, dirs ...string) []entered {
	l.t.Helper()
	all := make([]entered, len(dirs))
	var calls []func()
	for i, d := range dirs {
		calls = append(calls, func() { all[i] = l.enter(ctx, d) })
	}
	l.together(calls...)()
	return all
}

// requireEntered requires the result that the call would have had alone.
func (l *lockers) requireEntered(e entered, dir string) {
	l.t.Helper()
	require.NoError(l.t, e.err)
	require.NoError(l.t, e.listErr)
	require.Equal(l.t, dir, path.Dir(e.Path))
	require.Contains(l.t, e.names, path.Base(e.Path), "the list is read behind the create")
	node, ok := l.srv.Node(e.Path)
	require.True(l.t, ok)
	require.Equal(l.t, dir, string(node.Data))
	require.Equal(l.t, e.Czxid, node.Stat.Czxid)
	require.Equal(l.t, l.ID(), node.Stat.EphemeralOwner)
}

// leave deletes znodes as a recipe does: one by a delete, several in one transaction.
func (l *lockers) leave(ctx context.Context, znodes ...string) error {
	b := l.Grouped()
	if len(znodes) == 1 {
		b.Delete(znodes[0], -1)
		return b.Do(ctx)
	}
	var ops []session.Op
	for _, znode := range znodes {
		ops = append(ops, session.OpDelete{Path: znode, Version: -1})
	}
	b.Multi(ops...)
	return b.Do(ctx)
}

// dirs returns the directories /d0 to /d(n−1).
func dirs(n int) (all []string) {
	for i := range n {
		all = append(all, dir(i))
	}
	return all
}
