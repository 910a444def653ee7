package session_test

import (
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/internal/session"
	"github.com/zklock/locker/zktest"
	"github.com/zklock/locker/zktest/fault"
)

// If the leader refuses a heartbeat because it is closing the session, or because the session has
// moved, the code is inside a reply whose header says OK.
func TestAHeartbeatThatSaysExpiredInsideEndsTheSessionAndConfirmsNothing(t *testing.T) {
	bubble(t, func(t *testing.T, srv *zktest.Server) {
		s := open(t, srv)
		retain(t, s, ephemeral(t, s))
		time.Sleep(time.Minute)
		refused := srv.Inject(fault.AnswerInside(fault.CodeSessionExpired).Op(fault.OpMulti))
		before := s.SafeUntil()
		eventually(t, s.Done(), "the end of the session")
		require.Equal(t, 1, refused.Hits(), "the first ends it")
		require.Equal(t, session.ErrExpired, s.Err())
		require.Equal(t, before, s.SafeUntil())
	})
}

func TestAHeartbeatThatSaysMovedInsideConfirmsNothingAndCostsTheConnection(t *testing.T) {
	bubble(t, func(t *testing.T, srv *zktest.Server) {
		s := open(t, srv)
		retain(t, s, ephemeral(t, s))
		time.Sleep(time.Minute)
		refused := srv.Inject(fault.AnswerInside(fault.CodeSessionMoved).Op(fault.OpMulti).Once())
		connects := srv.Requests()[fault.OpConnect]
		require.NoError(t, refused.Wait(within(t, soon), 1))
		time.Sleep(time.Second)
		require.Equal(t, connects+1, srv.Requests()[fault.OpConnect])
		require.NoError(t, s.Err())

		srv.Inject(fault.AnswerInside(fault.CodeSessionMoved).Op(fault.OpMulti))
		eventually(t, s.Done(), "the end of the session")
		require.Equal(t, session.ErrLeaseExpired, s.Err(),
			"as long as nothing else is heard the lease is not confirmed")
		require.Len(t, srv.Sessions(), 1)
	})
}

// The same for a transaction of the caller, wherever in its results the code is.
func TestCodesOfTheSessionInsideAnyMultiAreOfTheSession(t *testing.T) {
	create := session.OpCreate{Path: "/n", ACL: everybody}
	check := session.OpCheck{Path: "/", Version: -1}
	t.Run("expired", func(t *testing.T) {
		bubble(t, func(t *testing.T, srv *zktest.Server) {
			s := open(t, srv)
			srv.Inject(fault.AnswerInside(fault.CodeSessionExpired).Op(fault.OpMulti))
			_, err := s.Multi(within(t, soon), create, check)
			require.ErrorIs(t, err, session.ErrExpired)
			require.NotErrorIs(t, err, session.ErrUnknownOutcome,
				"the server says that nothing was done")
			require.Equal(t, session.ErrExpired, s.Err())
		})
	})
	t.Run("moved", func(t *testing.T) {
		bubble(t, func(t *testing.T, srv *zktest.Server) {
			s := open(t, srv)
			srv.Inject(fault.AnswerInside(fault.CodeSessionMoved).Op(fault.OpMulti).Once())
			_, err := s.Multi(within(t, soon), create, check)
			require.NoError(t, err, "made on the next connection")
			require.Equal(t, 2, srv.Requests()[fault.OpConnect])
			_, there := srv.Node("/n")
			require.True(t, there)
		})
	})
}

// holder sends the znodes that are found missing.
type holder chan<- string

func (h holder) Missing(node string) { h <- node }

