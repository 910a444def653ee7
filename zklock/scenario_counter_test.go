package zklock_test

import (
	"fmt"
	"math"
	"path"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/tests/locktest"
	"github.com/zklock/locker/zklock"
	"github.com/zklock/locker/zktest"
)

// Scenario 49: a directory's counter near its end, and how a directory is renewed.

const (
	counterHalf   = 1 << 30
	counterThree4 = 3 << 29
)

// closedParent makes a directory at the end of its counter that cannot be deleted, because its
// parent refuses deletions.
func closedParent(s *locktest.Sim, counter int32) string {
	s.Helper()
	dir := s.Dir("/locks/a")
	require.NoError(s, s.Server.Create("/locks/a-2", nil))
	other := s.Stranger()
	_, err := other.SetACL(s.Context(), "/locks",
		[]zk.ACL{{Perms: zk.PermRead | zk.PermCreate, Scheme: "world", ID: "anyone"}}, -1)
	require.NoError(s, err)
	require.NoError(s, s.Server.SetSequence(dir, counter))
	require.NoError(s, s.Server.SetSequence(dir+"-2", counter))
	return dir
}

// scenario 49: at the counter's end, where all get one number, or negative ones while creates
// overlap, contenders of every kind hold one at a time, in the order in which they entered. (The
// directory can't be renewed here.)
func TestScenario49_AtTheCountersEndOneHoldsAtATimeInOrder(t *testing.T) {
	for _, kind := range anyKinds {
		for _, counter := range []int32{counterThree4 - 3, math.MaxInt32 - 3, math.MaxInt32} {
			for _, overlap := range []int{0, 4} {
				t.Run(fmt.Sprintf("%s from %d, %d overlap", kind.name, counter, overlap),
					func(t *testing.T) {
						locktest.Simulate(t, func(s *locktest.Sim) {
							dir := closedParent(s, counter)
							var calls []*locktest.Call
							for i := range 8 {
								if overlap > 0 && i%3 == 1 {
									require.NoError(s, s.Server.Overlap(dir, overlap))
								}
								calls = append(calls, s.Start(kind.lock(s.Client().Client, dir)))
							}
							looker := s.Client()
							for i, call := range calls {
								held := call.Get(s)
								time.Sleep(time.Second)
								for _, later := range calls[i+1:] {
									require.False(s, later.Over(), "two holders")
								}
								line, err := locktest.Queue(s.Context(), looker.Client, dir)
								require.NoError(s, err)
								require.Len(s, line, len(calls)-i)
								require.Equal(s, held.Node(), line[0].Node,
									"the holder is shown first")
								require.True(s, line[0].Holds)
								for k := range line[1:] {
									require.False(s, line[k+1].Holds)
									require.Less(s, line[k].Token, line[k+1].Token,
										"shown in order")
								}
								if kind.name == "election" {
									leader, err := looker.Election(dir).Leader(s.Context())
									require.NoError(s, err)
									require.Equal(s, held.Node(), leader.Node)
								}
								s.Unlock(held)
							}
							s.Empty(time.Minute, dir)
						})
					})
			}
		}
	}
}

