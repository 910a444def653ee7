package session_test

import (
	"testing"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/internal/session"
	"github.com/zklock/locker/tests/locktest"
	"github.com/zklock/locker/zktest"
)

// grants says whether a session with the credentials u:p knows that an entry grants it to read.
func grants(t *testing.T, scheme, id string) (known bool) {
	t.Helper()
	s := open(t, zktest.Run(t), func(c *session.Config) {
		c.Auth = []session.Auth{{Scheme: "digest", Credential: []byte("u:p")}}
	})
	return s.Grants([]zk.ACL{{Perms: zk.PermRead, Scheme: scheme, ID: id}}, zk.PermRead)
}

// digest is what zk.DigestACL makes of u:p.
const digest = "u:Jq7wMyA/w2Vd5WIDAKdu4OIIFEQ="

func TestASessionKnowsItsDigestInAnAccessList(t *testing.T) {
	require.Equal(t, digest, zk.DigestACL(0, "u", "p")[0].ID)
	require.True(t, grants(t, "digest", digest))
	require.False(t, grants(t, "digest", "v:Jq7wMyA/w2Vd5WIDAKdu4OIIFEQ="))
}

func TestInFIPSModeADigestInAnAccessListIsUnknown(t *testing.T) {
	if !locktest.InFIPSMode(t) {
		return
	}
	require.False(t, grants(t, "digest", digest))
	require.True(t, grants(t, "auth", ""))
	require.True(t, grants(t, "world", "anyone"))
}
