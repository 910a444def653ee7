package hostile_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/internal/session"
	"github.com/zklock/locker/zklock"
	"github.com/zklock/locker/zktest"
)

const (
	dir     = "/locks/a"
	timeout = 6 * time.Second
)

// outcome is the results of the calls on the client that got the lie.
type outcome struct {
	lock, check, multi, unlock, again error
	held                              bool
	dials                             int
}

// life is a lock's whole life: another client holds it first; ours asks, waits for longer than
// WatchAfter, holds through several heartbeats, uses the hold in all ways, and releases it. Each
// call has to end by its deadline. A hold has to be genuine, unless trust says that the client
// could take the answer for a grant. In the end, when the server is honest again, the lock has to
// be free, and nothing may be left of what was done before.
func life(t *testing.T, lie liar, trust *atomic.Bool) (o outcome) {
	synctest.Test(t, func(t *testing.T) {
		srv := zktest.Run(t, zktest.WithoutListener())
		require.NoError(t, srv.Create("/reg", nil))
		other, err := zklock.Dial(t.Context(), srv.Addr(), zklock.WithDialer(srv.Dial))
		require.NoError(t, err)
		defer func() { require.NoError(t, other.Close()) }()
		_, before, err := other.Mutex(dir).Lock(t.Context())
		require.NoError(t, err)

		var truthful atomic.Bool
		p := &peer{srv: srv, lie: func(f said) ([]byte, bool, bool) {
			if truthful.Load() {
				return honest(f)
			}
			return lie(f)
		}}
		c, err := zklock.Dial(t.Context(), srv.Addr(), zklock.WithDialer(p.dial),
			zklock.WithSessionTimeout(timeout))
		require.NoError(t, err)
		defer func() {
			began := time.Now()
			require.NoError(t, c.Close())
			require.LessOrEqual(t, time.Since(began), 2500*time.Millisecond, "Close")
		}()
		time.AfterFunc(time.Second, func() {
			if err := before.Unlock(); err != nil {
				t.Errorf("the other holder: %v", err)
			}
		})
		m := c.Mutex(dir)
		o = use(t, srv, m, before, trust)
		truthful.Store(true)
		if trust.Load() {
			// a client that must trust that its own znode is gone leaves it to the session's end
			require.NoError(t, c.Close())
			c, err = zklock.Dial(t.Context(), srv.Addr(), zklock.WithDialer(p.dial),
				zklock.WithSessionTimeout(timeout))
			require.NoError(t, err)
			m = c.Mutex(dir)
		}

		// Honest from here on: the lock works soon.
		ctx, done := context.WithTimeout(t.Context(), time.Minute)
		defer done()
		_, h, err := m.Lock(ctx)
		if errors.Is(err, session.ErrGarbled) { // earlier lies may still be read
			_, h, err = m.Lock(ctx)
		}
		require.NoError(t, err, "after the last lie")
		granted(t, srv, h)
		require.NoError(t, h.Check(ctx))
		require.NoError(t, h.Unlock())
		time.Sleep(2 * timeout)
		require.Empty(t, srv.Children(dir), "left behind")
		require.Zero(t, srv.WatchCount(), "watches left behind")
		o.dials = p.connections()
	})
	return o
}

// use exercises a held lock.
func use(
	t *testing.T, srv *zktest.Server, m *zklock.Mutex, before *zklock.Hold, trust *atomic.Bool,
) (o outcome) {
	call := func(d time.Duration, what string, f func(ctx context.Context) error) error {
		ctx, done := context.WithTimeout(t.Context(), d)
		defer done()
		began := time.Now()
		err := f(ctx)
		require.LessOrEqual(t, time.Since(began), d+time.Millisecond, "%s returns by its deadline",
			what)
		return err
	}
	var h *zklock.Hold
	o.lock = call(20*time.Second, "Lock", func(ctx context.Context) (err error) {
		_, h, err = m.Lock(ctx)
		return err
	})
	if o.lock != nil {
		require.Nil(t, h)
		return o
	}
	o.held = true
	if !trust.Load() {
		require.Error(t, before.Err(), "held beside the other")
		granted(t, srv, h)
	}
	time.Sleep(timeout)
	o.check = call(5*time.Second, "Check", h.Check)
	if o.check == nil && !trust.Load() {
		granted(t, srv, h)
	}
	o.multi = call(5*time.Second, "Multi", func(ctx context.Context) error {
		_, err := h.Multi(ctx, session.OpSet{Path: "/reg", Data: []byte("mine"), Version: -1})
		return err
	})
	if n, _ := srv.Node("/reg"); o.multi == nil && !trust.Load() {
		require.Equal(t, "mine", string(n.Data), "a write that was acknowledged")
	}
	o.unlock = call(5*time.Second, "Unlock", func(context.Context) error { return h.Unlock() })
	if _, stands := srv.Node(h.Node()); o.unlock == nil && !trust.Load() {
		require.False(t, stands, "unlocked")
	}
	require.Error(t, h.Context().Err())
	if o.unlock != nil {
		return o
	}
	// Once more, first in line at once: that release is a plain deletion.
	if o.again = call(20*time.Second, "Lock, again", func(ctx context.Context) (err error) {
		_, h, err = m.Lock(ctx)
		return err
	}); o.again == nil {
		o.again = call(5*time.Second, "Unlock, again", func(context.Context) error {
			return h.Unlock()
		})
		require.Error(t, h.Context().Err())
	}
	return o
}

// granted demands that the ensemble has granted a hold that its holder takes for held, unless its
// context has ended since.
func granted(t *testing.T, srv *zktest.Server, h *zklock.Hold) {
	t.Helper()
	if h.Err() != nil {
		return
	}
	n, ok := srv.Node(h.Node())
	require.True(t, ok, "held without a znode")
	require.NotZero(t, n.Stat.EphemeralOwner)
	for _, name := range srv.Children(dir) {
		other, _ := srv.Node(dir + "/" + name)
		require.GreaterOrEqual(t, other.Stat.Czxid, n.Stat.Czxid, "held while %s stands before %s",
			name, h.Node())
	}
}
