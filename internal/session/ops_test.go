package session_test

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/internal/session"
	"github.com/zklock/locker/zktest"
	"github.com/zklock/locker/zktest/fault"
)

var everybody = session.WorldACL()

func TestCreateInEveryMode(t *testing.T) {
	everywhere(t, func(t *testing.T, g *ground) {
		for i, mode := range []session.Mode{session.Persistent, session.Ephemeral,
			session.PersistentSequential, session.EphemeralSequential, session.Container} {
			asked := g.path("/n" + string(rune('a'+i)) + "-")
			made, err := g.Create(g.ctx, asked, []byte("data"), mode, everybody)
			require.NoError(t, err)
			sequential := mode == session.PersistentSequential ||
				mode == session.EphemeralSequential
			if sequential {
				require.Regexp(t, "^"+asked+`\d{10}$`, made.Path)
			} else {
				require.Equal(t, asked, made.Path)
			}
			data, stat, err := g.Get(g.ctx, made.Path)
			require.NoError(t, err)
			require.Equal(t, []byte("data"), data)
			require.Equal(t, stat.Czxid, made.Czxid)
			switch mode {
			case session.Ephemeral, session.EphemeralSequential:
				require.Equal(t, g.ID(), stat.EphemeralOwner)
			default:
				require.Zero(t, stat.EphemeralOwner)
			}
			if !sequential {
				_, err = g.Create(g.ctx, asked, nil, mode, everybody)
				require.ErrorIs(t, err, zk.ErrNodeExists)
				require.ErrorContains(t, err, "create "+asked)
			}
		}
		other := g.another()
		names, _, err := other.List(g.ctx, g.path(""))
		require.NoError(t, err)
		require.Len(t, names, 5)
		require.NoError(t, g.Close())
		names, _, err = other.List(g.ctx, g.path(""))
		require.NoError(t, err)
		require.Len(t, names, 3, "ephemeral znodes go with their session")
	})
}

func TestRefusalsAreTheDriversErrorsAndChangeNothing(t *testing.T) {
	everywhere(t, func(t *testing.T, g *ground) {
		_, err := g.Create(g.ctx, g.path("/e"), nil, session.Ephemeral, everybody)
		require.NoError(t, err)
		require.NoError(t,
			g.CreateAll(g.ctx, g.path("/d/child"), nil, session.Persistent, everybody))
		for name, c := range map[string]struct {
			do   func() error
			want error
		}{
			"create below nothing": {func() error {
				_, err := g.Create(g.ctx, g.path("/no/x"), nil, session.Ephemeral, everybody)
				return err
			}, zk.ErrNoNode},
			"create below an ephemeral": {func() error {
				_, err := g.Create(g.ctx, g.path("/e/x"), nil, session.Ephemeral, everybody)
				return err
			},
				zk.ErrNoChildrenForEphemerals},
			"create with no ACL": {func() error {
				_, err := g.Create(g.ctx, g.path("/x"), nil, session.Ephemeral, nil)
				return err
			}, zk.ErrInvalidACL},
			"create and list, no parent": {func() error {
				_, _, err := createAndList(g.ctx, g, g.path("/no/x"), nil, session.Ephemeral,
					everybody)
				return err
			}, zk.ErrNoNode},
			"delete nothing": {func() error {
				return g.Delete(g.ctx, g.path("/no"), -1)
			}, zk.ErrNoNode},
			"delete another version": {func() error {
				return g.Delete(g.ctx, g.path("/e"), 7)
			}, zk.ErrBadVersion},
			"delete with children": {func() error {
				return g.Delete(g.ctx, g.path("/d"), -1)
			}, zk.ErrNotEmpty},
			"get nothing": {func() error {
				_, _, err := g.Get(g.ctx, g.path("/no"))
				return err
			}, zk.ErrNoNode},
			"set nothing": {func() error {
				_, err := g.Set(g.ctx, g.path("/no"), nil, -1)
				return err
			}, zk.ErrNoNode},
			"set another version": {func() error {
				_, err := g.Set(g.ctx, g.path("/d"), nil, 7)
				return err
			}, zk.ErrBadVersion},
			"list nothing": {func() error {
				_, _, err := g.List(g.ctx, g.path("/no"))
				return err
			}, zk.ErrNoNode},
			"exists nothing": {func() error {
				_, err := g.Exists(g.ctx, g.path("/no"))
				return err
			}, zk.ErrNoNode},
			"exists now nothing": {func() error {
				_, err := existsNow(g.ctx, g, g.path("/no"))
				return err
			}, zk.ErrNoNode},
			"ACL of nothing": {func() error {
				_, _, err := g.ACL(g.ctx, g.path("/no"))
				return err
			}, zk.ErrNoNode},
			"set ACL of nothing": {func() error {
				_, err := g.SetACL(g.ctx, g.path("/no"), everybody, -1)
				return err
			}, zk.ErrNoNode},
			"set ACL, another version": {func() error {
				_, err := g.SetACL(g.ctx, g.path("/d"), everybody, 7)
				return err
			}, zk.ErrBadVersion},
		} {
			err := c.do()
			require.ErrorIs(t, err, c.want, name)
			require.NotErrorIs(t, err, session.ErrUnknownOutcome, name)
			var op *session.OpError
			require.ErrorAs(t, err, &op, name)
			require.True(t, strings.HasPrefix(op.Path, g.base), "%s: the path as it was given: %s",
				name, op.Path)
		}
		names, _, err := g.List(g.ctx, g.path(""))
		require.NoError(t, err)
		require.ElementsMatch(t, []string{"e", "d"}, names)
	})
}

