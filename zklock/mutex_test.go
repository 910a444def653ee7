package zklock_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/tests/locktest"
	"github.com/zklock/locker/zklock"
	"github.com/zklock/locker/zklock/admin"
	"github.com/zklock/locker/zktest"
	"github.com/zklock/locker/zktest/fault"
)

// mutexCalls are all calls of a Mutex.
var mutexCalls = map[string]func(ctx context.Context, m *zklock.Mutex) error{
	"Lock":    func(ctx context.Context, m *zklock.Mutex) error { _, _, err := m.Lock(ctx); return err },
	"TryLock": func(ctx context.Context, m *zklock.Mutex) error { _, _, err := m.TryLock(ctx); return err },
	"Do": func(ctx context.Context, m *zklock.Mutex) error {
		return m.Do(ctx, func(context.Context) error { panic("called") })
	},
}

// untouched runs a test that must not send a request.
func untouched(t *testing.T, fn func(t *testing.T, c *zklock.Client)) {
	t.Helper()
	locktest.Bubble(t, func(t *testing.T, srv *zktest.Server) {
		c := locktest.Dial(t, srv)
		before := srv.Requests()
		fn(t, c)
		made := srv.Requests()
		delete(before, fault.OpPing)
		delete(made, fault.OpPing)
		require.Equal(t, before, made, "no I/O")
	})
}

func TestABadLockOptionIsRefusedByEveryCallBeforeAnyRequest(t *testing.T) {
	untouched(t, func(t *testing.T, c *zklock.Client) {
		for name, bad := range badLockOptions {
			m := c.Mutex("/l", zklock.WithOwner("me"), bad.opt)
			for call, do := range mutexCalls {
				err := do(context.Background(), m)
				require.ErrorIs(t, err, zklock.ErrInvalid, "%s: %s", name, call)
				require.ErrorContains(t, err, bad.says, "%s: %s", name, call)
			}
		}
	})
}

func TestTheLongestPathThatIsTakenWorks(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T, srv *zktest.Server) {
		c := locktest.Dial(t, srv)
		longest := 0
		for n := 3900; n <= 4096; n++ {
			if _, _, err := c.Mutex("/" + strings.Repeat("x", n-1)).TryLock(locktest.Soon(t)); err == nil {
				longest = n
			} else {
				require.ErrorIs(t, err, zklock.ErrPath)
				break
			}
		}
		require.Greater(t, longest, 3990)
	})
}

// A nil context panics with a message that says so, in every method, and changes nothing.
func TestANilContextPanicsWithTheRule(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		dir, c := s.Dir("/locks/a"), s.Client()
		s.Dir("/locks/b")
		w := s.Take(c.RWMutex(dir).Lock)
		_, leads, err := c.Election("/locks/b").Campaign(s.Context(), nil)
		require.NoError(s, err)
		var none context.Context
		work := func(context.Context) error { return nil }
		asked := s.Server.Requests()
		for name, call := range map[string]func(){
			"dial":           func() { _, _ = zklock.Dial(none, s.Server.Addr()) },
			"session":        func() { _, _ = c.Session(none) },
			"queue":          func() { _, _ = locktest.Queue(none, c.Client, dir) },
			"queue page":     func() { _, _ = admin.ReadLine(none, c.Client, dir, 0, 1) },
			"evict":          func() { _ = admin.Evict(none, c.Client, dir, w.Token()) },
			"lock":           func() { _, _, _ = c.Mutex("/l").Lock(none) },
			"lock with wait": func() { _, _, _ = c.Mutex("/l", zklock.WithMaxWait(1)).Lock(none) },
			"handoff":        func() { _, _, _ = c.Mutex("/l", zklock.WithHandoffs(1)).Lock(none) },
			"try lock":       func() { _, _, _ = c.Mutex("/l").TryLock(none) },
			"do":             func() { _ = c.Mutex("/l").Do(none, work) },
			"write lock":     func() { _, _, _ = c.RWMutex("/l").Lock(none) },
			"read lock":      func() { _, _, _ = c.RWMutex("/l").RLock(none) },
			"acquire":        func() { _, _, _ = c.Semaphore("/l", 1).Acquire(none, 1) },
			"resize":         func() { _ = c.Semaphore("/l", 1).Resize(none, 1) },
			"multi lock":     func() { _, _, _ = c.MultiLock([]string{"/l"}).Lock(none) },
			"campaign":       func() { _, _, _ = c.Election("/l").Campaign(none, nil) },
			"run":            func() { _ = c.Election("/l").Run(none, nil, nil) },
			"leader":         func() { _, _ = c.Election("/l").Leader(none) },
			"observe":        func() { c.Election("/l").Observe(none) },
			"check":          func() { _ = w.Check(none) },
			"multi":          func() { _, _ = w.Multi(none) },
			"once":           func() { _, _ = c.Job("/l").Once(none, "k", work) },
			"every":          func() { _, _ = c.Job("/l").Every(none, 1, work) },
			"runs":           func() { c.Job("/l").Runs(none) },
			"proclaim":       func() { _ = c.Election("/l").Proclaim(none, leads, nil) },
		} {
			require.PanicsWithValue(s, "zklock: nil context", call, name)
		}
		synctest.Wait()
		require.Equal(s, asked, s.Server.Requests())
		require.NoError(s, w.Check(s.Context()))
		s.Unlock(w)
		require.NoError(s, leads.Unlock())
	})
}

