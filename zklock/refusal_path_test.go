package zklock_test

import (
	"path"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/session"
	"github.com/zklock/locker/tests/locktest"
	"github.com/zklock/locker/zklock"
	"github.com/zklock/locker/zktest"
)

// A call for several paths fails because of one of them. The error's text names that one after the
// list of all, and no other.
func TestTheRefusalOfAMultiLockNamesThePathThatWasMeant(t *testing.T) {
	all := []string{"/locks/a", "/locks/b", "/locks/c"}
	for name, c := range map[string]struct {
		spoil func(t *testing.T, srv *zktest.Server, c *zklock.Client, dir string)
		is    error
	}{
		"no permission to create": {func(t *testing.T, _ *zktest.Server, c *zklock.Client,
			dir string) {
			grant(t, c, dir, zk.PermAll&^zk.PermCreate)
		}, zk.ErrNoAuth},
		"no permission to list": {func(t *testing.T, _ *zktest.Server, c *zklock.Client,
			dir string) {
			grant(t, c, dir, zk.PermAll&^zk.PermRead)
		}, zk.ErrNoAuth},
		"an ephemeral znode": {func(t *testing.T, srv *zktest.Server, c *zklock.Client,
			dir string) {
			require.NoError(t, srv.Delete(dir))
			s, err := c.Session(t.Context())
			require.NoError(t, err)
			_, err = s.Create(t.Context(), dir, nil, session.Ephemeral, zk.WorldACL(zk.PermAll))
			require.NoError(t, err)
		}, zklock.ErrConflict},
		"another kind of lock": {func(t *testing.T, _ *zktest.Server, c *zklock.Client,
			dir string) {
			locktest.Take(t, c.RWMutex(dir).RLock)
		}, zklock.ErrConflict},
		"a directory whose parent may not have children": {func(t *testing.T, srv *zktest.Server,
			c *zklock.Client, dir string) {
			require.NoError(t, srv.Delete(dir))
			grant(t, c, path.Dir(dir), zk.PermAll&^zk.PermCreate)
		}, zk.ErrNoAuth},
	} {
		for i, bad := range all {
			t.Run(name+", "+bad, func(t *testing.T) {
				locktest.Bubble(t, func(t *testing.T, srv *zktest.Server) {
					client := locktest.Dial(t, srv)
					for _, dir := range all {
						locktest.Unlock(t, locktest.Lock(t, client.Mutex(dir)))
					}
					c.spoil(t, srv, client, bad)
					_, _, err := client.MultiLock(all).Lock(locktest.Within(t, time.Minute))
					require.ErrorIs(t, err, c.is)
					_, text, found := strings.Cut(err.Error(), strings.Join(all, ","))
					require.True(t, found, "%v", err)
					require.Contains(t, text, bad, "%v", err)
					for k, other := range all {
						if k != i {
							require.NotContains(t, text, other, "%v", err)
						}
					}
				})
			})
		}
	}
}
