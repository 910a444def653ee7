package zklock_test

import (
	"context"
	"fmt"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/internal/ensemble"
	"github.com/zklock/locker/internal/locktest"
	"github.com/zklock/locker/session"
	"github.com/zklock/locker/zklock"
)

// Scenarios 48 and 49 on real servers: made-up numbers, and the counter's end.

// sessionOf opens a session of another program, without credentials.
func sessionOf(t *testing.T, s *locktest.Site) *session.Session {
	t.Helper()
	other, err := session.Open(locktest.Soon(t), s.Connect(), session.Config{Timeout: s.LongTimeout(), ServerTick: s.Tick})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, other.Close()) })
	return other
}

// scenario 48 on a real server, whose lists have no order: a neighbour with only CREATE makes up contenders whose numbers are half
// the circle away. No client holds beside the holder, and all see who leads.
func TestScenario48_ANeighbourThatMayOnlyCreateLetsNoContenderInOnARealServer(t *testing.T) {
	s := locktest.SiteBeside(t, 1)
	auth := zklock.WithAuth("digest", []byte("owner:secret"))
	acl := append(zk.DigestACL(zk.PermAll, "owner", "secret"), zk.ACL{Perms: zk.PermCreate, Scheme: "world", ID: "anyone"})
	a, b := s.Client(t, auth), s.Client(t, auth)
	for _, kind := range anyKinds {
		dir := s.Path(t) + kind.mark
		held, err := kind.lock(a, dir, zklock.WithACL(acl...))(locktest.Soon(t))
		require.NoError(t, err)
		other := sessionOf(t, s)
		_, _, err = other.List(locktest.Soon(t), dir)
		require.ErrorIs(t, err, zk.ErrNoAuth, "it has nothing but CREATE")
		for i := range 100 {
			name := fmt.Sprintf("%s/%x%s%010d", dir, i*7919, kind.mark, -math.MaxInt32+i%3)
			_, err := other.Create(locktest.Soon(t), name, nil, session.Ephemeral, session.WorldACL())
			require.NoError(t, err)
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		hold, err := kind.lock(b, dir, zklock.WithACL(acl...))(ctx)
		cancel()
		require.Nil(t, hold, "%s: two holders", kind.name)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		if kind.name == "election" {
			leader, err := b.Election(dir).Leader(locktest.Soon(t))
			require.NoError(t, err)
			require.Equal(t, held.Node(), leader.Node)
		}
		next := make(chan *zklock.Hold, 1)
		var join sync.WaitGroup
		join.Go(func() {
			h, err := kind.lock(b, dir, zklock.WithACL(acl...))(locktest.Soon(t))
			if err != nil {
				t.Error(err)
			}
			next <- h
		})
		locktest.Unlock(t, held)
		require.NoError(t, other.Close())
		join.Wait()
		locktest.Unlock(t, <-next)
	}
}

// siteAtCounter starts a server whose counter of /w is at n.
func siteAtCounter(t *testing.T, n int32, opts ...ensemble.Option) *locktest.Site {
	t.Helper()
	return locktest.OwnSite(t, 1, append(opts, ensemble.WithCounter(t, "/w", n))...)
}

// scenario 49 on a real server: at the end of its counter numbers repeat and, when creates overlap, are negative. Contenders of every
// kind still hold one at a time, and tokens grow, both where the directory can be renewed once it is empty, and where it cannot.
func TestScenario49_AtARealServersCounterEndOneHoldsAtATime(t *testing.T) {
	s := siteAtCounter(t, math.MaxInt32-2)
	const dir, clients, each, rounds = "/w", 3, 4, 3
	var cs []*zklock.Client
	for range clients {
		cs = append(cs, s.Client(t))
	}
	other := sessionOf(t, s)
	for _, perms := range []int32{zk.PermAll, zk.PermRead | zk.PermCreate} {
		_, err := other.SetACL(locktest.Soon(t), "/", []zk.ACL{{Perms: perms, Scheme: "world", ID: "anyone"}}, -1)
		require.NoError(t, err)
		for _, kind := range anyKinds {
			var inside, negative atomic.Int32
			var last zklock.Token
			var join sync.WaitGroup
			for _, c := range cs {
				for range each {
					join.Go(func() {
						for range rounds {
							h, err := kind.lock(c, dir)(locktest.Late(t))
							if err != nil {
								t.Error(err)
								return
							}
							if n := inside.Add(1); n != 1 {
								t.Errorf("%s: %d holders at once", kind.name, n)
							}
							if h.Token() <= last && kind.name != "local handoff" {
								t.Errorf("%s: token %d after %d", kind.name, h.Token(), last)
							}
							last = h.Token()
							if n := h.Node(); strings.Contains(n, "--2") || strings.Contains(n, "__-2") {
								negative.Add(1)
							}
							locktest.Pass(time.Millisecond) // work
							inside.Add(-1)
							locktest.Unlock(t, h)
						}
					})
				}
			}
			join.Wait()
			t.Logf("%s, permissions %d: %d of %d had negative numbers", kind.name, perms, negative.Load(), clients*each*rounds)
		}
	}
}

// A real server renews a directory: the new one has the old one's data and ACL.
func TestARealServersDirectoryIsRenewed(t *testing.T) {
	s := siteAtCounter(t, counterHalf, ensemble.WithContainerCheck(200*time.Millisecond))
	ctx := locktest.Soon(t)
	c, other := s.Client(t), sessionOf(t, s)
	acl := []zk.ACL{{Perms: 31, Scheme: "world", ID: "anyone"}, {Perms: zk.PermRead, Scheme: "ip", ID: "10.0.0.1"}}
	_, err := other.SetACL(ctx, "/w", acl, -1)
	require.NoError(t, err)
	_, err = other.Set(ctx, "/w", []byte("somebody's"), -1)
	require.NoError(t, err)
	before, err := other.Exists(ctx, "/w")
	require.NoError(t, err)

	first := locktest.Lock(t, c.Mutex("/w"))
	require.Contains(t, first.Node(), fmt.Sprint(counterHalf))
	locktest.Unlock(t, first)
	require.NoError(t, other.Delete(ctx, "/w/seed", -1)) // which has kept it from being empty
	second := locktest.Lock(t, c.Mutex("/w"))
	locktest.Unlock(t, second)
	renewed := func() bool {
		stat, err := other.Exists(ctx, "/w")
		return err == nil && stat.Czxid > before.Czxid
	}
	require.Eventually(t, renewed, locktest.Bound, 10*time.Millisecond)
	data, _, err := other.Get(ctx, "/w")
	require.NoError(t, err)
	require.Equal(t, "somebody's", string(data))
	kept, _, err := other.ACL(ctx, "/w")
	require.NoError(t, err)
	require.Equal(t, acl, kept)
	third := locktest.Lock(t, c.Mutex("/w"))
	require.Contains(t, third.Node(), "-0000000000")
	require.Greater(t, third.Token(), second.Token())
	locktest.Unlock(t, third)
}

// A container is renewed as a container, which the server deletes when it is unused.
func TestARealServersContainerIsRenewedAsOne(t *testing.T) {
	s := siteAtCounter(t, counterHalf, ensemble.WithContainerCheck(200*time.Millisecond))
	ctx := locktest.Soon(t)
	c, other := s.Client(t), sessionOf(t, s)
	require.NoError(t, other.Delete(ctx, "/w/seed", -1))
	locktest.Unlock(t, locktest.Lock(t, c.Mutex("/w", zklock.WithContainer())))
	require.Eventually(t, func() bool { // the old one was no container, so only a renewed one is deleted by the server
		_, err := other.Exists(ctx, "/w")
		return err != nil
	}, locktest.Bound, 10*time.Millisecond)
}
