package zktest_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/zktest"
	"github.com/zklock/locker/zktest/fault"
)

// follower adds a member to s and returns it with a scripted client of it.
func follower(t *testing.T, s *zktest.Server) (*zktest.Member, *script) {
	t.Helper()
	m, err := s.Follower()
	require.NoError(t, err)
	return m, scriptOn(t, m.Dial)
}

func TestFollowerServesReadsFromAnOlderStateUntilASync(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server, lead *script) {
		m, c := follower(t, s)
		c.ok(t, "f exists / w", "f ping")
		m.Lag(2)
		lead.ok(t, "a create /1", "a create /2", "a create /3")
		c.refused(t, "f exists /3", fault.CodeNoNode)
		c.refused(t, "f exists /2", fault.CodeNoNode)
		c.ok(t, "f exists /1")
		assert.Equal(t, s.Zxid()-2, m.Zxid())
		c.ok(t, "f sync /", "f exists /3")
		lead.ok(t, "a create /4")
		c.refused(t, "f exists /4", fault.CodeNoNode)
		c.ok(t, "f create /5", "f exists /4")
		lead.ok(t, "a exists /5", "a create /6")
		m.Lag(0)
		c.ok(t, "f exists /6")
	})
}

func TestWatchesOnALaggingFollowerFireLate(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server, lead *script) {
		m, c := follower(t, s)
		c.refused(t, "f exists /x w", fault.CodeNoNode)
		m.Lag(1)
		lead.ok(t, "a create /x")
		assert.NotContains(t, c.do(t, "f ping"), "!")
		lead.ok(t, "a create /y")
		assert.Contains(t, c.do(t, "f ping"), "f ! 1 3 /x")
	})
}

func TestClientAheadOfALaggingFollowerIsRefused(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server, lead *script) {
		m, _ := follower(t, s)
		m.Lag(5)
		lead.ok(t, "a create /1", "a create /2")

		nc, err := m.Dial("", "", 0)
		require.NoError(t, err)
		r := &raw{nc: nc}
		_, _, err = r.shake(10000, s.Zxid())
		require.Error(t, err)
	})
}

func TestWritesSyncsAndHandshakesWaitForTheLeader(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server, lead *script) {
		m, c := follower(t, s)
		c.ok(t, "f ping")
		m.CutOff()
		c.send(t, "f create /x")
		assert.Equal(t, "g connect: closed", c.do(t, "g connect"))
		synctest.Wait()
		assert.False(t, exists(s, "/x"))
		m.Heal()
		synctest.Wait()
		assert.True(t, exists(s, "/x"))
		c.ok(t, "h ping")
		m.CutOff()
		assert.Equal(t, "h sync: silent", c.do(t, "h sync /"))
	})
}

func TestADeposedLeaderAnswersSyncsFromItsOwnStateAndCommitsNothing(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server, lead *script) {
		m, c := follower(t, s)
		c.do(t, "f connect t=10000")
		c.ok(t, "f create /e m=e")
		m.Depose()
		for range 20 {
			time.Sleep(time.Second)
			c.ok(t, "f ping", "f sync /", "f exists /e")
		}
		assert.False(t, exists(s, "/e"), "for the others its session is over")
		c.send(t, "f create /x")
		synctest.Wait()
		assert.False(t, exists(s, "/x"))
		m.Heal()
		assert.Equal(t, "f eof: closed", c.do(t, "f eof"))
		m.CutOff()
		assert.Equal(t, "g connect: closed", c.do(t, "g connect"))
		s.Leader().Depose()
		lead.ok(t, "a sync /", "a create /z")
	})
}

func TestOneDialerReachesAllMembersByAddress(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server, lead *script) {
		m, _ := follower(t, s)
		m.Down()
		_, err := s.Dial("tcp", m.Addr(), time.Second)
		require.Error(t, err)
		lead.ok(t, "a ping")
		m.Up()
		nc, err := s.Dial("tcp", m.Addr(), time.Second)
		require.NoError(t, err)
		require.NoError(t, nc.Close())
		assert.Equal(t, s.Addr(), s.Leader().Addr())
		in := m.Inject(fault.Refuse())
		_, err = s.Dial("tcp", m.Addr(), time.Second)
		require.Error(t, err)
		lead.ok(t, "b ping")
		assert.Equal(t, 1, in.Hits())
	})
}

func TestFollowerOverTCP(t *testing.T) {
	s := zktest.Run(t)
	m, err := s.Follower()
	require.NoError(t, err)
	require.NotEqual(t, s.Addr(), m.Addr())
	assert.Contains(t, fourLetters(t, s.Addr(), "srvr"), "Mode: leader")
	assert.Contains(t, fourLetters(t, m.Addr(), "srvr"), "Mode: follower")
}