func TestAccessLists(t *testing.T) {
	everywhere(t, func(t *testing.T, g *ground) {
		auth := func(c *session.Config) {
			c.Auth = []session.Auth{{Scheme: "digest", Credential: []byte("alice:secret")}}
		}
		alice := g.another(auth)
		closed := zk.DigestACL(zk.PermAll, "alice", "secret")
		_, err := alice.Create(g.ctx, g.path("/hers"), []byte("x"), session.Persistent, closed)
		require.NoError(t, err)
		acl, _, err := alice.ACL(g.ctx, g.path("/hers"))
		require.NoError(t, err)
		require.Equal(t, closed, acl)

		_, _, err = g.Get(g.ctx, g.path("/hers"))
		require.ErrorIs(t, err, zk.ErrNoAuth)
		_, err = g.Set(g.ctx, g.path("/hers"), nil, -1)
		require.ErrorIs(t, err, zk.ErrNoAuth)
		_, err = g.SetACL(g.ctx, g.path("/hers"), everybody, -1)
		require.ErrorIs(t, err, zk.ErrNoAuth)
		_, err = g.Create(g.ctx, g.path("/hers/x"), nil, session.Ephemeral, everybody)
		require.ErrorIs(t, err, zk.ErrNoAuth)
		if _, err = g.Exists(g.ctx, g.path("/hers")); err != nil {
			// up to 3.8.3 and 3.9.1 everybody may see that a znode exists
			require.ErrorIs(t, err, zk.ErrNoAuth)
		}

		stat, err := alice.SetACL(g.ctx, g.path("/hers"),
			append(closed, zk.ACL{Perms: zk.PermRead, Scheme: "world", ID: "anyone"}), 0)
		require.NoError(t, err)
		require.EqualValues(t, 1, stat.Aversion)
		data, _, err := g.Get(g.ctx, g.path("/hers"))
		require.NoError(t, err)
		require.Equal(t, []byte("x"), data)

		both := g.another(auth, func(c *session.Config) {
			c.Auth = append(c.Auth,
				session.Auth{Scheme: "digest", Credential: []byte("bob:hidden")})
		})
		_, err = both.Create(g.ctx, g.path("/his"), nil, session.Persistent,
			zk.DigestACL(zk.PermAll, "bob", "hidden"))
		require.NoError(t, err)
		for _, p := range []string{"/hers", "/his"} {
			_, err := both.Set(g.ctx, g.path(p), nil, -1)
			require.NoError(t, err, "%s: every credential counts", p)
		}
	})
}

