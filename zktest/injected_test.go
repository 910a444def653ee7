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

func TestARequestWhoseReplyIsDroppedIsCommitted(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server, c *script) {
		in := s.Inject(fault.DropReply().Op(fault.OpCreate).Path("/a/*").Nth(3))
		c.ok(t, "a create /a", "a create /a/1", "a create /a/2")
		assert.Equal(t, 0, in.Hits())
		assert.Equal(t, "a create: silent", c.do(t, "a create /a/3"))
		assert.Equal(t, 1, in.Hits())
		assert.True(t, exists(s, "/a/3"))
		c.ok(t, "b create /a/4")
	})
}

func TestConnectionSurvivesADroppedReply(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server, c *script) {
		s.Inject(fault.DropReply().Op(fault.OpCreate).Once())
		c.send(t, "a create /x")
		c.ok(t, "a exists /x")
	})
}

func TestDroppedRequestLeavesNothing(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server, c *script) {
		c.ok(t, "a ping")
		in := s.Inject(fault.DropRequest().Op(fault.OpCreate))
		z := s.Zxid()
		c.send(t, "a create /x")
		c.ok(t, "a ping")
		assert.Equal(t, z, s.Zxid())
		assert.False(t, exists(s, "/x"))
		assert.Zero(t, s.Requests()[fault.OpCreate])
		in.Remove()
		c.ok(t, "a create /x")
	})
}

func TestADroppedRequestDoesNotKeepTheSessionAlive(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server, c *script) {
		c.do(t, "a connect t=4000")
		s.Inject(fault.DropRequest().Op(fault.OpPing))
		for range 4 {
			time.Sleep(2 * time.Second)
			c.send(t, "a ping")
		}
		synctest.Wait()
		assert.Empty(t, s.Sessions())
	})
}

func TestDelayedRequestIsCarriedOutLater(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server, c *script) {
		c.ok(t, "a ping")
		s.Inject(fault.Delay(3 * time.Second).Op(fault.OpCreate))
		start := time.Now()
		c.send(t, "a create /x")
		time.Sleep(3*time.Second - 1)
		synctest.Wait()
		assert.False(t, exists(s, "/x"))
		c.ok(t, "a ping") // reads the create's reply as its own: that comes first
		assert.Equal(t, 3*time.Second, time.Since(start))
	})
}

func TestARequestWhoseReplyIsDelayedIsCarriedOutAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server, c *script) {
		c.ok(t, "a ping")
		s.Inject(fault.DelayReply(3 * time.Second).Op(fault.OpCreate))
		start := time.Now()
		c.send(t, "a create /x")
		synctest.Wait()
		assert.True(t, exists(s, "/x"))
		c.ok(t, "a ping") // reads the create's reply as its own: that comes first
		assert.Equal(t, 3*time.Second, time.Since(start))
	})
}

func TestHeldRequestWaitsForRelease(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server, c *script) {
		c.ok(t, "a ping", "b ping")
		in := s.Inject(fault.Hold().Op(fault.OpCreate).Path("/x"))
		c.send(t, "a create /x")
		<-in.Hit()
		synctest.Wait()
		assert.False(t, exists(s, "/x"))
		c.ok(t, "b create /y") // others go on
		in.Release()
		synctest.Wait()
		assert.True(t, exists(s, "/x"))
		c.send(t, "b create /x")
		synctest.Wait()
		assert.Equal(t, 2, in.Hits())
		in.Remove()
		synctest.Wait()
		assert.Equal(t, 3, s.Requests()[fault.OpCreate])
	})
}

func TestARequestWhoseReplyIsHeldIsCarriedOutAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server, c *script) {
		c.ok(t, "a ping")
		in := s.Inject(fault.HoldReply().Op(fault.OpCreate))
		c.send(t, "a create /x")
		require.NoError(t, in.Wait(t.Context(), 1))
		synctest.Wait()
		assert.True(t, exists(s, "/x"))
		assert.Equal(t, "a ping: silent", c.do(t, "a ping")) // it waits behind the create
		in.Release()
	})
}

func TestHeldRequestOfAClientThatLeftIsStillCarriedOut(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server, c *script) {
		c.ok(t, "a ping")
		in := s.Inject(fault.Hold().Op(fault.OpCreate))
		c.send(t, "a create /x")
		<-in.Hit()
		c.do(t, "a drop")
		synctest.Wait()
		assert.False(t, s.Sessions()[0].Connected)
		in.Release()
		synctest.Wait()
		assert.True(t, exists(s, "/x"))
	})
}