// The znodes of one hold are checked in turn, with no more heartbeats than one znode needs.
func TestHeartbeatsCheckEveryZnodeOfAHoldOfSeveral(t *testing.T) {
	bubble(t, func(t *testing.T, srv *zktest.Server) {
		s := open(t, srv)
		nodes := []string{ephemeral(t, s), ephemeral(t, s), ephemeral(t, s)}
		var checks []*zktest.Injection
		for _, node := range nodes {
			checks = append(checks, srv.Inject(fault.Delay(0).Op(fault.OpMulti).Path(node)))
		}
		r, err := s.Retain(within(t, soon), nodes...)
		require.NoError(t, err)
		time.Sleep(30 * s.Timeout())
		for _, in := range checks {
			require.InDelta(t, 50, in.Hits(), 6)
		}
		require.InDelta(t, 150, srv.Requests()[fault.OpMulti], 15, "one every fifth of the timeout")

		told := make(chan string, 2)
		r.ReportTo(holder(told))
		require.NoError(t, srv.Delete(nodes[2]))
		time.Sleep(s.Timeout())
		require.Equal(t, nodes[2], <-told, "of whichever is missing")
		r.Release()
	})
}

// When every znode that was held is found missing, there is nothing to check, and the heartbeat
// does not come at once again and again.
func TestAKeeperWithNothingLeftToCheckWaits(t *testing.T) {
	bubble(t, func(t *testing.T, srv *zktest.Server) {
		s := open(t, srv)
		node := ephemeral(t, s)
		held := retain(t, s, node)
		require.NoError(t, srv.Delete(node))
		time.Sleep(s.Timeout()) // a heartbeat has found it missing

		before := srv.Requests()
		const timeouts = 20
		time.Sleep(timeouts * s.Timeout())
		beats := srv.Requests()[fault.OpMulti] - before[fault.OpMulti]
		require.LessOrEqual(t, beats, 10*timeouts, "two heartbeats in a fifth of the timeout")
		held.Release()
	})
}

// A heartbeat that finds the znode gone notifies its holder and still confirms the lease; the next
// ones check the znodes of the other holders.
func TestAHolderWhoseZnodeAHeartbeatFindsGoneIsTold(t *testing.T) {
	bubble(t, func(t *testing.T, srv *zktest.Server) {
		s := open(t, srv)
		a, b := ephemeral(t, s), ephemeral(t, s)
		told := make(chan string, 2)
		gone, stays := retain(t, s, a), retain(t, s, b)
		gone.ReportTo(holder(told))
		stays.ReportTo(holder(told))
		time.Sleep(time.Minute)
		require.NoError(t, srv.Delete(a))
		time.Sleep(s.Timeout())
		require.Equal(t, a, <-told)
		time.Sleep(time.Hour)
		require.NoError(t, s.Err())
		require.Empty(t, told)
		late := make(chan string, 1)
		gone.ReportTo(holder(late))
		require.Equal(t, a, <-late, "whoever asks later is told as well")
		gone.Release()
		stays.Release()
	})
}

// When the first of two heartbeats that are under way finds the znode missing, the second one tells
// nothing new.
func TestAHolderIsToldOnceOfAMissingZnode(t *testing.T) {
	bubble(t, func(t *testing.T, srv *zktest.Server) {
		s := open(t, srv, func(c *session.Config) {
			c.TickTime = 100 * time.Millisecond // patience is then longer than between heartbeats
		})
		node := ephemeral(t, s)
		held := retain(t, s, node)
		told := make(chan string, 3)
		held.ReportTo(holder(told))
		require.NoError(t, srv.Delete(node))
		slow := srv.Inject(fault.DelayReply(s.Timeout() * 23 / 100).Op(fault.OpMulti))
		time.Sleep(s.Timeout())
		require.Equal(t, 2, slow.Hits())
		require.Equal(t, session.Connected, s.State())
		require.Len(t, told, 1)
		held.Release()
	})
}

func TestRetainOfAZnodeThatIsNotThereIsRefused(t *testing.T) {
	bubble(t, func(t *testing.T, srv *zktest.Server) {
		s := open(t, srv)
		time.Sleep(time.Hour) // so that it has to ask
		_, err := s.Retain(within(t, soon), "/nothing")
		require.ErrorIs(t, err, zk.ErrNoNode)
		require.Zero(t, srv.Requests()[fault.OpCreate])
		time.Sleep(time.Hour)
		require.Equal(t, 1, srv.Requests()[fault.OpMulti], "it is not retained")
	})
}