func TestRefusedCredentialsEndTheSession(t *testing.T) {
	everywhere(t, func(t *testing.T, g *ground) {
		for _, auth := range []session.Auth{{Scheme: "nonesuch", Credential: []byte("x")}} {
			start := time.Now()
			conf := session.Config{Auth: []session.Auth{{Scheme: "digest",
				Credential: []byte("a:b")}, auth}}
			g.config(&conf)
			_, err := session.Open(g.ctx, g.connect, conf)
			require.ErrorIs(t, err, session.ErrAuth)
			require.ErrorIs(t, err, session.ErrLost)
			require.ErrorContains(t, err, auth.Scheme, "the message names the scheme")
			require.NotContains(t, err.Error(), "a:b", "and never a credential")
			require.Less(t, time.Since(start), 10*time.Second, "it is not tried for ever")
		}
	})
}

func TestCredentialsArePresentedOnEveryConnection(t *testing.T) {
	reconnectAsAlice(t, func([]byte) {})
}

func TestCredentialsMayBeWipedOnceTheyHaveBeenHandedOver(t *testing.T) {
	reconnectAsAlice(t, func(cred []byte) { clear(cred) })
}

// reconnectAsAlice reads, on several connections in turn, what only alice may read.
func reconnectAsAlice(t *testing.T, after func(cred []byte)) {
	t.Helper()
	bubble(t, func(t *testing.T, srv *zktest.Server) {
		cred := []byte("alice:secret")
		s := open(t, srv,
			func(c *session.Config) {
				c.Auth = []session.Auth{{Scheme: "digest",
					Credential: cred}}
			})
		_, err := s.Create(within(t, soon), "/hers", nil, session.Persistent,
			zk.DigestACL(zk.PermAll, "alice", "secret"))
		require.NoError(t, err)
		after(cred)
		for range 3 {
			srv.DropConnections()
			synctest.Wait()
			_, _, err = s.Get(within(t, soon), "/hers")
			require.NoError(t, err)
			time.Sleep(2 * time.Second)
		}
	})
}

func TestCreateAndListAtTheTop(t *testing.T) {
	everywhere(t, func(t *testing.T, g *ground) {
		if g.chroot == "" {
			return // the root of a shared server belongs to no test
		}
		made, names, err := createAndList(g.ctx, g, "/x", nil, session.Ephemeral, everybody)
		require.NoError(t, err)
		require.Equal(t, "/x", made.Path)
		require.Equal(t, []string{"x"}, names)
	})
}

func TestTheChrootIsPutOnAndTakenOff(t *testing.T) {
	everywhere(t, func(t *testing.T, g *ground) {
		plain := openAt(t, g.connect, g.config)
		made, err := g.Create(g.ctx, g.path("/a-"), []byte("x"), session.PersistentSequential,
			everybody)
		require.NoError(t, err)
		require.True(t, strings.HasPrefix(made.Path, g.path("/a-")))
		data, _, err := plain.Get(g.ctx, g.chroot+made.Path)
		require.NoError(t, err)
		require.Equal(t, []byte("x"), data)
		resps, err := g.Multi(g.ctx,
			session.OpCreate{Path: g.path("/m-"), Mode: session.EphemeralSequential,
				ACL: everybody})
		require.NoError(t, err)
		require.True(t, strings.HasPrefix(resps[0].String, g.path("/m-")), resps[0].String)
		w, err := g.Watch(g.ctx, made.Path)
		require.NoError(t, err)
		require.NoError(t, plain.Delete(g.ctx, g.chroot+made.Path, -1))
		eventually(t, session.Fired(w), "the deletion seen through the chroot")
		stat, err := g.Exists(g.ctx, g.path(""))
		require.NoError(t, err)
		outside, err := plain.Exists(g.ctx, g.outside(""))
		require.NoError(t, err)
		require.Equal(t, outside, stat, "the top of the chroot is the chroot")
	})
}

