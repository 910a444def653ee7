package session_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/internal/session"
	"github.com/zklock/locker/tests/ensemble"
)

// jaas writes the servers' JAAS configuration and returns the JVM's flags for it.
func jaas(t *testing.T, users string) ensemble.Option {
	t.Helper()
	file := filepath.Join(t.TempDir(), "jaas.conf")
	require.NoError(t,
		os.WriteFile(file,
			[]byte("Server {\n org.apache.zookeeper.server.auth.DigestLoginModule required\n"+users+
				";\n};\n"), 0o644))
	return ensemble.WithJVM("-Djava.security.auth.login.config="+file,
		"-Dzookeeper.authProvider.sasl=org.apache.zookeeper.server.auth.SASLAuthenticationProvider")
}

// On real servers, which also refuse clients that have not authenticated by SASL.
func TestRealServersTakeDigestMD5AndEnforceIt(t *testing.T) {
	e := ensemble.Start(t, 3, ensemble.WithTick(2*time.Second),
		jaas(t, ` user_ann="päss\"w=,ord" user_bob="x"`),
		ensemble.WithJVM("-Dzookeeper.enforce.auth.enabled=true",
			"-Dzookeeper.enforce.auth.schemes=sasl"))
	s := openAt(t, e.Connect(), func(c *session.Config) {
		c.Timeout = 40 * time.Second // longer than an election, on however busy a machine
		c.SASL = session.DigestMD5("ann", `päss"w=,ord`)
	})
	ctx := within(t, soon)
	path := e.Path(t)
	_, err := s.Create(ctx, path, nil, session.Persistent,
		[]zk.ACL{{Perms: zk.PermAll, Scheme: "sasl", ID: "ann"}})
	require.NoError(t, err)

	id := s.ID()
	for _, n := range e.Nodes { // whichever server it reconnects to
		n.Restart(t)
		_, _, err = s.Get(within(t, 2*soon), path)
		require.NoError(t, err)
	}
	require.Equal(t, id, s.ID())

	other := openAt(t, e.Connect(), func(c *session.Config) {
		c.SASL = session.DigestMD5("bob", "x")
	})
	_, _, err = other.Get(within(t, soon), path)
	require.ErrorIs(t, err, zk.ErrNoAuth)

	for name, mechanism := range map[string]session.SASL{"none": nil,
		"a bad password": session.DigestMD5("ann", "guess")} {
		stranger, err := session.Open(within(t, soon), e.Connect(), session.Config{SASL: mechanism})
		if err == nil { // without SASL the handshake succeeds, and the first request is refused
			_, err = stranger.Exists(within(t, soon), "/")
			require.NoError(t, stranger.Close())
		}
		require.ErrorIs(t, err, session.ErrAuth, name)
	}
}
