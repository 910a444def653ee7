package zklock_test

import (
	"context"
	"path"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/internal/session"
	"github.com/zklock/locker/tests/locktest"
	"github.com/zklock/locker/zklock"
	"github.com/zklock/locker/zktest/fault"
)

// Scenarios 11 to 14: waits and releases across lost connections.

// scenario 11: the connection drops and comes back in the same session while waiting: the wait goes on with the old
// znode, and there is no second one.
func TestScenario11_AWaitGoesOnWithItsNodeAcrossReconnects(t *testing.T) {
	for name, away := range map[string]time.Duration{"at once": 0, "after a while": 5 * time.Second} {
		t.Run(name, func(t *testing.T) {
			locktest.Simulate(t, func(s *locktest.Sim) {
				dir, a, b := s.Dir("/locks/a"), s.Client(), s.Client()
				id := b.SessionID()
				h := s.Lock(a.Mutex(dir))
				call := locktest.Go(s.Context(), b.Mutex(dir).Lock)
				require.False(s, call.Over())
				line := locktest.Contenders(s.Server.Children(dir))
				creates := s.Server.Requests()[fault.OpCreate]
				for range 10 {
					refused := s.Server.Inject(fault.Refuse())
					s.Server.DropConnections()
					time.Sleep(away)
					refused.Remove()
					s.Until(3*time.Second, "both are back, and b watches again", func() bool {
						holder, _ := s.Server.Session(a.SessionID())
						return holder.Connected && len(s.Watched(id)) > 0
					})
					require.Equal(s, line, locktest.Contenders(s.Server.Children(dir)))
				}
				require.False(s, call.Over())
				require.NoError(s, h.Err())
				s.Unlock(h)
				require.Equal(s, line[1], path.Base(call.Get(s).Node()))
				require.Equal(s, creates, s.Server.Requests()[fault.OpCreate])
				require.Equal(s, id, b.SessionID())
				s.Owned(b, call.Hold)
			})
		})
	}
}

// scenario 11, the missed event: the predecessor is deleted while the waiter has no connection, and in the second case the
// server to which it reconnects lags behind.
func TestScenario11_APredecessorThatGoesDuringTheDisconnectionIsNoticed(t *testing.T) {
	for _, lags := range []bool{false, true} {
		name := map[bool]string{false: "back to the leader", true: "back to a follower that lags"}[lags]
		t.Run(name, func(t *testing.T) {
			locktest.Simulate(t, func(s *locktest.Sim) {
				f, dir, a, b := s.Follower(), s.Dir("/locks/a"), s.Client(), s.Client()
				id := b.SessionID()
				h := s.Lock(a.Mutex(dir))
				call := locktest.Go(s.Context(), b.Mutex(dir).Lock)
				require.False(s, call.Over())
				line := locktest.Contenders(s.Server.Children(dir))
				if lags {
					f.Lag(2) // the deletion, and the heartbeat of a in its next connection
					b.LeadTo(f)
				}
				refused := s.Server.Inject(fault.Refuse())
				s.Server.DropConnections()
				require.NoError(s, s.Server.Delete(h.Node()))
				refused.Remove()
				if lags {
					s.Until(3*time.Second, "b watches at the follower", func() bool { return len(s.Watched(id)) > 0 })
					require.False(s, call.Over(), "the follower still shows the predecessor")
					f.Lag(0)
				}
				require.Equal(s, line[1], path.Base(call.Get(s).Node()))
				require.Equal(s, line[1:], s.Server.Children(dir))
				s.Owned(b, call.Hold)
			})
		})
	}
}

// scenario 12: Unlock's delete loses its reply: the hold counts as released, the delete is repeated, and "no such
// znode" is success.
func TestScenario12_AnUnlockWhoseReplyIsLostIsRepeatedAndSucceeds(t *testing.T) {
	for name, failure := range lostReplies {
		t.Run(name, func(t *testing.T) {
			locktest.Simulate(t, func(s *locktest.Sim) {
				dir, c := s.Dir("/locks/a"), s.Client()
				h := s.Lock(c.Mutex(dir))
				lost := s.Server.Inject(failure.Op(fault.OpDelete).Once())
				done := make(chan error)
				go func() { done <- h.Unlock() }()
				<-lost.Hit()
				synctest.Wait()
				require.ErrorIs(s, h.Err(), zklock.ErrUnlocked, "released from the first moment on")
				require.NotErrorIs(s, h.Err(), zklock.ErrLost)
				require.NoError(s, <-done)
				s.Empty(10*time.Second, dir)
				require.Equal(s, 2, s.Server.Requests()[fault.OpDelete])
				require.ErrorIs(s, h.Unlock(), zklock.ErrUnlocked)
			})
		})
	}
}

// scenario 12, for longer than Unlock waits: the delete is repeated in the background.
func TestScenario12_AnUnlockThatWaitsNoLongerIsRepeatedInTheBackground(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		dir, c := s.Dir("/locks/a"), s.Client()
		id, h := c.SessionID(), s.Lock(c.Mutex(dir))
		lost := s.Server.Inject(fault.CloseBefore().Op(fault.OpDelete).Times(4))
		began := time.Now()
		require.NoError(s, h.Unlock())
		require.LessOrEqual(s, time.Since(began), time.Second, "a tenth of the session timeout")
		require.ErrorIs(s, h.Err(), zklock.ErrUnlocked)
		s.Empty(10*time.Second, dir)
		require.Equal(s, 4, lost.Hits())
		require.Equal(s, id, c.SessionID(), "deleted, and not gone with the session")
	})
}

