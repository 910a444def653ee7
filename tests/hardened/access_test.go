package hardened_test

import (
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/internal/doctor"
	"github.com/zklock/locker/internal/session"
	"github.com/zklock/locker/tests/ensemble"
	"github.com/zklock/locker/tests/locktest"
	"github.com/zklock/locker/zklock"
)

// Heartbeats, waits and clean-up need no permission on the root, nor on anything above the chroot.
func TestLocksWorkWhereTheirParentsAreNotAccessible(t *testing.T) {
	e := ensemble.Start(t, 1)
	s, ctx := administrator(t, e), locktest.Within(t, soon)
	_, err := s.Create(ctx, "/tenants", nil, session.Persistent, only(t, "nobody", "x"))
	require.NoError(t, err)
	_, err = s.Create(ctx, "/tenants/app", nil, session.Persistent, only(t, "app", "pw"))
	require.NoError(t, err)
	_, err = s.SetACL(ctx, "/", only(t, "nobody", "x"), -1)
	require.NoError(t, err)

	app := zklock.WithAuth("digest", []byte("app:pw"))
	for name, c := range map[string]struct{ connect, path string }{
		"by a path":               {e.Connect(), "/tenants/app/locks/a"},
		"below a chroot":          {e.Connect() + "/tenants/app", "/locks/b"},
		"a chroot that is made":   {e.Connect() + "/tenants/app/service", "/c"},
		"a chroot that is closed": {e.Connect() + "/tenants", "/app/d"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // each waits most of the time
			life(t, c.connect, c.path, app, zklock.WithCreateChroot())
		})
	}
	t.Run("a client without credentials gets an error", func(t *testing.T) {
		t.Parallel()
		_, _, err := dial(t, e.Connect()).Mutex("/tenants/app/new").Lock(locktest.Within(t, soon))
		require.ErrorIs(t, err, zk.ErrNoAuth)
	})
}

// Servers that close the connection of a client that has not authenticated.
func TestLocksWorkWhereAuthenticationIsEnforced(t *testing.T) {
	e := ensemble.Start(t, 1, ensemble.WithConfig("4lw.commands.whitelist=srvr"),
		ensemble.WithJVM("-Dzookeeper.enforce.auth.enabled=true",
			"-Dzookeeper.enforce.auth.schemes=digest"))
	auth := zklock.WithAuth("digest", []byte("app:pw"))
	life(t, e.Connect(), e.Path(t), auth)
	app := session.Config{Auth: []session.Auth{{Scheme: "digest", Credential: []byte("app:pw")}}}
	report, err := doctor.Examine(locktest.Within(t, soon), e.Connect(),
		doctor.Config{Path: "/x", Patience: soon, Session: app})
	require.NoError(t, err)
	for _, f := range report.Findings {
		require.NotEqual(t, doctor.Danger, f.Severity, f.Text)
	}

	c, err := zklock.Dial(locktest.Within(t, soon), e.Connect())
	if err == nil { // the handshake needs no credentials; the first request does
		_, _, err = c.Mutex("/x").Lock(locktest.Within(t, soon))
		require.NoError(t, c.Close())
	}
	require.ErrorIs(t, err, zklock.ErrAuth)
	require.ErrorContains(t, err, "enforces authentication")
}

// Here a follower refuses a write by itself, so that a refusal does not prove that the leader knows
// the session.
func TestARefusalByAFollowerAloneDoesNotMoveTheLease(t *testing.T) {
	e := ensemble.Start(t, 3, ensemble.WithJVM("-Dzookeeper.enableEagerACLCheck=true"))
	_, err := administrator(t, e).Create(locktest.Within(t, soon), "/closed", nil,
		session.Persistent, only(t, "nobody", "x"))
	require.NoError(t, err)
	ctx := locktest.Within(t, soon)
	s, err := session.Open(ctx, e.Followers(t)[0].Addr(), session.Config{})
	require.NoError(t, err)
	defer s.Close()
	require.NoError(t, s.Sync(ctx, "/closed"))
	before := s.SafeUntil()
	for began := time.Now(); time.Since(began) < 6*tick; {
		_, err := s.Create(ctx, "/closed/x", nil, session.Persistent, session.WorldACL())
		require.ErrorIs(t, err, zk.ErrNoAuth)
	}
	require.Equal(t, before, s.SafeUntil())
}

func TestLocksWorkWhereAccessListsAreSkipped(t *testing.T) {
	e := ensemble.Start(t, 1, ensemble.WithConfig("skipACL=yes"))
	life(t, e.Connect(), e.Path(t), zklock.WithAuth("digest", []byte("app:pw")))
}

// A call that a quota refuses returns an error, and leaves nothing behind; with room again the same
// client continues.
func TestAFullQuotaIsReportedAndLeavesNothingBehind(t *testing.T) {
	e := ensemble.Start(t, 1, ensemble.WithJVM("-Dzookeeper.enforceQuota=true"))
	s, ctx := administrator(t, e), locktest.Within(t, soon)
	require.NoError(t, s.CreateAll(ctx, "/app/lock", nil, session.Persistent, session.WorldACL()))
	require.NoError(t,
		s.CreateAll(ctx, "/zookeeper/quota/app", nil, session.Persistent, session.WorldACL()))
	limit := func(n string) []byte {
		return []byte("count=-1,bytes=-1=;byteHardLimit=-1;countHardLimit=" + n)
	}
	_, err := s.Create(ctx, "/zookeeper/quota/app/zookeeper_limits", limit("3"), session.Persistent,
		session.WorldACL())
	require.NoError(t, err)
	_, err = s.Create(ctx, "/zookeeper/quota/app/zookeeper_stats", []byte("count=2,bytes=0"),
		session.Persistent, session.WorldACL())
	require.NoError(t, err)

	c := dial(t, e.Connect())
	_, hold, err := c.Mutex("/app/lock").Lock(locktest.Within(t, soon)) // the third znode
	require.NoError(t, err)
	_, _, err = dial(t, e.Connect()).Mutex("/app/lock").Lock(locktest.Within(t, soon))
	require.ErrorContains(t, err, "quota exceeded")
	names, _, err := s.List(ctx, "/app/lock")
	require.NoError(t, err)
	require.Len(t, names, 1)
	require.NoError(t, hold.Unlock())

	_, err = s.Set(ctx, "/zookeeper/quota/app/zookeeper_limits", limit("100"), -1)
	require.NoError(t, err)
	life(t, e.Connect(), "/app/lock")
}
