package zklock_test

import (
	"net"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/session"
	"github.com/zklock/locker/tests/locktest"
	"github.com/zklock/locker/zklock"
	"github.com/zklock/locker/zktest"
)

// Scenario 95.
func TestInFIPSModeDigestMD5IsRefusedBeforeAnyIO(t *testing.T) {
	if !locktest.InFIPSMode(t) {
		return
	}
	dial := func(_, addr string, _ time.Duration) (net.Conn, error) {
		t.Errorf("dials %s", addr)
		return nil, net.ErrClosed
	}
	_, err := zklock.Dial(locktest.Soon(t), "zk1:2181", zklock.WithDialer(dial),
		zklock.WithSASL(session.DigestMD5("ann", "secret")))
	require.ErrorIs(t, err, zklock.ErrInvalid)
	for _, part := range []string{"DIGEST-MD5", "GODEBUG=fips140=only", "Kerberos"} {
		require.ErrorContains(t, err, part)
	}
}

// A program may wrap the mechanism, so that Dial can't ask it.
func TestInFIPSModeANegotiationWithDigestMD5IsAnError(t *testing.T) {
	if !locktest.InFIPSMode(t) {
		return
	}
	run := session.DigestMD5("ann", "secret").Begin("zk1:2181")
	_, _, err := run.Step(t.Context(), []byte(`nonce="n",algorithm=md5-sess`))
	require.ErrorContains(t, err, "GODEBUG=fips140=only")
}

// Scenario 95. Credentials of the scheme digest cross the wire as they are. Only where the library
// would recognize its own entry in an access list does it need SHA-1, and it does without.
func TestInFIPSModeLocksWorkWithDigestCredentials(t *testing.T) {
	if !locktest.InFIPSMode(t) {
		return
	}
	srv := zktest.Run(t)
	dial := func() *zklock.Client {
		return locktest.Dial(t, srv, zklock.WithAuth("digest", []byte("u:p")))
	}
	acl := zklock.WithACL(
		zk.ACL{Perms: zk.PermRead, Scheme: "digest", ID: "u:Jq7wMyA/w2Vd5WIDAKdu4OIIFEQ="},
		zk.ACL{Perms: zk.PermAll, Scheme: "auth"})
	first, second := dial(), dial()
	held := locktest.Lock(t, first.Mutex("/l", acl))
	got := make(chan *zklock.Hold, 1)
	go func() {
		defer close(got)
		if _, h, err := second.Mutex("/l", acl).Lock(locktest.Soon(t)); err == nil {
			got <- h
		}
	}()
	locktest.AwaitContenders(t, first, "/l", 2)
	locktest.Unlock(t, held)
	next, ok := <-got
	require.True(t, ok, "the one that waited")
	locktest.Unlock(t, next)
}
