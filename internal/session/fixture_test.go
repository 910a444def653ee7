package session_test

import (
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/internal/session"
	"github.com/zklock/locker/tests/ensemble"
	"github.com/zklock/locker/tests/locktest"
	"github.com/zklock/locker/zktest"
)

func TestMain(m *testing.M) { os.Exit(ensemble.Run(m)) }

// soon bounds everything that must not hang; no test waits as long.
const soon = 20 * time.Second

var (
	within = locktest.Within
	bubble = locktest.BubbleAlone
)

// open opens a session on srv that is closed with the test.
func open(t testing.TB, srv *zktest.Server, change ...func(*session.Config)) *session.Session {
	t.Helper()
	return openAt(t, srv.Addr(), append([]func(*session.Config){func(c *session.Config) {
		c.Dial = srv.Dial
	}}, change...)...)
}

// openAt opens a session on the servers of a connect string. It is told their tick, so that its
// first connection is the session's own.
func openAt(t testing.TB, connect string, change ...func(*session.Config)) *session.Session {
	t.Helper()
	conf := session.Config{CreateChroot: true, TickTime: 2 * time.Second}
	for _, f := range change {
		f(&conf)
	}
	s, err := session.Open(within(t, soon), connect, conf)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

// eventually waits until a channel is closed, and fails the test if that takes too long.
func eventually(t testing.TB, ch <-chan struct{}, what string) {
	t.Helper()
	select {
	case <-ch:
	case <-time.After(soon):
		require.FailNow(t, "waited in vain", "for %v: %s", soon, what)
	}
}

// ephemeral makes an ephemeral znode of the session, as a lock does, and returns its path.
func ephemeral(t testing.TB, s *session.Session) string {
	t.Helper()
	made, err := s.Create(within(t, soon), "/held-", nil, session.EphemeralSequential,
		session.WorldACL())
	require.NoError(t, err)
	return made.Path
}

// retain keeps the lease confirmed, for a znode.
func retain(t testing.TB, s *session.Session, node string) *session.Retention {
	t.Helper()
	r, err := s.Retain(within(t, soon), node)
	require.NoError(t, err)
	return r
}
