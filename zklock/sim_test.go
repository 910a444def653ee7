package zklock_test

import (
	"context"
	"encoding/binary"
	"net"
	"path"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/recipe"
	"github.com/zklock/locker/session"
	"github.com/zklock/locker/zklock"
	"github.com/zklock/locker/zktest"
)

// sim is a server, and the clients of it, in a testing/synctest bubble: faults strike at exact moments, time costs
// nothing, and after synctest.Wait everything that could happen has happened.
type sim struct {
	*testing.T
	srv *zktest.Server
}

// simForever is more simulated time than any test has a use for. It passes in seconds, for all the heartbeats.
const simForever = 4 * time.Hour

// simTest runs f in a bubble with a server of its own. Clients that it makes are closed, and everything is joined, at
// its end; a goroutine that stays behind fails it, and so does a call that would wait for ever. Bubbles run beside each
// other, and not beside tests in real time.
func simTest(t *testing.T, f func(s *sim), opts ...zktest.Option) {
	t.Helper()
	simBeside(t)
	simAlone(t, f, opts...)
}

// simBesides has the tests that simBeside has made parallel.
var simBesides sync.Map

// simBeside makes t a parallel test, once.
func simBeside(t *testing.T) {
	t.Helper()
	if _, again := simBesides.LoadOrStore(t, nil); !again {
		t.Parallel()
	}
}

// simAlone is simTest for what measures the heap of the process, or is asked for a result.
func simAlone(t *testing.T, f func(s *sim), opts ...zktest.Option) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		hung := time.AfterFunc(simForever, func() {
			debug.SetTraceback("all")
			panic(t.Name() + " waits for ever")
		})
		defer hung.Stop()
		f(&sim{t, zktest.Run(t, append(opts, zktest.WithoutListener())...)})
	})
}

// simClient is a client whose connections the test leads where it wants.
type simClient struct {
	*zklock.Client
	s *sim

	mu     sync.Mutex // guards what follows
	member *zktest.Member
	names  []string // see tapped
}

// client dials the server. Its session timeout is the default of 10 s unless opts say otherwise.
func (s *sim) client(opts ...zklock.Option) *simClient {
	s.Helper()
	c := &simClient{s: s, member: s.srv.Leader()}
	var err error
	c.Client, err = zklock.Dial(s.Context(), s.srv.Addr(), append(opts, zklock.WithDialer(c.dial))...)
	require.NoError(s, err)
	s.Cleanup(func() { require.NoError(s, c.Close()) })
	return c
}

func (c *simClient) dial(network, addr string, timeout time.Duration) (net.Conn, error) {
	c.mu.Lock()
	m := c.member
	c.mu.Unlock()
	conn, err := m.Dial(network, addr, timeout)
	if err != nil {
		return nil, err
	}
	return &simTap{conn, c}, nil
}

// at makes m the server that the client's next connection leads to.
func (c *simClient) at(m *zktest.Member) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.member = m
}

// session returns the current session.
func (c *simClient) session() *session.Session {
	c.s.Helper()
	sess, err := c.Session(c.s.Context())
	require.NoError(c.s, err)
	return sess
}

// id returns the current session's id.
func (c *simClient) id() int64 { return c.session().ID() }

// simTapped is how many names a tap keeps: memory must not grow with what the client does.
const simTapped = 100

// tapped returns the names, still without a number, of the first contenders that the client has asked for.
func (c *simClient) tapped() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]string(nil), c.names...)
}

// simTap reads along what a client writes.
type simTap struct {
	net.Conn
	c *simClient
}

func (t *simTap) Write(b []byte) (int, error) {
	t.c.mu.Lock()
	for rest := b; len(rest) >= 12; { // frames: length, xid, opcode, and for a create the path
		n := 4 + int(binary.BigEndian.Uint32(rest))
		if n < 12 || n > len(rest) {
			break
		}
		frame := rest[:n]
		rest = rest[n:]
		if zktest.Op(binary.BigEndian.Uint32(frame[8:])) != zktest.OpCreate || n < 16 {
			continue
		}
		end := 16 + int(binary.BigEndian.Uint32(frame[12:]))
		if name := path.Base(string(frame[16:end])); strings.HasSuffix(name, "-lock-") && len(t.c.names) < simTapped {
			t.c.names = append(t.c.names, name)
		}
	}
	t.c.mu.Unlock()
	return t.Conn.Write(b)
}

// simCall is a lock call that goes on while the test does something else.
type simCall struct {
	done chan struct{}
	// Set when done is closed.
	hold  *zklock.Hold
	err   error
	at    time.Time // when it returned
	spent time.Duration
}

// simGo runs call in a goroutine, which ends with it.
func simGo(ctx context.Context, call func(context.Context) (*zklock.Hold, error)) *simCall {
	c, began := &simCall{done: make(chan struct{})}, time.Now()
	go func() {
		defer close(c.done)
		c.hold, c.err = call(ctx)
		c.at = time.Now()
		c.spent = c.at.Sub(began)
	}()
	return c
}