func TestCloseBeforeAndCloseAfterDifferInWhetherTheRequestIsCarriedOut(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server, c *script) {
		c.ok(t, "a ping", "b ping")
		s.Inject(fault.CloseBefore().Path("/x").Once())
		assert.Equal(t, "a create: closed", c.do(t, "a create /x"))
		assert.False(t, exists(s, "/x"))
		s.Inject(fault.CloseAfter().Path("/x").Once())
		assert.Equal(t, "b create: closed", c.do(t, "b create /x m=e"))
		assert.True(t, exists(s, "/x"))
		assert.Contains(t, c.do(t, "b reattach"), "same=true")
		assert.Contains(t, c.do(t, "b exists /x"), "own=b")
	})
}

func TestSessionExpiresAtAnExactRequest(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server, c *script) {
		c.ok(t, "a create /e m=e")
		s.Inject(fault.ExpireSession().Op(fault.OpSetData))
		assert.Equal(t, "a set: closed", c.do(t, "a set /e d=1"))
		assert.False(t, exists(s, "/e"))
		assert.Contains(t, c.do(t, "a reattach"), "timeout=0")
	})
}

func TestAnswerWithAnyCode(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server, c *script) {
		s.Inject(fault.Answer(fault.CodeOperationTimeout).Op(fault.OpGetData).Once())
		c.ok(t, "a create /x")
		c.refused(t, "a get /x", fault.CodeOperationTimeout)
		c.ok(t, "a get /x")
	})
}

func TestATruncatedReplyEndsTheConnection(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server, c *script) {
		c.ok(t, "a ping")
		s.Inject(fault.Truncate(10).Op(fault.OpExists))
		assert.Equal(t, "a exists: closed", c.do(t, "a exists /"))
	})
}

func TestAStalledReplyLeavesTheConnectionSilent(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server, c *script) {
		c.ok(t, "a ping")
		s.Inject(fault.Stall(10).Op(fault.OpGetData))
		assert.Equal(t, "a get: silent", c.do(t, "a get /"))
	})
}

func TestAGarbledReplySaysWhatTheFaultMakesOfIt(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server, c *script) {
		c.ok(t, "a ping")
		s.Inject(fault.Garble(func(b []byte) []byte { b[15] = 0x9b; return b }).Op(fault.OpCreate))
		c.refused(t, "a create /x", 0x9b)
	})
}

func TestAHandshakeThatAFaultEndsOpensASessionOnlyIfItWasCarriedOut(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server, c *script) {
		s.Inject(fault.CloseBefore().Op(fault.OpConnect).Once())
		assert.Equal(t, "a connect: closed", c.do(t, "a connect"))
		assert.Empty(t, s.Sessions())

		s.Inject(fault.CloseAfter().Op(fault.OpConnect).Once())
		assert.Equal(t, "a connect: closed", c.do(t, "a connect"))
		assert.Len(t, s.Sessions(), 1)
	})
}

func TestAHandshakeWhoseReplyStallsFails(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server, c *script) {
		s.Inject(fault.Stall(3).Op(fault.OpConnect).Session(0).Once())
		assert.Equal(t, "a connect: closed", c.do(t, "a connect"))
		c.ok(t, "b ping")
	})
}

func TestALostNotificationNeverComes(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server, c *script) {
		c.ok(t, "a create /x", "b get /x w")
		s.Inject(fault.DropReply().Op(fault.OpNotify).Path("/x").Once())
		c.ok(t, "a set /x d=1")
		assert.NotContains(t, c.do(t, "b get /x"), "!")
		assert.Equal(t, 1, s.Notifications())
	})
}

func TestADelayedNotificationComesLater(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server, c *script) {
		c.ok(t, "a create /x", "b get /x w")
		s.Inject(fault.DelayReply(time.Second).Op(fault.OpNotify).Once())
		start := time.Now()
		c.ok(t, "a set /x d=1")
		assert.Contains(t, c.do(t, "b ping"), "b ! 3 3 /x")
		assert.Equal(t, time.Second, time.Since(start))
	})
}

func TestAFrozenConnectionDeliversEverythingAfterTheThaw(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server, c *script) {
		c.ok(t, "a ping")
		in := s.Inject(fault.Freeze())
		c.send(t, "a create /x")
		synctest.Wait()
		assert.False(t, exists(s, "/x"))
		in.Remove()
		synctest.Wait()
		assert.True(t, exists(s, "/x"))
		c.ok(t, "a ping")
	})
}

