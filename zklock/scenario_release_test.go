package zklock_test

import (
	"context"
	"path"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/zklock"
	"github.com/zklock/locker/zktest"
)

// Waits and releases across lost connections: scenarios 11 to 14.

// scenario 11: the connection drops and comes back in the same session while waiting: the wait goes on with the old
// znode, and there is no second one.
func TestScenario11_AWaitGoesOnWithItsNodeAcrossReconnects(t *testing.T) {
	for name, away := range map[string]time.Duration{"at once": 0, "after a while": 5 * time.Second} {
		t.Run(name, func(t *testing.T) {
			simTest(t, func(s *sim) {
				dir, a, b := s.dir("/locks/a"), s.client(), s.client()
				id := b.id()
				h := s.lock(a.Mutex(dir))
				call := simGo(s.Context(), b.Mutex(dir).Lock)
				require.False(s, call.over())
				line := contenders(s.srv.Children(dir))
				creates := s.srv.Requests()[zktest.OpCreate]
				for range 10 {
					refused := s.srv.Inject(zktest.Refuse())
					s.srv.DropConnections()
					time.Sleep(away)
					refused.Remove()
					s.until(3*time.Second, "both are back, and b watches again", func() bool {
						holder, _ := s.srv.Session(a.id())
						return holder.Connected && len(s.watched(id)) > 0
					})
					require.Equal(s, line, contenders(s.srv.Children(dir)))
				}
				require.False(s, call.over())
				require.NoError(s, h.Err())
				s.unlock(h)
				require.Equal(s, line[1], path.Base(call.get(s).Node()))
				require.Equal(s, creates, s.srv.Requests()[zktest.OpCreate])
				require.Equal(s, id, b.id())
				s.owned(b, call.hold)
			})
		})
	}
}

// scenario 11, the event that is missed: the predecessor goes while the waiter has no connection, and, the second time,
// the server to which it comes back has not heard of that yet.
func TestScenario11_APredecessorThatGoesDuringTheDisconnectionIsNoticed(t *testing.T) {
	for _, lags := range []bool{false, true} {
		name := map[bool]string{false: "back to the leader", true: "back to a follower that lags"}[lags]
		t.Run(name, func(t *testing.T) {
			simTest(t, func(s *sim) {
				f, dir, a, b := s.follower(), s.dir("/locks/a"), s.client(), s.client()
				id := b.id()
				h := s.lock(a.Mutex(dir))
				call := simGo(s.Context(), b.Mutex(dir).Lock)
				require.False(s, call.over())
				line := contenders(s.srv.Children(dir))
				if lags {
					f.Lag(1)
					b.at(f)
				}
				refused := s.srv.Inject(zktest.Refuse())
				s.srv.DropConnections()
				require.NoError(s, s.srv.Delete(h.Node()))
				refused.Remove()
				if lags {
					s.until(3*time.Second, "b watches at the follower", func() bool { return len(s.watched(id)) > 0 })
					require.False(s, call.over(), "the follower still shows the predecessor")
					f.Lag(0)
				}
				require.Equal(s, line[1], path.Base(call.get(s).Node()))
				require.Equal(s, line[1:], s.srv.Children(dir))
				s.owned(b, call.hold)
			})
		})
	}
}

// scenario 12: Unlock's delete loses its reply: the hold counts as released, the delete is repeated, and "no such
// znode" is success.
func TestScenario12_AnUnlockWhoseReplyIsLostIsRepeatedAndSucceeds(t *testing.T) {
	for name, fault := range lostReplies {
		t.Run(name, func(t *testing.T) {
			simTest(t, func(s *sim) {
				dir, c := s.dir("/locks/a"), s.client()
				h := s.lock(c.Mutex(dir))
				lost := s.srv.Inject(fault.Op(zktest.OpDelete).Once())
				done := make(chan error)
				go func() { done <- h.Unlock(s.Context()) }()
				<-lost.Hit()
				synctest.Wait()
				require.ErrorIs(s, h.Err(), zklock.ErrUnlocked, "released from the first moment on")
				require.NotErrorIs(s, h.Err(), zklock.ErrLost)
				require.NoError(s, <-done)
				require.Empty(s, s.srv.Children(dir))
				require.Equal(s, 2, s.srv.Requests()[zktest.OpDelete])
				require.ErrorIs(s, h.Unlock(s.Context()), zklock.ErrNotHeld)
			})
		})
	}
}

// scenario 12, when the caller does not wait: the delete is repeated in the background.
func TestScenario12_AnUnlockWhoseContextEndsIsRepeatedInTheBackground(t *testing.T) {
	simTest(t, func(s *sim) {
		dir, c := s.dir("/locks/a"), s.client()
		id, h := c.id(), s.lock(c.Mutex(dir))
		lost := s.srv.Inject(zktest.CloseBefore().Op(zktest.OpDelete).Times(4))
		ctx, cancel := context.WithCancel(s.Context())
		done := make(chan error, 1)
		go func() { done <- h.Unlock(ctx) }()
		<-lost.Hit()
		cancel()
		synctest.Wait()
		require.ErrorIs(s, <-done, context.Canceled)
		require.ErrorIs(s, h.Err(), zklock.ErrUnlocked)
		s.empty(10*time.Second, dir)
		require.Equal(s, 4, lost.Hits())
		require.Equal(s, id, c.id(), "deleted, and not gone with the session")
	})
}

