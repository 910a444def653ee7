package zklock_test

import (
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/tests/ensemble"
	"github.com/zklock/locker/tests/locktest"
	"github.com/zklock/locker/zklock"
)

// scenario 49 on a real server: at the end of its counter numbers repeat and, when creates overlap, are negative. Contenders of every
// kind still hold one at a time, and tokens grow, both where the directory can be renewed once it is empty, and where it cannot.
func TestScenario49_AtARealServersCounterEndOneHoldsAtATime(t *testing.T) {
	s := locktest.OwnSite(t, 1, ensemble.WithCounter(t, "/w", math.MaxInt32-2))
	const dir, clients, each, rounds = "/w", 3, 4, 3
	var cs []*zklock.Client
	for range clients {
		cs = append(cs, s.Client(t))
	}
	other, err := s.Client(t).Session(locktest.Soon(t))
	require.NoError(t, err)
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
							_, h, err := kind.lock(c, dir)(locktest.Late(t))
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