func TestFreezeHidesThatTheClientLeft(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server, c *script) {
		c.ok(t, "a ping")
		in := s.Inject(fault.Freeze())
		c.do(t, "a drop")
		synctest.Wait()
		assert.True(t, s.Sessions()[0].Connected)
		in.Remove()
		synctest.Wait()
		assert.False(t, s.Sessions()[0].Connected)
	})
}

func TestFrozenRepliesKeepTheSessionAlive(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server, c *script) {
		c.do(t, "a connect t=4000")
		in := s.Inject(fault.FreezeReplies().Session(c.sessions["a"].id))
		for range 30 {
			time.Sleep(2 * time.Second)
			c.send(t, "a ping")
		}
		assert.Len(t, s.Sessions(), 1)
		c.ok(t, "b ping") // only a is selected
		in.Remove()
		c.ok(t, "a ping")
	})
}

func TestFrozenRequestsLetTheSessionExpire(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server, c *script) {
		c.do(t, "a connect t=4000")
		c.ok(t, "a create /x", "a get /x w", "b ping")
		s.Inject(fault.FreezeRequests().Session(c.sessions["a"].id))
		c.ok(t, "b set /x d=1")
		assert.Contains(t, c.do(t, "a ping"), "a ! 3 3 /x")
		assert.Len(t, s.Sessions(), 1)
	})
}

func TestAFreezeWithASelectorBeginsWithTheFirstRequestThatMatches(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server, c *script) {
		in := s.Inject(fault.FreezeReplies().Op(fault.OpCreate).Once())
		c.ok(t, "a ping")
		assert.Equal(t, "a create: silent", c.do(t, "a create /x"))
		assert.True(t, exists(s, "/x"))
		assert.Equal(t, 1, in.Hits())
		c.ok(t, "b create /y")
	})
}

func TestFreezeFollowsASessionToItsNextConnection(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server, c *script) {
		c.ok(t, "a ping", "b ping")
		in := s.Inject(fault.Freeze().Session(c.sessions["a"].id))
		c.do(t, "a drop")
		assert.Equal(t, "a reattach: closed", c.do(t, "a reattach"))
		c.ok(t, "b ping")
		in.Remove()
		synctest.Wait()
	})
}

func TestRefusedConnections(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server, c *script) {
		in := s.Inject(fault.Refuse().Times(2))
		for range 2 {
			_, err := s.Dial("tcp", s.Addr(), time.Second)
			require.ErrorContains(t, err, "connection refused")
		}
		c.ok(t, "a ping")
		assert.Equal(t, 2, in.Hits())
	})
}

func TestAFaultOfAPathPatternStrikesEveryRequestThatNamesSuchAPath(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server, c *script) {
		c.ok(t, "a create /d", "b create /d/e")
		s.Inject(fault.Answer(fault.CodeNoAuth).Path("/d/**"))
		c.ok(t, "a exists /d")
		c.refused(t, "a exists /d/e", fault.CodeNoAuth)
		c.refused(t, "a create /d/e/f", fault.CodeNoAuth)
		c.refused(t, "a multi check / ; check /d/x", fault.CodeNoAuth)
	})
}

func TestAFaultOfASessionCountsThatSessionsRequests(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server, c *script) {
		c.ok(t, "a create /d", "b ping")
		in := s.Inject(
			fault.Answer(fault.CodeNoAuth).Session(c.sessions["b"].id).After(1).Times(2))
		c.ok(t, "a ping", "b ping")
		c.refused(t, "b exists /d", fault.CodeNoAuth)
		c.refused(t, "b exists /d", fault.CodeNoAuth)
		c.ok(t, "b exists /d", "a exists /d")
		assert.Equal(t, 2, in.Hits())
	})
}

func TestAFaultThatCannotStrikePanics(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server, _ *script) {
		assert.Panics(t, func() { s.Inject(fault.DropReply().Path("[")) })
		assert.Panics(t, func() { s.Inject(fault.Fault{}) })
	})
}

func TestArbitraryFramesReachTheClient(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server, c *script) {
		c.ok(t, "a ping")
		id := c.sessions["a"].id
		require.NoError(t, s.SendFrame(id, []byte{0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0}))
		assert.Contains(t, c.do(t, "a ping"), "xid=9")
		require.NoError(t, s.SendRaw(id, []byte{1}))
		require.ErrorIs(t, s.SendFrame(1, nil), fault.CodeConnectionLoss)
	})
}