// scenario 13: Unlock while no server is reachable for longer than the session timeout: it returns within its ctx,
// goroutines stay bounded, and the ensemble expires the znode.
func TestScenario13_UnlockWithoutAServerReturnsWithinItsContextAndLeavesNothing(t *testing.T) {
	const holds = 40
	locktest.Simulate(t, func(s *locktest.Sim) {
		s.Dir("/locks")
		a, b := s.Client(), s.Client()
		idle, old := locktest.Goroutines(), a.SessionID()
		var held []*zklock.Hold
		for i := range holds {
			held = append(held, s.Lock(a.Mutex("/locks/"+string(rune('A'+i)))))
		}
		s.Server.Leader().Down()
		s.Until(time.Second, "the connection is known to be gone", func() bool { return a.SessionStatus().State != session.Connected })
		var wg sync.WaitGroup
		errs, spent := make([]error, holds), make([]time.Duration, holds)
		for i, h := range held {
			wg.Go(func() {
				began := time.Now()
				errs[i] = h.Unlock()
				spent[i] = time.Since(began)
			})
		}
		wg.Wait()
		for i := range held {
			require.NoError(s, errs[i])
			require.Zero(s, spent[i], "at once")
			require.ErrorIs(s, held[i].Err(), zklock.ErrUnlocked)
		}
		require.LessOrEqual(s, locktest.Goroutines(), idle+2*holds, "one for each znode that is still to be deleted")
		time.Sleep(10 * time.Second)
		require.LessOrEqual(s, locktest.Goroutines(), idle+8, "the session is over, and with it all that worked for it")
		for range 100 { // calls that fail meanwhile leave nothing either
			ctx, cancel := context.WithTimeout(s.Context(), 10*time.Millisecond)
			_, _, err := a.Mutex("/locks/A").Lock(ctx)
			cancel()
			require.ErrorIs(s, err, context.DeadlineExceeded)
		}
		require.LessOrEqual(s, locktest.Goroutines(), idle+8)
		s.Server.Leader().Up()
		time.Sleep(time.Minute)
		for i := range holds {
			require.Empty(s, s.Server.Children("/locks/"+string(rune('A'+i))), "the ensemble has expired the session")
		}
		for i := range holds {
			s.Unlock(s.Lock(b.Mutex("/locks/" + string(rune('A'+i)))))
		}
		s.Unlock(s.Lock(a.Mutex("/locks/A")))
		require.NotEqual(s, old, a.SessionID())
		require.LessOrEqual(s, locktest.Goroutines(), idle+2)
	})
}

// scenario 14: Unlock after the znode vanished reports the loss, and the Mutex can be locked again at once.
func TestScenario14_UnlockAfterTheNodeVanishedReportsTheLoss(t *testing.T) {
	for name, c := range map[string]struct {
		vanish func(s *locktest.Sim, c *locktest.Client, h *zklock.Hold)
		want   error
	}{
		"deleted a moment ago": {func(s *locktest.Sim, c *locktest.Client, h *zklock.Hold) {
			require.NoError(s, s.Server.Delete(h.Node()))
		}, zklock.ErrNodeDeleted},
		"deleted a while ago": {func(s *locktest.Sim, c *locktest.Client, h *zklock.Hold) {
			time.Sleep(time.Second)
			require.NoError(s, s.Server.Delete(h.Node()))
			time.Sleep(time.Second)
		}, zklock.ErrNodeDeleted},
		"deleted with its directory": {func(s *locktest.Sim, c *locktest.Client, h *zklock.Hold) {
			require.NoError(s, s.Server.DeleteAll(path.Dir(h.Node())))
		}, zklock.ErrNodeDeleted},
		"expired a while ago": {func(s *locktest.Sim, c *locktest.Client, h *zklock.Hold) {
			require.NoError(s, s.Server.Expire(c.SessionID()))
			time.Sleep(time.Minute)
		}, zklock.ErrSessionExpired},
		"expired while nobody could be reached": {func(s *locktest.Sim, c *locktest.Client, h *zklock.Hold) {
			s.Server.Leader().Down()
			time.Sleep(time.Minute)
			s.Server.Leader().Up()
		}, zklock.ErrLeaseOver},
	} {
		t.Run(name, func(t *testing.T) {
			locktest.Simulate(t, func(s *locktest.Sim) {
				dir, cl := s.Dir("/locks/a"), s.Client()
				m := cl.Mutex(dir)
				h := s.Lock(m)
				c.vanish(s, cl, h)
				err := h.Unlock()
				require.ErrorIs(s, err, c.want)
				require.ErrorIs(s, err, zklock.ErrLost)
				require.NotErrorIs(s, err, zklock.ErrUnlocked)
				require.Error(s, h.Err())
				again := s.Lock(m)
				s.Owned(cl, again)
				require.Greater(s, again.Token(), h.Token())
				require.ErrorIs(s, h.Unlock(), zklock.ErrUnlocked)
				s.Owned(cl, again)
				s.Unlock(again)
			})
		})
	}
}