func TestCreateAllMakesWhatIsMissingAndLeavesWhatIsThere(t *testing.T) {
	everywhere(t, func(t *testing.T, g *ground) {
		require.NoError(t,
			g.CreateAll(g.ctx, g.path("/a/b/c/d"), []byte("leaf"), session.Container, everybody))
		data, _, err := g.Get(g.ctx, g.path("/a/b/c/d"))
		require.NoError(t, err)
		require.Equal(t, []byte("leaf"), data)
		data, _, err = g.Get(g.ctx, g.path("/a/b"))
		require.NoError(t, err)
		require.Empty(t, data)

		require.NoError(t,
			g.CreateAll(g.ctx, g.path("/a/b/c/d"), []byte("other"), session.Persistent, everybody))
		data, _, err = g.Get(g.ctx, g.path("/a/b/c/d"))
		require.NoError(t, err)
		require.Equal(t, []byte("leaf"), data, "what is there is left as it is")
		require.NoError(t, g.CreateAll(g.ctx, g.path(""), nil, session.Persistent, everybody),
			"also the top")
		require.NoError(t, g.CreateAll(g.ctx, "/", nil, session.Persistent, everybody),
			"also the root")
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
		require.NoError(t,
			owner.CreateAll(g.ctx, g.path("/closed"), nil, session.Persistent, closed))
		_, err := owner.Create(g.ctx, g.path("/closed/open"), nil, session.Persistent, everybody)
		require.NoError(t, err)
		require.NoError(t,
			g.CreateAll(g.ctx, g.path("/closed/open/a/b"), nil, session.Persistent, everybody))
		require.ErrorIs(t,
			g.CreateAll(g.ctx, g.path("/closed/mine"), nil, session.Persistent,
				everybody), zk.ErrNoAuth)
		require.ErrorIs(t,
			g.CreateAll(g.ctx, g.path("/closed/mine/deeper"), nil, session.Persistent,
				everybody), zk.ErrNoAuth)
	})
}

func TestCreateAllOfAnExistingZnodeInADirectoryWhereWeMayNotCreate(t *testing.T) {
	everywhere(t, func(t *testing.T, g *ground) {
		readers := []zk.ACL{{Perms: zk.PermRead, Scheme: "world", ID: "anyone"}}
		require.NoError(t,
			g.CreateAll(g.ctx, g.path("/closed"), nil, session.Persistent, everybody))
		require.NoError(t,
			g.CreateAll(g.ctx, g.path("/closed/there"), nil, session.Persistent, everybody))
		_, err := g.SetACL(g.ctx, g.path("/closed"), readers, -1)
		require.NoError(t, err)
		require.NoError(t,
			g.CreateAll(g.ctx, g.path("/closed/there"), nil, session.Persistent,
				everybody), "it is there: nothing has to be made")
	})
}

func TestCreateAllGoesOnAfterALostReply(t *testing.T) {
	for n := range 6 {
		bubble(t, func(t *testing.T, srv *zktest.Server) {
			s := open(t, srv)
			srv.Inject(fault.CloseAfter().Op(fault.OpCreate).Nth(n))
			require.NoError(t,
				s.CreateAll(within(t, soon), "/a/b/c", nil, session.Persistent, everybody))
			_, there := srv.Node("/a/b/c")
			require.True(t, there)
		})
	}
}

// A sequential create has made the path that it names and a number as a server writes it, "%010d",
// and no other path.
func TestASequentialCreateHasMadeAServersNumber(t *testing.T) {
	byRule := func(number string) bool {
		n, err := strconv.ParseInt(number, 10, 32)
		return err == nil && number == fmt.Sprintf("%010d", n)
	}
	var numbers []string
	for _, n := range []int64{0, 1, -1, 999_999_999, 1_000_000_000, -999_999_999, -1_000_000_000,
		math.MaxInt32, math.MinInt32, math.MaxInt32 + 1, math.MinInt32 - 1} {
		for _, form := range []string{"%d", "%010d", "%011d", "%012d", "%+010d", "%+011d",
			"-%010d"} {
			numbers = append(numbers, fmt.Sprintf(form, n))
		}
	}
	numbers = append(numbers, "-", "+", "--", "-000000000", "-0000000000", "0x00000001",
		"0_00000001", "000000001x", " 000000001")
	accepted := 0
	for _, number := range numbers {
		want := byRule(number)
		require.Equal(t, want, session.MayHaveMade("/l/n-", "/l/n-"+number), "%q", number)
		if want {
			accepted++
		}
	}
	require.Greater(t, accepted, 8)
	require.True(t, session.MayHaveMade("/l/n-", "/l/n-"))
	require.False(t, session.MayHaveMade("/l/n-", "/l/m-0000000001"))
}
