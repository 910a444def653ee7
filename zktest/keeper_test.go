package zktest_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/zktest"
)

// ClickHouse Keeper's behaviour is taken from its sources (see zktest.Keeper22): no real one is compared here.

// keepers runs a test on a Keeper of each version.
func keepers(t *testing.T, f func(t *testing.T, s *zktest.Server, c *script)) {
	t.Helper()
	for _, v := range []zktest.Version{zktest.Keeper22, zktest.Keeper26} {
		t.Run(string(v), func(t *testing.T) { bubble(t, f, zktest.WithVersion(v)) })
	}
}

func TestAKeeperAnswersAReconnectWithANewSessionAndKeepsTheOldOneUntilItsTimeout(t *testing.T) {
	keepers(t, func(t *testing.T, s *zktest.Server, c *script) {
		c.ok(t, "a create /e m=e")
		a := c.sessions["a"]
		old := a.id
		assert.Equal(t, make([]byte, 16), a.password)
		require.NoError(t, a.nc.Close())
		nc, err := s.Dial("", "", 0)
		require.NoError(t, err)
		again := &raw{nc: nc, id: old, password: a.password}
		granted, tail, err := again.shake(30000, s.Zxid()+1000)
		require.NoError(t, err)
		assert.EqualValues(t, 30000, granted)
		assert.Empty(t, tail, "no byte for read-only")
		assert.NotEqual(t, old, again.id)
		assert.True(t, exists(s, "/e"))
		time.Sleep(31 * time.Second)
		assert.False(t, exists(s, "/e"))
		_ = nc.Close()
	})
}

func TestAKeepersSessionsLastBetweenTenAndAHundredSeconds(t *testing.T) {
	keepers(t, func(t *testing.T, s *zktest.Server, _ *script) {
		for asked, want := range map[int32]int32{1000: 10000, 40000: 40000, 1000000: 100000} {
			nc, err := s.Dial("", "", 0)
			require.NoError(t, err)
			granted, _, err := (&raw{nc: nc}).shake(asked, 0)
			require.NoError(t, err)
			assert.Equal(t, want, granted)
			_ = nc.Close()
		}
	})
}

func TestAKeeperEndsTheConnectionWithoutAnAnswerToWhatItDoesNotKnow(t *testing.T) {
	for version, lines := range map[zktest.Version][]string{
		zktest.Keeper22: {"rmwatch /x t=3", "createc /x m=c", "create2 /x", "multi create2 /x", "addwatch /x t=0", "whoami",
			"setwatches", "ephemerals /", "multiread get /x", "raw 1 00", "close"},
		zktest.Keeper26: {"whoami", "ephemerals /", "count /", "deletec /x", "raw 1 00", "close"},
	} {
		t.Run(string(version), func(t *testing.T) {
			bubble(t, func(t *testing.T, s *zktest.Server, c *script) {
				for i, line := range lines {
					name := string(rune('a' + i))
					c.ok(t, name+" create /"+name+" m=e")
					assert.Contains(t, c.do(t, name+" "+line), ": closed", line)
					assert.Equal(t, line != "close", exists(s, "/"+name), line)
				}
				assert.False(t, exists(s, "/x"))
			}, zktest.WithVersion(version))
		})
	}
}

func TestALaterKeeperServesContainersTTLsAndRemoveWatches(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server, c *script) {
		c.ok(t, "a createc /c m=c", "a create2 /x", "a createttl /t m=t ttl=1000", "a get /x w", "a rmwatch /x t=2")
		c.refused(t, "a rmwatch /x t=2", zktest.CodeNoWatcher)
		assert.Contains(t, c.do(t, "a multi createc /d m=c ; create /e m=e"), "(19 false 0", "a container's result has its own type")
	}, zktest.WithVersion(zktest.Keeper26))
}