// scenario 13: Unlock while no server is reachable for longer than the session timeout: it returns within its ctx,
// goroutines stay bounded, and the ensemble expires the znode.
func TestScenario13_UnlockWithoutAServerReturnsWithinItsContextAndLeavesNothing(t *testing.T) {
	const holds = 40
	simTest(t, func(s *sim) {
		s.dir("/locks")
		a, b := s.client(), s.client()
		idle, old := simGoroutines(), a.id()
		var held []*zklock.Hold
		for i := range holds {
			held = append(held, s.lock(a.Mutex("/locks/"+string(rune('A'+i)))))
		}
		s.srv.Leader().Down()
		var wg sync.WaitGroup
		errs, spent := make([]error, holds), make([]time.Duration, holds)
		for i, h := range held {
			wg.Go(func() {
				ctx, cancel := context.WithTimeout(s.Context(), time.Duration(i+1)*100*time.Millisecond)
				defer cancel()
				began := time.Now()
				errs[i] = h.Unlock(ctx)
				spent[i] = time.Since(began)
			})
		}
		wg.Wait()
		for i := range held {
			require.ErrorIs(s, errs[i], context.DeadlineExceeded)
			require.Equal(s, time.Duration(i+1)*100*time.Millisecond, spent[i])
			require.ErrorIs(s, held[i].Err(), zklock.ErrUnlocked)
		}
		require.LessOrEqual(s, simGoroutines(), idle+2*holds, "one for each znode that is still to be deleted")
		time.Sleep(10 * time.Second)
		require.LessOrEqual(s, simGoroutines(), idle+8, "the session is over, and with it all that worked for it")
		for range 100 { // calls that fail meanwhile leave nothing either
			ctx, cancel := context.WithTimeout(s.Context(), 10*time.Millisecond)
			_, err := a.Mutex("/locks/A").Lock(ctx)
			cancel()
			require.ErrorIs(s, err, context.DeadlineExceeded)
		}
		require.LessOrEqual(s, simGoroutines(), idle+8)
		s.srv.Leader().Up()
		time.Sleep(time.Minute)
		for i := range holds {
			require.Empty(s, s.srv.Children("/locks/"+string(rune('A'+i))), "the ensemble has expired the session")
		}
		for i := range holds {
			s.unlock(s.lock(b.Mutex("/locks/" + string(rune('A'+i)))))
		}
		s.unlock(s.lock(a.Mutex("/locks/A")))
		require.NotEqual(s, old, a.id())
		require.LessOrEqual(s, simGoroutines(), idle+2)
	})
}

// scenario 13, without a ctx that ends: Unlock returns when the session is over.
func TestScenario13_UnlockWithoutAServerEndsWithTheSession(t *testing.T) {
	simTest(t, func(s *sim) {
		dir, c := s.dir("/locks/a"), s.client()
		h := s.lock(c.Mutex(dir))
		s.srv.Leader().Down()
		began := time.Now()
		err := h.Unlock(s.Context())
		require.ErrorIs(s, err, zklock.ErrLeaseOver)
		require.LessOrEqual(s, time.Since(began), 10*time.Second)
		require.ErrorIs(s, h.Err(), zklock.ErrUnlocked)
	})
}

// scenario 14: Unlock after the znode vanished reports the loss, and the Mutex can be locked again at once.
func TestScenario14_UnlockAfterTheNodeVanishedReportsTheLoss(t *testing.T) {
	for name, c := range map[string]struct {
		vanish func(s *sim, c *simClient, h *zklock.Hold)
		want   error
	}{
		"deleted a moment ago": {func(s *sim, c *simClient, h *zklock.Hold) {
			require.NoError(s, s.srv.Delete(h.Node()))
		}, zklock.ErrNodeDeleted},
		"deleted a while ago": {func(s *sim, c *simClient, h *zklock.Hold) {
			time.Sleep(time.Second)
			require.NoError(s, s.srv.Delete(h.Node()))
			time.Sleep(time.Second)
		}, zklock.ErrNodeDeleted},
		"deleted with its directory": {func(s *sim, c *simClient, h *zklock.Hold) {
			require.NoError(s, s.srv.DeleteAll(path.Dir(h.Node())))
		}, zklock.ErrNodeDeleted},
		"expired a moment ago": {func(s *sim, c *simClient, h *zklock.Hold) {
			require.NoError(s, s.srv.Expire(c.id()))
		}, zklock.ErrSessionExpired},
		"expired a while ago": {func(s *sim, c *simClient, h *zklock.Hold) {
			require.NoError(s, s.srv.Expire(c.id()))
			time.Sleep(time.Minute)
		}, zklock.ErrSessionExpired},
		"expired while nobody could be reached": {func(s *sim, c *simClient, h *zklock.Hold) {
			s.srv.Leader().Down()
			time.Sleep(time.Minute)
			s.srv.Leader().Up()
		}, zklock.ErrLeaseOver},
	} {
		t.Run(name, func(t *testing.T) {
			simTest(t, func(s *sim) {
				dir, cl := s.dir("/locks/a"), s.client()
				m := cl.Mutex(dir)
				h := s.lock(m)
				c.vanish(s, cl, h)
				err := h.Unlock(s.Context())
				require.ErrorIs(s, err, c.want)
				require.ErrorIs(s, err, zklock.ErrLost)
				require.NotErrorIs(s, err, zklock.ErrNotHeld)
				require.Error(s, h.Err())
				again := s.lock(m)
				s.owned(cl, again)
				require.Greater(s, again.Token(), h.Token())
				require.ErrorIs(s, h.Unlock(s.Context()), zklock.ErrNotHeld)
				s.owned(cl, again)
				s.unlock(again)
			})
		})
	}
}
