package zklock_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/internal/session"
	"github.com/zklock/locker/tests/locktest"
	"github.com/zklock/locker/zklock"
)

func TestAHoldThatHasEndedSaysWhyAndAsksNothing(t *testing.T) {
	for name, k := range map[string]struct {
		end  func(s *locktest.Sim, c *locktest.Client, h *zklock.Hold)
		want error
		lost bool
	}{
		"unlocked": {func(s *locktest.Sim, _ *locktest.Client, h *zklock.Hold) { s.Unlock(h) }, zklock.ErrUnlocked, false},
		"closed":   {func(s *locktest.Sim, c *locktest.Client, _ *zklock.Hold) { require.NoError(s, c.Close()) }, zklock.ErrClosed, false},
		"held for too long": {func(_ *locktest.Sim, _ *locktest.Client, h *zklock.Hold) { <-h.Context().Done() },
			zklock.ErrMaxHold, true},
		"session expired": {func(s *locktest.Sim, c *locktest.Client, h *zklock.Hold) {
			require.NoError(s, s.Server.Expire(c.SessionID()))
			<-h.Context().Done()
		}, zklock.ErrSessionExpired, true},
		"znode deleted": {func(s *locktest.Sim, _ *locktest.Client, h *zklock.Hold) {
			time.Sleep(time.Second) // until it is watched
			require.NoError(s, s.Server.Delete(h.Node()))
			<-h.Context().Done()
		}, zklock.ErrNodeDeleted, true},
		"nothing heard": {func(s *locktest.Sim, _ *locktest.Client, h *zklock.Hold) {
			s.Server.Leader().Down()
			<-h.Context().Done()
		}, zklock.ErrLeaseOver, true},
	} {
		t.Run(name, func(t *testing.T) {
			locktest.Simulate(t, func(s *locktest.Sim) {
				c := s.Client()
				e := c.Election(s.Dir("/l"), zklock.WithMaxHold(time.Hour))
				_, l, err := e.Campaign(s.Context(), []byte("v"))
				require.NoError(s, err)
				token, node := l.Token(), l.Node()
				k.end(s, c, l)

				require.ErrorIs(s, l.Err(), k.want)
				require.Equal(s, l.Err(), context.Cause(l.Context()))
				synctest.Wait() // until the requests that the end has caused, perhaps a deletion, have been sent
				asked := s.Server.Requests()
				_, multiErr := l.Multi(s.Context(), session.OpCreate{Path: "/done", ACL: zk.WorldACL(zk.PermAll)})
				for op, err := range map[string]error{"check": l.Check(s.Context()), "multi": multiErr, "proclaim": e.Proclaim(s.Context(), l, []byte("w"))} {
					require.ErrorIs(s, err, k.want, op)
					require.ErrorContains(s, err, "zklock: "+op+" /l: ")
					require.Equal(s, k.lost, errors.Is(err, zklock.ErrLost), "%s: %v", op, err)
					require.NotErrorIs(s, err, zklock.ErrUnknownOutcome, op)
				}
				require.Equal(s, asked, s.Server.Requests(), "they are answered without a request")
				require.Equal(s, token, l.Token())
				require.Equal(s, node, l.Node())
			})
		})
	}
}

// After a stop of the process (here: nothing reads the clock until the lease is over) the notification of the deletion by
// the session's end may come first. The cause is the lease all the same.
func TestAfterTheLeaseTheCauseIsTheLease(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		c := s.Client()
		h := s.Lock(c.Mutex("/l"))
		askedAt(s, c, h, func() bool {
			zklock.HeardGone(h)
			return errors.Is(h.Err(), zklock.ErrLeaseOver)
		})
	})
}
