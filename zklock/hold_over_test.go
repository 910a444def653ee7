package zklock_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/internal/locktest"
	"github.com/zklock/locker/internal/session"
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

// If the ensemble is silent, the work has a twentieth of the timeout to stop in, after a twenty-fifth that the client's own
// goroutines may take to end its context.
func TestTheContextEndsLongEnoughBeforeSafeUntilForTheWorkToStop(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		c := s.Client()
		h := s.Lock(c.Mutex(s.Dir("/l")))
		timeout := c.Current().Timeout()
		time.Sleep(time.Minute)
		s.Server.Leader().Down()
		<-h.Context().Done()
		require.ErrorIs(s, h.Err(), zklock.ErrLeaseOver)
		require.InDelta(s, timeout/25+timeout/20, time.Until(h.SafeUntil()), float64(5*time.Millisecond))
	})
}

// If a hold ends by itself at the moment of its Unlock, Unlock returns nil, or an error that names the call and the lock and
// matches the cause of the context's end.
func TestAnUnlockThatMeetsTheEndOfItsHoldNamesTheCallAndTheLock(t *testing.T) {
	ends := map[string]func(s *locktest.Sim, c *locktest.Client, h *zklock.Hold){
		"closed":            func(s *locktest.Sim, c *locktest.Client, _ *zklock.Hold) { _ = c.Close() },
		"held for too long": func(*locktest.Sim, *locktest.Client, *zklock.Hold) { time.Sleep(time.Second) },
		"session expired":   func(s *locktest.Sim, c *locktest.Client, _ *zklock.Hold) { _ = s.Server.Expire(c.Status().Session.ID) },
		"znode deleted":     func(s *locktest.Sim, _ *locktest.Client, h *zklock.Hold) { _ = s.Server.Delete(h.Node()) }, // gone by itself, perhaps
	}
	for name, end := range ends {
		t.Run(name, func(t *testing.T) {
			for _, opts := range [][]zklock.LockOption{nil, {zklock.WithHandoffs(2)}} {
				locktest.Simulate(t, func(s *locktest.Sim) {
					c := s.Client()
					h := s.Lock(c.Mutex(s.Dir("/l"), append(opts, zklock.WithMaxHold(time.Second))...))
					var both sync.WaitGroup
					both.Go(func() { end(s, c, h) })
					if name == "held for too long" {
						time.Sleep(time.Second)
					}
					err := h.Unlock()
					both.Wait()
					if err != nil {
						require.ErrorContains(s, err, "zklock: unlock /l: ")
						require.True(s, errors.Is(err, zklock.ErrLost) || errors.Is(err, zklock.ErrClosed), "%v", err)
					}
					if why := context.Cause(h.Context()); !errors.Is(why, zklock.ErrUnlocked) {
						require.ErrorIs(s, err, why)
					}
				})
			}
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
