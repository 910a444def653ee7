package zktest_test

import (
	"log/slog"
	"testing"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/internal/session"
	"github.com/zklock/locker/tests/locktest"
	"github.com/zklock/locker/zktest"
)

func TestInFIPSModeAServerWithSASLUsersDoesNotStart(t *testing.T) {
	if !locktest.InFIPSMode(t) {
		return
	}
	_, err := zktest.Start(zktest.WithSASLUsers(map[string]string{"ann": "secret"}))
	require.ErrorContains(t, err, "GODEBUG=fips140=only")
}

func TestInFIPSModeAClientHasWhatItsCredentialsMade(t *testing.T) {
	if !locktest.InFIPSMode(t) {
		return
	}
	var log locktest.Buffer
	srv, err := zktest.Start(zktest.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
	require.NoError(t, err)
	defer srv.Close()
	open := func(credential string) *session.Session {
		auth := session.Auth{Scheme: "digest", Credential: []byte(credential)}
		s, err := session.Open(locktest.Soon(t), srv.Addr(),
			session.Config{Auth: []session.Auth{auth}})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, s.Close()) })
		return s
	}
	acl := []zk.ACL{{Perms: zk.PermAll, Scheme: "auth"}}
	_, err = open("u:p").Create(locktest.Soon(t), "/x", nil, session.Persistent, acl)
	require.NoError(t, err)
	_, _, err = open("u:p").Get(locktest.Soon(t), "/x")
	require.NoError(t, err)
	_, _, err = open("u:wrong").Get(locktest.Soon(t), "/x")
	require.ErrorIs(t, err, zk.ErrNoAuth)
	require.Contains(t, log.String(), "FIPS 140-only mode forbids SHA-1")
}
