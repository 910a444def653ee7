package kerberos_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/jcmturner/gokrb5/v8/client"
	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/internal/session"
	"github.com/zklock/locker/tests/ensemble"
	"github.com/zklock/locker/tests/locktest"
	"github.com/zklock/locker/zklock"
	"github.com/zklock/locker/zklock/kerberos"
)

func open(t *testing.T, connect string, mechanism session.SASL) *session.Session {
	t.Helper()
	s, err := session.Open(locktest.Within(t, soon), connect, session.Config{SASL: mechanism})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

// A real server, which lets nobody in who has not authenticated by SASL, and a real key
// distribution center.
func TestARealServerAcceptsKerberosAndEnforcesIt(t *testing.T) {
	if ensemble.InProcess() {
		t.Skip("a real server, and the tests run on the in-process one")
	}
	k := startKDC(t, server, "ann", "bob")
	e := k.servers(t)
	link := e.Proxies(t)[0]
	ann := k.mechanism(t, "ann")
	s := open(t, link.Addr(), ann)
	path, annsOnly := e.Path(t), []zk.ACL{{Perms: zk.PermAll, Scheme: "sasl", ID: "ann@" + realm}}
	_, err := s.Create(locktest.Within(t, soon), path, nil, session.Persistent, annsOnly)
	require.NoError(t, err)

	t.Run("on every connection", func(t *testing.T) {
		for range 3 {
			link.Cut()
			_, _, err = s.Get(locktest.Within(t, soon), path)
			require.NoError(t, err)
		}
	})
	t.Run("another user", func(t *testing.T) {
		_, _, err := open(t, e.Connect(), k.mechanism(t, "bob")).Get(locktest.Within(t, soon), path)
		require.ErrorIs(t, err, zk.ErrNoAuth)
	})
	t.Run("without", func(t *testing.T) {
		stranger, err := session.Open(locktest.Within(t, soon), e.Connect(), session.Config{})
		if err == nil { // the handshake needs no credentials; the first request does
			_, err = stranger.Exists(locktest.Within(t, soon), "/")
			require.NoError(t, stranger.Close())
		}
		require.ErrorIs(t, err, zklock.ErrAuth)
	})
	t.Run("a lock", func(t *testing.T) {
		c, err := zklock.Dial(locktest.Within(t, soon), e.Connect(), zklock.WithSASL(ann))
		require.NoError(t, err)
		defer func() { require.NoError(t, c.Close()) }()
		_, hold, err := c.Mutex(path+"/lock",
			zklock.WithACL(annsOnly...)).Lock(locktest.Within(t, soon))
		require.NoError(t, err)
		require.NoError(t, hold.Unlock())
	})
	t.Run("a principal that the server does not have", func(t *testing.T) {
		mechanism := k.mechanism(t, "ann", kerberos.WithPrincipal(func(string) string {
			return "zookeeper/elsewhere"
		}))
		_, err := session.Open(locktest.Within(t, 2*time.Second), e.Connect(),
			session.Config{SASL: mechanism})
		require.ErrorContains(t, err, "no ticket for zookeeper/elsewhere")
		require.NotErrorIs(t, err, zklock.ErrAuth)
	})
	t.Run("after its key was changed", func(t *testing.T) {
		stale := k.login(t, "ann")
		k.changeKey(t, "ann")
		var logins atomic.Int32
		mechanism := kerberos.GSSAPIFunc(func() (*client.Client, error) {
			if logins.Add(1) == 1 {
				return stale, nil
			}
			return k.login(t, "ann"), nil
		})
		t.Cleanup(mechanism.Close)
		s := open(t, link.Addr(), mechanism)
		for range 2 {
			_, _, err := s.Get(locktest.Within(t, soon), path)
			require.NoError(t, err)
			require.EqualValues(t, 2, logins.Load(), "its tickets serve the next connection")
			link.Cut()
		}
	})
	t.Run("while the center is down", func(t *testing.T) {
		k.stop()
		_, _, err := open(t, e.Connect(), ann).Get(locktest.Within(t, soon), path)
		require.NoError(t, err, "the ticket is still good")
		_, err = session.Open(locktest.Within(t, 2*time.Second), e.Connect(),
			session.Config{SASL: k.mechanism(t, "bob")})
		require.ErrorContains(t, err, "no ticket for zookeeper/127.0.0.1")
	})
}
