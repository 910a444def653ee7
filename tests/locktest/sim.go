package locktest

import (
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/internal/session"
	"github.com/zklock/locker/recipe"
	"github.com/zklock/locker/zklock"
	"github.com/zklock/locker/zktest"
)

// Sim is a server, and the clients of it, in a testing/synctest bubble: faults strike at exact
// moments, time costs nothing, and after synctest.Wait everything that could happen has happened.
type Sim struct {
	*testing.T
	Server *zktest.Server
}

// Simulate runs f in a bubble with a server of its own. At its end it closes f's clients and joins
// everything; a goroutine that stays behind fails it, and so does a call that would wait forever.
// Bubbles run beside each other, and not beside tests in real time.
func Simulate(t *testing.T, f func(s *Sim), opts ...zktest.Option) {
	t.Helper()
	beside(t)
	SimulateAlone(t, f, opts...)
}

// parallel has the tests that beside has made parallel.
var parallel sync.Map

// beside makes t a parallel test, once.
func beside(t *testing.T) {
	t.Helper()
	if _, again := parallel.LoadOrStore(t, nil); !again {
		t.Parallel()
	}
}

// SimulateAlone is Simulate for tests that measure the heap of the process, or return a result.
func SimulateAlone(t *testing.T, f func(s *Sim), opts ...zktest.Option) {
	t.Helper()
	BubbleAlone(t, func(t *testing.T, srv *zktest.Server) { f(&Sim{t, srv}) }, opts...)
}

// Lock acquires a mutex, which must succeed.
func (s *Sim) Lock(m *zklock.Mutex) *zklock.Hold {
	s.Helper()
	return s.Take(m.Lock)
}

// Take acquires a lock of any kind, which must succeed.
func (s *Sim) Take(call Acquire) *zklock.Hold {
	s.Helper()
	_, h, err := call(s.Context())
	require.NoError(s, err)
	return h
}

// Start starts a call, and returns when it waits in line or has returned.
func (s *Sim) Start(call Acquire) *Call {
	c := Go(s.Context(), call)
	synctest.Wait()
	return c
}

// Unlock releases a hold, which must succeed.
func (s *Sim) Unlock(h *zklock.Hold) {
	s.Helper()
	require.NoError(s, h.Unlock())
}

// Dir makes a directory and its parents.
func (s *Sim) Dir(p string) string {
	s.Helper()
	for i := 1; i < len(p); i++ {
		if p[i] == '/' {
			if _, ok := s.Server.Node(p[:i]); !ok {
				require.NoError(s, s.Server.Create(p[:i], nil))
			}
		}
	}
	require.NoError(s, s.Server.Create(p, nil))
	return p
}

// Follower adds a member to the ensemble.
func (s *Sim) Follower() *zktest.Member {
	s.Helper()
	m, err := s.Server.Follower()
	require.NoError(s, err)
	return m
}

// Stranger opens a session of another program.
func (s *Sim) Stranger() *session.Session {
	s.Helper()
	sess, err := session.Open(s.Context(), s.Server.Addr(), session.Config{Dial: s.Server.Dial})
	require.NoError(s, err)
	s.Cleanup(func() { require.NoError(s, sess.Close()) })
	return sess
}

// Plant makes an ephemeral znode of exactly that name, as another program's contender.
func (s *Sim) Plant(sess *session.Session, node string) {
	s.Helper()
	_, err := sess.Create(s.Context(), node, nil, session.Ephemeral, session.WorldACL())
	require.NoError(s, err)
}

// RemoveDir deletes dir and its children in one transaction, as another program, so that nothing
// can come between: the children in the given order of their numbers, or downwards.
func (s *Sim) RemoveDir(dir string, upwards bool) {
	s.Helper()
	names := Contenders(s.Server.Children(dir))
	if !upwards {
		slices.Reverse(names)
	}
	var ops []session.Op
	for _, name := range names {
		ops = append(ops, session.OpDelete{Path: dir + "/" + name, Version: -1})
	}
	other := s.Stranger()
	_, err := other.Multi(s.Context(), append(ops, session.OpDelete{Path: dir, Version: -1})...)
	require.NoError(s, err)
	require.NoError(s, other.Close())
}

// Owned demands that the hold's znode exists, belongs to the current session, and has the token as
// its czxid, or a greater one where the holder was a writer before it became a reader.
func (s *Sim) Owned(c *Client, h *zklock.Hold) {
	s.Helper()
	n, ok := s.Server.Node(h.Node())
	require.True(s, ok, "the hold's znode does not exist")
	require.Equal(s, c.SessionID(), n.Stat.EphemeralOwner, "owner of the hold's znode")
	if strings.Contains(h.Node(), "__READ__") {
		require.LessOrEqual(s, int64(h.Token()), n.Stat.Czxid)
	} else {
		require.Equal(s, n.Stat.Czxid, int64(h.Token()))
	}
	require.NoError(s, h.Err())
}

// Watched returns the paths on which a session has watches at the server.
func (s *Sim) Watched(id int64) []string {
	var paths []string
	for _, w := range s.Server.Watches() {
		if w.Session == id {
			paths = append(paths, w.Path)
		}
	}
	return paths
}

// Notified returns how many events a session has been sent.
func (s *Sim) Notified(id int64) int {
	info, _ := s.Server.Session(id)
	return info.Notifications
}

// Until lets time pass until cond holds, at most for limit.
func (s *Sim) Until(limit time.Duration, what string, cond func() bool) {
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

// Empty demands that dir is empty within limit.
func (s *Sim) Empty(limit time.Duration, dir string) {
	s.Helper()
	s.Until(limit, "nothing left below "+dir, func() bool {
		return len(s.Server.Children(dir)) == 0
	})
}

// NothingLeft demands that dir is empty, and that there is no watch anywhere, within ten seconds.
func (s *Sim) NothingLeft(dir string) {
	s.Helper()
	s.Empty(10*time.Second, dir)
	s.Until(10*time.Second, "no watch left", func() bool { return s.Server.WatchCount() == 0 })
}

// Goroutines counts the goroutines of the caller's bubble, with the caller, once all others wait.
func Goroutines() int {
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
	// goroutine 7 [running, synctest bubble 3]:
	_, bubble, _ := strings.Cut(all[:strings.IndexByte(all, '\n')], "synctest bubble ")
	return strings.Count(all, "synctest bubble "+strings.TrimRight(bubble, "]:")+"]")
}

// Contenders returns the names of contenders, in the order of their numbers (which must all be
// positive).
func Contenders(names []string) []string {
	line, _ := recipe.Listing{Names: names}.Line(nil)
	return line
}