// Zero values and nil Clients panic with a message that says where to get one.
func TestZeroValuesPanicWithTheRule(t *testing.T) {
	ctx := t.Context()
	var c *zklock.Client
	for name, call := range map[string]func(){
		"close": func() { _ = c.Close() }, "status": func() { c.Status() }, "session": func() { _, _ = c.Session(ctx) },
		"zero close":   func() { _ = new(zklock.Client).Close() },
		"zero session": func() { _, _ = new(zklock.Client).Session(ctx) },
		"zero queue":   func() { _, _ = locktest.Queue(ctx, new(zklock.Client), "/l") },
		"its mutex":    func() { _, _, _ = new(zklock.Client).Mutex("/l").Lock(ctx) },
		"its handoff":  func() { _, _, _ = new(zklock.Client).Mutex("/l", zklock.WithHandoffs(1)).Lock(ctx) },
	} {
		require.PanicsWithValue(t, "zklock: nil or zero Client: Dial returns one", call, name)
	}
	for name, call := range map[string]func(){
		"a nil client's": func() { _, _, _ = c.Mutex("/l").Lock(ctx) },
		"mutex":          func() { _, _, _ = new(zklock.Mutex).Lock(ctx) }, "try": func() { _, _, _ = new(zklock.Mutex).TryLock(ctx) },
		"do": func() { _ = new(zklock.Mutex).Do(ctx, neverRun) }, "rw": func() { _, _, _ = new(zklock.RWMutex).Lock(ctx) },
		"read":      func() { _, _, _ = new(zklock.RWMutex).TryRLock(ctx) },
		"semaphore": func() { _, _, _ = new(zklock.Semaphore).Acquire(ctx, 1) }, "resize": func() { _ = new(zklock.Semaphore).Resize(ctx, 1) },
		"multi": func() { _, _, _ = new(zklock.MultiLock).Lock(ctx) }, "campaign": func() { _, _, _ = new(zklock.Election).Campaign(ctx, nil) },
		"run": func() { _ = new(zklock.Election).Run(ctx, nil, nil) }, "leader": func() { _, _ = new(zklock.Election).Leader(ctx) },
		"observe": func() { new(zklock.Election).Observe(ctx) }, "proclaim": func() { _ = new(zklock.Election).Proclaim(ctx, nil, nil) },

		"nil mutex": func() { _, _, _ = (*zklock.Mutex)(nil).Lock(ctx) }, "nil try": func() { _, _, _ = (*zklock.Mutex)(nil).TryLock(ctx) },
		"nil do": func() { _ = (*zklock.Mutex)(nil).Do(ctx, neverRun) }, "nil rw": func() { _, _, _ = (*zklock.RWMutex)(nil).Lock(ctx) },
		"nil try rw": func() { _, _, _ = (*zklock.RWMutex)(nil).TryLock(ctx) }, "nil read": func() { _, _, _ = (*zklock.RWMutex)(nil).RLock(ctx) },
		"nil try read":    func() { _, _, _ = (*zklock.RWMutex)(nil).TryRLock(ctx) },
		"nil semaphore":   func() { _, _, _ = (*zklock.Semaphore)(nil).Acquire(ctx, 1) },
		"nil try acquire": func() { _, _, _ = (*zklock.Semaphore)(nil).TryAcquire(ctx, 1) },
		"nil resize":      func() { _ = (*zklock.Semaphore)(nil).Resize(ctx, 1) }, "nil multi": func() { _, _, _ = (*zklock.MultiLock)(nil).Lock(ctx) },
		"nil try multi": func() { _, _, _ = (*zklock.MultiLock)(nil).TryLock(ctx) },
		"nil campaign":  func() { _, _, _ = (*zklock.Election)(nil).Campaign(ctx, nil) },
		"nil run":       func() { _ = (*zklock.Election)(nil).Run(ctx, nil, nil) }, "nil leader": func() { _, _ = (*zklock.Election)(nil).Leader(ctx) },
		"nil observe": func() { (*zklock.Election)(nil).Observe(ctx) },
		"once":        func() { _, _ = new(zklock.Job).Once(ctx, "k", nil) },
		"every":       func() { _, _ = new(zklock.Job).Every(ctx, 1, nil) }, "runs": func() { new(zklock.Job).Runs(ctx) },
		"nil once": func() { _, _ = (*zklock.Job)(nil).Once(ctx, "k", nil) }, "nil every": func() { _, _ = (*zklock.Job)(nil).Every(ctx, 1, nil) },
		"nil runs": func() { (*zklock.Job)(nil).Runs(ctx) }, "nil at most once": func() { (*zklock.Job)(nil).AtMostOnce() },
		"nil forget": func() { _, _ = (*zklock.Job)(nil).Forget(ctx, "k") }, "nil forget last": func() { _, _ = (*zklock.Job)(nil).ForgetLast(ctx) },
	} {
		require.PanicsWithValue(t, "zklock: nil or zero value of a lock, or one of a nil Client: Client.Mutex and its like return one", call, name)
	}
	var h *zklock.Hold
	for name, call := range map[string]func(){
		"nil": func() { _ = h.Unlock() }, "zero": func() { _ = new(zklock.Hold).Unlock() }, "check": func() { _ = h.Check(ctx) },
		"multi": func() { _, _ = h.Multi(ctx) }, "context": func() { h.Context() }, "err": func() { _ = h.Err() },
		"token": func() { h.Token() }, "safe until": func() { h.SafeUntil() }, "node": func() { h.Node() }, "nodes": func() { h.Nodes() },
		"zero err": func() { _ = new(zklock.Hold).Err() },
	} {
		require.PanicsWithValue(t, "zklock: nil or zero Hold: Lock returns one when its error is nil", call, name)
	}
}
