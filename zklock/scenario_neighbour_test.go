package zklock_test

import (
	"context"
	"fmt"
	"math"
	"path"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/tests/locktest"
	"github.com/zklock/locker/zklock"
)

// Scenario 48: a neighbour that may only create, under any name. Package recipe tests the
// decisions.

// anyKind takes a lock of one kind, which only one client at a time can hold.
type anyKind struct {
	name string
	mark string // of its contenders' names
	lock func(c *zklock.Client, dir string, opts ...zklock.LockOption) locktest.Acquire
}

var anyKinds = []anyKind{
	{"mutex", "-lock-",
		func(c *zklock.Client, dir string, opts ...zklock.LockOption) locktest.Acquire {
			return c.Mutex(dir, opts...).Lock
		}},
	{"local handoff", "-lock-",
		func(c *zklock.Client, dir string, opts ...zklock.LockOption) locktest.Acquire {
			return c.Mutex(dir, append(opts, zklock.WithLocalHandoff())...).Lock
		}},
	{"writer", "-__WRIT__",
		func(c *zklock.Client, dir string, opts ...zklock.LockOption) locktest.Acquire {
			return c.RWMutex(dir, opts...).Lock
		}},
	{"semaphore", "-lease-1-",
		func(c *zklock.Client, dir string, opts ...zklock.LockOption) locktest.Acquire {
			return locktest.Permits(c.Semaphore(dir, 1, opts...), 1)
		}},
	{"multilock", "-lock-",
		func(c *zklock.Client, dir string, opts ...zklock.LockOption) locktest.Acquire {
			return c.MultiLock([]string{dir, dir + "-2"}, opts...).Lock
		}},
	{"election", "-lock-",
		func(c *zklock.Client, dir string, opts ...zklock.LockOption) locktest.Acquire {
			return locktest.Campaign(c.Election(dir, opts...), "value")
		}},
}

// scenario 48: a foreign child with any number, anywhere in the list, lets no client hold beside
// the holder, and does not change the order of two others; observers see who leads. Once it is
// deleted, the lock goes on.
func TestScenario48_AForeignChildWithAnyNumberChangesNothingForTheOthers(t *testing.T) {
	const own = 1000
	numbers := []int32{
		// half the circle away from them
		math.MinInt32, math.MinInt32 + 1, own - math.MaxInt32, own - math.MaxInt32 + 2,
		own + math.MinInt32 + 5,
		-1, 0, own - 1, own, own + 1, own + 2, own + 3, 1 << 30, math.MaxInt32 - 1, math.MaxInt32,
	}
	for _, kind := range anyKinds {
		t.Run(kind.name, func(t *testing.T) {
			for _, number := range numbers {
				for _, first := range []string{"!", "~"} { // the server lists by name
					locktest.Simulate(t, func(s *locktest.Sim) {
						says := fmt.Sprintf("%s: %d, listed %s", kind.name, number,
							map[string]string{"!": "first", "~": "last"}[first])
						dir, a, b, c, other := s.Dir(
							"/locks/a"), s.Client(), s.Client(), s.Client(), s.Stranger()
						require.NoError(s, s.Server.SetSequence(dir, own))
						held := s.Take(kind.lock(a.Client, dir))
						forged := fmt.Sprintf("%s/%s%s%010d", dir, first, kind.mark, number)
						s.Plant(other, forged)
						second := s.Start(kind.lock(b.Client, dir))
						third := s.Start(kind.lock(c.Client, dir))
						time.Sleep(time.Minute)
						require.False(s, second.Over() || third.Over(), "two holders: %s", says)
						s.Owned(a, held)

						if kind.name == "election" {
							leader, err := c.Election(dir).Leader(s.Context())
							require.NoError(s, err)
							require.Equal(s, held.Node(), leader.Node, says)
						}
						require.Equal(s, []int64{a.SessionID(), b.SessionID(), c.SessionID()},
							sessionsInLine(s, c.Client, dir, other.ID()), says)

						s.Unlock(held)
						synctest.Wait()
						require.False(s, third.Over(), "overtaken: %s", says)
						require.NoError(s, other.Delete(s.Context(), forged, -1))
						s.Unlock(second.Get(s))
						s.Unlock(third.Get(s))
						s.Empty(time.Minute, dir)
					})
				}
			}
		})
	}
}

// sessionsInLine returns the sessions of the contenders in line, in order, without those of one
// neighbour.
func sessionsInLine(s *locktest.Sim, c *zklock.Client, dir string, but int64) []int64 {
	s.Helper()
	line, err := locktest.Queue(s.Context(), c, dir)
	require.NoError(s, err)
	var ids []int64
	for _, k := range line {
		if k.Session != but {
			ids = append(ids, k.Session)
		}
	}
	return ids
}

// scenario 48, observed: a foreign child that puts itself before the leader by its number is not
// taken for one.
func TestScenario48_ObserversDoNotFollowAForeignChildThatPutsItselfFirst(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		dir, a, b, other := s.Dir("/locks/a"), s.Client(), s.Client(), s.Stranger()
		require.NoError(s, s.Server.SetSequence(dir, 1000))
		first := lead(s, a.Election(dir), "first")
		ctx, cancel := context.WithCancel(s.Context())
		defer cancel()
		var seen []string
		done := make(chan struct{})
		for _, name := range []string{"!-lock-0000000000", "~-lock-0000000999",
			"!-lock--2147483648"} {
			s.Plant(other, dir+"/"+name)
		}
		go func() {
			defer close(done)
			for leader, err := range b.Election(dir).Observe(ctx) {
				if err == nil {
					seen = append(seen, path.Base(leader.Node)+" "+string(leader.Value))
				}
			}
		}()
		synctest.Wait()
		cancel()
		<-done
		require.Equal(s, []string{path.Base(first.Node()) + " first"}, seen)
		s.Unlock(first)
	})
}

// scenario 48, long names: a contender whose name is longer than any path of ours may be is waited
// for like any other.
func TestScenario48_AContenderWithAVeryLongNameIsWaitedFor(t *testing.T) {
	for _, kind := range anyKinds {
		t.Run(kind.name, func(t *testing.T) {
			locktest.Simulate(t, func(s *locktest.Sim) {
				dir, a := s.Dir("/locks/a"), s.Client()
				node := dir + "/" + strings.Repeat("x", 10_000) + kind.mark + "0000000000"
				require.NoError(s, s.Server.Create(node, nil))
				call := s.Start(kind.lock(a.Client, dir))
				time.Sleep(time.Minute)
				require.False(s, call.Over())
				ctx, cancel := context.WithTimeout(s.Context(), time.Second)
				defer cancel()
				_, _, err := kind.lock(a.Client, dir)(ctx)
				require.ErrorContains(s, err, "3rd in line")
				require.Less(s, len(err.Error()), 1000, "the name is cut")
				require.NoError(s, s.Server.Delete(node))
				s.Unlock(call.Get(s))
			})
		})
	}
}