func TestAKeepersReadsOnAFollowerKeepNoSessionAliveButPingsDo(t *testing.T) {
	keepers(t, func(t *testing.T, s *zktest.Server, _ *script) {
		m, err := s.Follower()
		require.NoError(t, err)
		c := scriptOn(t, m.Dial)
		c.do(t, "pings connect t=10000")
		c.do(t, "reads connect t=10000")
		for range 9 {
			time.Sleep(2 * time.Second)
			c.ok(t, "pings ping")
			if len(s.Sessions()) == 2 {
				c.ok(t, "reads exists /")
			}
		}
		require.Len(t, s.Sessions(), 1)
		assert.Equal(t, c.sessions["pings"].id, s.Sessions()[0].ID)
	})
}

func TestAKeepersPingsWaitForTheLeader(t *testing.T) {
	keepers(t, func(t *testing.T, s *zktest.Server, _ *script) {
		m, err := s.Follower()
		require.NoError(t, err)
		c := scriptOn(t, m.Dial)
		c.ok(t, "a exists /")
		m.CutOff()
		c.ok(t, "a exists /")
		require.NoError(t, c.step("a quiet ping"))
		began := time.Now()
		time.AfterFunc(3*time.Second, m.Heal)
		require.NoError(t, s.Await(t.Context(), func() bool { return s.Requests()[zktest.OpPing] == 1 }))
		assert.Equal(t, 3*time.Second, time.Since(began))
	})
}

func TestAKeeperNotifiesAllWatchersTwiceOfADeletionAndNeverWithTheZxid(t *testing.T) {
	keepers(t, func(t *testing.T, _ *zktest.Server, c *script) {
		c.ok(t, "a auth digest u:p", "a create /x acl=31:auth:", "b exists /x w", "a ls /x w", "a get /x w")
		c.ok(t, "a set /x d=1", "a get /x w", "a delete /x")
		assert.Contains(t, c.do(t, "b ping"), "b ! 3 3 /x zxid=-1")
		trace := strings.Join(c.trace, "\n")
		assert.Equal(t, 2, strings.Count(trace, "a ! 2 3 /x zxid=-1"), trace)
	})
}

func TestAKeeperRaisesCversionOnChildWritesAndKeepsPzxidOnChildDeletions(t *testing.T) {
	keepers(t, func(t *testing.T, s *zktest.Server, c *script) {
		c.ok(t, "a create /d", "a create /d/x")
		before, _ := s.Node("/d")
		c.ok(t, "a set /d/x d=1")
		written, _ := s.Node("/d")
		assert.Equal(t, before.Stat.Cversion+1, written.Stat.Cversion)
		c.ok(t, "a delete /d/x")
		deleted, _ := s.Node("/d")
		assert.Equal(t, before.Stat.Pzxid, deleted.Stat.Pzxid)
		assert.Equal(t, written.Stat.Cversion+1, deleted.Stat.Cversion)
	})
}

func TestAKeeperKeepsOnlyEntriesOfAccessListsThatRestrict(t *testing.T) {
	keepers(t, func(t *testing.T, s *zktest.Server, c *script) {
		c.ok(t, "a create /open acl=read", "a auth digest u:p", "a create /mine acl=31:auth:,1:world:anyone", "b set /open d=1")
		open, _ := s.Node("/open")
		assert.Empty(t, open.ACL)
		c.refused(t, "b get /mine", zktest.CodeNoAuth)
		c.ok(t, "b exists /mine")
		c.refused(t, "b create /x acl=31:ip:127.0.0.1", zktest.CodeInvalidACL)
		c.refused(t, "b auth digest nocolon", zktest.CodeAuthFailed)
		c.ok(t, "b auth digest u:p", "b get /mine")
	})
}

func TestAMultiWithoutPermissionIsRefusedAsAWholeByAnEarlyKeeperAndByOperationByALaterOne(t *testing.T) {
	keepers(t, func(t *testing.T, _ *zktest.Server, c *script) {
		c.ok(t, "a auth digest u:p", "a create /d acl=31:auth:")
		answer := c.do(t, "b multi create /x ; create /d/x")
		if strings.HasSuffix(t.Name(), string(zktest.Keeper22)) {
			assert.Contains(t, answer, "code=-102")
		} else {
			assert.Contains(t, answer, "code=0 (-1 false 0 err=0) (-1 false -102 err=-102)")
		}
	})
}
