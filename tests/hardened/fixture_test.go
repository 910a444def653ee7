package hardened_test

import (
	"os"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/internal/session"
	"github.com/zklock/locker/tests/ensemble"
	"github.com/zklock/locker/tests/locktest"
	"github.com/zklock/locker/zklock"
)

func TestMain(m *testing.M) { os.Exit(ensemble.Run(m)) }

const (
	soon    = 30 * time.Second // a bound for calls that must not hang
	tick    = 500 * time.Millisecond
	timeout = 4 * time.Second
)

var admin = session.Auth{Scheme: "digest", Credential: []byte("admin:secret")}

// administrator opens a session with the administrator's rights.
func administrator(t *testing.T, e *ensemble.Ensemble) *session.Session {
	t.Helper()
	s, err := session.Open(locktest.Within(t, soon), e.Connect(),
		session.Config{Auth: []session.Auth{admin}})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

// only is an access list for one digest user, and for the administrator.
func only(t *testing.T, user, password string) []zk.ACL {
	t.Helper()
	return append(zk.DigestACL(zk.PermAll, user, password),
		zk.DigestACL(zk.PermAll, "admin", "secret")...)
}

func dial(t *testing.T, connect string, opts ...zklock.Option) *zklock.Client {
	t.Helper()
	c, err := zklock.Dial(locktest.Within(t, soon), connect,
		append([]zklock.Option{zklock.WithSessionTimeout(timeout)}, opts...)...)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return c
}

// life makes one client hold a lock for longer than its session timeout while another one waits and
// then gets it. In the end only the directory is left.
func life(t *testing.T, connect, path string, opts ...zklock.Option) {
	t.Helper()
	first, second := dial(t, connect, opts...), dial(t, connect, opts...)
	require.Equal(t, tick, first.SessionStatus().TickTime, "found out")
	_, held, err := first.Mutex(path).Lock(locktest.Within(t, soon))
	require.NoError(t, err)
	_, _, err = second.Mutex(path).TryLock(locktest.Within(t, soon))
	require.ErrorIs(t, err, zklock.ErrBusy)

	type got struct {
		hold *zklock.Hold
		err  error
	}
	ctx, next := locktest.Within(t, soon), make(chan got, 1)
	go func() { // ends with ctx at the latest
		_, h, err := second.Mutex(path).Lock(ctx)
		next <- got{h, err}
	}()
	beats := time.NewTimer(timeout + timeout/4)
	defer beats.Stop()
	select {
	case <-beats.C:
	case <-held.Context().Done():
		require.NoError(t, held.Err(), "while it was held")
	case g := <-next:
		require.Failf(t, "two holders", "%v", g.err)
	}
	require.NoError(t, held.Check(locktest.Within(t, soon)))
	require.NoError(t, held.Unlock())
	g := <-next
	require.NoError(t, g.err)
	require.Greater(t, g.hold.Token(), held.Token())
	require.NoError(t, g.hold.Unlock())
	queue, err := locktest.Queue(locktest.Within(t, soon), first, path)
	require.NoError(t, err)
	require.Empty(t, queue)
}