// over reports whether the call has returned, after everything that could happen has.
func (c *simCall) over() bool {
	synctest.Wait()
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

// get waits for the call and demands success.
func (c *simCall) get(s *sim) *zklock.Hold {
	s.Helper()
	limit := time.NewTimer(time.Hour)
	defer limit.Stop()
	select {
	case <-c.done:
	case <-limit.C:
		require.FailNow(s, "the call still waits after an hour")
	}
	require.NoError(s, c.err)
	require.NotNil(s, c.hold)
	return c.hold
}

// lock takes the lock, which must succeed.
func (s *sim) lock(m *zklock.Mutex) *zklock.Hold {
	s.Helper()
	h, err := m.Lock(s.Context())
	require.NoError(s, err)
	return h
}

// unlock releases it, which must succeed.
func (s *sim) unlock(h *zklock.Hold) {
	s.Helper()
	require.NoError(s, h.Unlock(s.Context()))
}

// dir makes a directory and its parents.
func (s *sim) dir(p string) string {
	s.Helper()
	for i := 1; i < len(p); i++ {
		if p[i] == '/' {
			if _, ok := s.srv.Node(p[:i]); !ok {
				require.NoError(s, s.srv.Create(p[:i], nil))
			}
		}
	}
	require.NoError(s, s.srv.Create(p, nil))
	return p
}

// follower adds a member to the ensemble.
func (s *sim) follower() *zktest.Member {
	s.Helper()
	m, err := s.srv.Follower()
	require.NoError(s, err)
	return m
}

// stranger opens a session of some other program.
func (s *sim) stranger() *session.Session {
	s.Helper()
	sess, err := session.Open(s.Context(), s.srv.Addr(), session.Config{Dial: s.srv.Dial})
	require.NoError(s, err)
	s.Cleanup(func() { require.NoError(s, sess.Close()) })
	return sess
}

// place makes an ephemeral znode of exactly that name, as another program's contender.
func (s *sim) place(sess *session.Session, node string) {
	s.Helper()
	_, err := sess.Create(s.Context(), node, nil, session.Ephemeral, session.WorldACL())
	require.NoError(s, err)
}

// remove deletes dir and what is in it in one transaction, as another program, so that nothing can come between: the
// children in the given order of their numbers, or downwards.
func (s *sim) remove(dir string, upwards bool) {
	s.Helper()
	names := contenders(s.srv.Children(dir))
	if !upwards {
		slices.Reverse(names)
	}
	var ops []any
	for _, name := range names {
		ops = append(ops, &zk.DeleteRequest{Path: dir + "/" + name, Version: -1})
	}
	other := s.stranger()
	_, err := other.Multi(s.Context(), append(ops, &zk.DeleteRequest{Path: dir, Version: -1})...)
	require.NoError(s, err)
	require.NoError(s, other.Close())
}

// owned demands that the hold's znode stands, is the current session's, and has the token as its czxid, or a greater one
// where the holder was a writer before it became a reader.
func (s *sim) owned(c *simClient, h *zklock.Hold) {
	s.Helper()
	n, ok := s.srv.Node(h.Node())
	require.True(s, ok, "the hold's znode does not stand")
	require.Equal(s, c.id(), n.Stat.EphemeralOwner, "owner of the hold's znode")
	if strings.Contains(h.Node(), "__READ__") {
		require.LessOrEqual(s, int64(h.Token()), n.Stat.Czxid)
	} else {
		require.Equal(s, n.Stat.Czxid, int64(h.Token()))
	}
	require.NoError(s, h.Err())
}

// watched returns the paths on which a session has watches at the server.
func (s *sim) watched(id int64) []string {
	var paths []string
	for _, w := range s.srv.Watches() {
		if w.Session == id {
			paths = append(paths, w.Path)
		}
	}
	return paths
}

// notified returns how many events a session was sent.
func (s *sim) notified(id int64) int {
	info, _ := s.srv.Session(id)
	return info.Notifications
}

// until lets time pass until cond holds, at most for limit.
func (s *sim) until(limit time.Duration, what string, cond func() bool) {
	s.Helper()
	for end := time.Now().Add(limit); ; time.Sleep(10 * time.Millisecond) {
		synctest.Wait()
		if cond() {
			return
		}
		if !time.Now().Before(end) {
			require.FailNow(s, "not within "+limit.String()+": "+what)
		}
	}
}

// empty demands that nothing stands below dir within limit.
func (s *sim) empty(limit time.Duration, dir string) {
	s.Helper()
	s.until(limit, "nothing left below "+dir, func() bool { return len(s.srv.Children(dir)) == 0 })
}

// simGoroutines counts the goroutines of the caller's bubble that wait for something.
func simGoroutines() int {
	synctest.Wait()
	buf := make([]byte, 1<<20)
	for {
		if n := runtime.Stack(buf, true); n < len(buf) {
			buf = buf[:n]
			break
		}
		buf = make([]byte, 2*len(buf))
	}
	all := string(buf)
	_, bubble, _ := strings.Cut(all[:strings.IndexByte(all, '\n')], "synctest bubble ")
	return strings.Count(all, "synctest bubble "+strings.TrimRight(bubble, "]:")+"]")
}

// contenders returns the names that are places in line, in the order of their numbers (which must all be positive).
func contenders(names []string) []string {
	line, _ := recipe.Listing{Names: names}.Line(nil)
	return line
}