// A directory whose counter is past the half is renewed when a release finds it empty, with the
// same data, ACL and kind; tokens still grow. Before that, and for a directory with a lower
// counter, there is no additional request.
func TestADirectoryPastHalfOfItsCounterIsRenewedWhenItIsEmpty(t *testing.T) {
	for _, kind := range anyKinds {
		t.Run(kind.name, func(t *testing.T) {
			locktest.Simulate(t, func(s *locktest.Sim) {
				dir, a, b, other := s.Dir("/locks/a"), s.Client(), s.Client(), s.Stranger()
				s.Unlock(s.Take(kind.lock(a.Client, dir))) // a semaphore's size is written
				acl := []zk.ACL{{Perms: 31, Scheme: "world", ID: "anyone"},
					{Perms: zk.PermRead, Scheme: "ip", ID: "10.0.0.1"}}
				_, err := other.SetACL(s.Context(), dir, acl, -1)
				require.NoError(s, err)
				before, _ := s.Server.Node(dir)

				require.NoError(s, s.Server.SetSequence(dir, counterHalf-1))
				first := s.Take(kind.lock(a.Client, dir))
				s.Unlock(first)
				s.Empty(time.Minute, dir)
				node, _ := s.Server.Node(dir)
				require.Equal(s, before.Stat.Czxid, node.Stat.Czxid, "not yet")

				second := s.Take(kind.lock(a.Client, dir))
				require.Equal(s, fmt.Sprint(counterHalf),
					path.Base(second.Node())[len(path.Base(second.Node()))-10:])
				third := s.Start(kind.lock(b.Client, dir))
				s.Unlock(second)
				held := third.Get(s)
				node, _ = s.Server.Node(dir)
				require.Equal(s, before.Stat.Czxid, node.Stat.Czxid,
					"not while somebody stands in it")
				s.Unlock(held)
				s.Until(time.Minute, "a new directory", func() bool {
					node, _ = s.Server.Node(dir)
					return node.Stat.Czxid > before.Stat.Czxid
				})
				require.Equal(s, before.Data, node.Data)
				require.Equal(s,
					[]zktest.ACL{{Perms: 31, Scheme: "world", ID: "anyone"},
						{Perms: 1, Scheme: "ip", ID: "10.0.0.1"}}, node.ACL)
				require.Zero(s, node.Stat.EphemeralOwner)

				last := s.Take(kind.lock(b.Client, dir))
				require.True(s, strings.HasSuffix(last.Node(), "0000000000"))
				require.Greater(s, last.Token(), held.Token())
				s.Unlock(last)
				s.Empty(time.Minute, dir)
				synctest.Wait()
				require.Zero(s, s.Server.WatchCount())
			})
		})
	}
}

// A renewed container is a container, and is deleted when it is unused.
func TestARenewedContainerStaysAContainer(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		dir, c := "/locks/a", s.Client()
		m := c.Mutex(dir, zklock.WithContainer())
		s.Unlock(s.Lock(m))
		require.NoError(s, s.Server.SetSequence(dir, counterHalf))
		before, _ := s.Server.Node(dir)
		s.Unlock(s.Lock(m))
		synctest.Wait()
		node, ok := s.Server.Node(dir)
		require.True(s, ok)
		require.Greater(s, node.Stat.Czxid, before.Stat.Czxid)
		s.Until(time.Hour, "the container is gone", func() bool {
			_, there := s.Server.Node(dir)
			return !there
		})
	})
}

// A directory that cannot be renewed stays, and no call fails: there is no permission to delete it,
// or to read the digests of its ACL, which would be lost.
func TestADirectoryThatCantBeRenewedIsLeftAsItIs(t *testing.T) {
	for name, acl := range map[string]map[string][]zk.ACL{
		"no permission to delete": {"/locks": {{Perms: zk.PermRead | zk.PermCreate, Scheme: "world",
			ID: "anyone"}}},
		"no permission to create": {"/locks": {{Perms: zk.PermRead | zk.PermDelete, Scheme: "world",
			ID: "anyone"}}},
		"digests that are hidden": {"/locks/a": append(zk.DigestACL(zk.PermAll, "u", "p"),
			zk.ACL{Perms: zk.PermRead | zk.PermCreate | zk.PermDelete, Scheme: "world",
				ID: "anyone"})},
	} {
		t.Run(name, func(t *testing.T) {
			locktest.Simulate(t, func(s *locktest.Sim) {
				dir, c, other := s.Dir("/locks/a"), s.Client(), s.Stranger()
				for p, list := range acl {
					_, err := other.SetACL(s.Context(), p, list, -1)
					require.NoError(s, err)
				}
				before, _ := s.Server.Node(dir)
				for _, counter := range []int32{counterHalf, counterThree4, math.MaxInt32} {
					require.NoError(s, s.Server.SetSequence(dir, counter))
					first := s.Lock(c.Mutex(dir))
					second := s.Start(c.Mutex(dir).Lock)
					if name != "no permission to create" { // of which no client is notified before
						require.Len(s, s.Server.Children(dir), 2, "it waits in line")
					}
					s.Unlock(first)
					s.Unlock(second.Get(s))
					s.Empty(time.Minute, dir)
					node, _ := s.Server.Node(dir)
					require.Equal(s, before.Stat.Czxid, node.Stat.Czxid)
					require.Equal(s, before.ACL, node.ACL)
				}
			})
		})
	}
}
