package session_test

import (
	"testing"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/internal/session"
	"github.com/zklock/locker/zktest"
	"github.com/zklock/locker/zktest/fault"
)

func TestCreateAllMakesWhatIsMissingAndLeavesWhatIsThere(t *testing.T) {
	everywhere(t, func(t *testing.T, g *ground) {
		require.NoError(t, g.CreateAll(g.ctx, g.path("/a/b/c/d"), []byte("leaf"), session.Container, everybody))
		data, _, err := g.Get(g.ctx, g.path("/a/b/c/d"))
		require.NoError(t, err)
		require.Equal(t, []byte("leaf"), data)
		data, _, err = g.Get(g.ctx, g.path("/a/b"))
		require.NoError(t, err)
		require.Empty(t, data)

		require.NoError(t, g.CreateAll(g.ctx, g.path("/a/b/c/d"), []byte("other"), session.Persistent, everybody))
		data, _, err = g.Get(g.ctx, g.path("/a/b/c/d"))
		require.NoError(t, err)
		require.Equal(t, []byte("leaf"), data, "what is there is left as it is")
		require.NoError(t, g.CreateAll(g.ctx, g.path(""), nil, session.Persistent, everybody), "also the top")
		require.NoError(t, g.CreateAll(g.ctx, "/", nil, session.Persistent, everybody), "also the root")
	})
}

func TestCreateAllMakesTheChroot(t *testing.T) {
	everywhere(t, func(t *testing.T, g *ground) {
		deeper := openAt(t, g.connect+g.outside("/not/there/yet"), g.config)
		_, err := deeper.Create(g.ctx, "/x", nil, session.Ephemeral, everybody)
		require.ErrorIs(t, err, zk.ErrNoNode, "a plain create makes no parents")
		require.NoError(t, deeper.CreateAll(g.ctx, "/a/b", nil, session.Persistent, everybody))
		_, err = g.Exists(g.ctx, g.path("/not/there/yet/a/b"))
		require.NoError(t, err)
	})
}

func TestCreateAllBelowParentsThatAreClosedToUs(t *testing.T) {
	everywhere(t, func(t *testing.T, g *ground) {
		owner := g.another(func(c *session.Config) {
			c.Auth = []session.Auth{{Scheme: "digest", Credential: []byte("owner:pw")}}
		})
		closed := zk.DigestACL(zk.PermAll, "owner", "pw")
		require.NoError(t, owner.CreateAll(g.ctx, g.path("/closed"), nil, session.Persistent, closed))
		_, err := owner.Create(g.ctx, g.path("/closed/open"), nil, session.Persistent, everybody)
		require.NoError(t, err)
		require.NoError(t, g.CreateAll(g.ctx, g.path("/closed/open/a/b"), nil, session.Persistent, everybody))
		require.ErrorIs(t, g.CreateAll(g.ctx, g.path("/closed/mine"), nil, session.Persistent, everybody), zk.ErrNoAuth)
		require.ErrorIs(t, g.CreateAll(g.ctx, g.path("/closed/mine/deeper"), nil, session.Persistent, everybody), zk.ErrNoAuth)
	})
}

func TestCreateAllOfAnExistingZnodeInADirectoryWhereWeMayNotCreate(t *testing.T) {
	everywhere(t, func(t *testing.T, g *ground) {
		readers := []zk.ACL{{Perms: zk.PermRead, Scheme: "world", ID: "anyone"}}
		require.NoError(t, g.CreateAll(g.ctx, g.path("/closed"), nil, session.Persistent, everybody))
		require.NoError(t, g.CreateAll(g.ctx, g.path("/closed/there"), nil, session.Persistent, everybody))
		_, err := g.SetACL(g.ctx, g.path("/closed"), readers, -1)
		require.NoError(t, err)
		require.NoError(t, g.CreateAll(g.ctx, g.path("/closed/there"), nil, session.Persistent, everybody), "it is there: nothing has to be made")
	})
}

func TestCreateAllGoesOnAfterALostReply(t *testing.T) {
	for n := range 6 {
		bubble(t, func(t *testing.T, srv *zktest.Server) {
			s := open(t, srv)
			srv.Inject(fault.CloseAfter().Op(fault.OpCreate).Nth(n))
			require.NoError(t, s.CreateAll(within(t, soon), "/a/b/c", nil, session.Persistent, everybody))
			_, there := srv.Node("/a/b/c")
			require.True(t, there)
		})
	}
}
