package zklock_test

import (
	"context"
	"path"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/internal/session"
	"github.com/zklock/locker/tests/locktest"
	"github.com/zklock/locker/zklock"
	"github.com/zklock/locker/zktest/fault"
)

// Scenarios 21 to 23: late and stale releases, and a holder's znode that another client removes.

// scenario 21: the directory is deleted and made again, so that the numbers restart: a stale Unlock deletes no other
// client's znode, and the tokens still grow.
func TestScenario21_AStaleUnlockDeletesNoOtherClientsNodeWhenTheNumbersRestart(t *testing.T) {
	for name, stale := range map[string]func(s *locktest.Sim, a *locktest.Client, h *zklock.Hold) error{
		"the loss is known": func(s *locktest.Sim, a *locktest.Client, h *zklock.Hold) error {
			<-h.Context().Done()
			return h.Unlock()
		},
		"the loss is not known": func(s *locktest.Sim, a *locktest.Client, h *zklock.Hold) error { return h.Unlock() },
	} {
		t.Run(name, func(t *testing.T) {
			locktest.Simulate(t, func(s *locktest.Sim) {
				dir, a, b := s.Dir("/locks/a"), s.Client(), s.Client()
				first := s.Lock(a.Mutex(dir))
				require.NoError(s, s.Server.DeleteAll(dir))
				second := s.Lock(b.Mutex(dir))
				require.Equal(s, number(first), number(second), "the numbers have restarted")
				require.ErrorIs(s, stale(s, a, first), zklock.ErrNodeDeleted)
				time.Sleep(time.Minute)
				s.Owned(b, second)
				require.Equal(s, []string{path.Base(second.Node())}, s.Server.Children(dir))
				require.Greater(s, second.Token(), first.Token())
			})
		})
	}
}

// number returns the number at the end of the name of a hold's znode, as text.
func number(h *zklock.Hold) string { return h.Node()[strings.LastIndexByte(h.Node(), '-')+1:] }

// scenario 21, when the stale delete has been under way for a while.
func TestScenario21_AnUnlockThatGoesOnInTheBackgroundDeletesNoOtherClientsNode(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		dir, a, b := s.Dir("/locks/a"), s.Client(), s.Client()
		id, first := a.SessionID(), s.Lock(a.Mutex(dir))
		away := s.Server.Inject(fault.Freeze().Session(id))
		require.NoError(s, first.Unlock())
		require.NoError(s, s.Server.DeleteAll(dir))
		second := s.Lock(b.Mutex(dir))
		require.Equal(s, number(first), number(second), "the numbers have restarted")
		deletes := s.Server.Requests()[fault.OpDelete]
		away.Remove()
		s.Until(5*time.Second, "the stale delete arrives", func() bool {
			return s.Server.Requests()[fault.OpDelete] > deletes
		})
		time.Sleep(time.Minute)
		s.Owned(b, second)
	})
}

// scenario 22: an admin deletes the holder's znode: the holder's context is cancelled with a cause of its own.
func TestScenario22_AnAdminWhoDeletesTheHoldersNodeEndsTheHoldWithItsOwnCause(t *testing.T) {
	for _, held := range []time.Duration{0, 299 * time.Millisecond, 301 * time.Millisecond, locktest.LongTime} {
		for _, queued := range []bool{false, true} {
			name := map[bool]string{false: "after ", true: "after a wait and "}[queued] + held.String()
			t.Run(name, func(t *testing.T) {
				locktest.Simulate(t, func(s *locktest.Sim) {
					var told []zklock.LockInfo
					dir, b := s.Dir("/locks/a"), s.Client()
					a := s.Client(zklock.WithHooks(zklock.Hooks{Lost: func(i zklock.LockInfo) { told = append(told, i) }}))
					var before *zklock.Hold
					if queued {
						before = s.Lock(b.Mutex(dir))
					}
					call := locktest.Go(s.Context(), a.Mutex(dir).Lock)
					if queued {
						time.Sleep(time.Second)
						s.Unlock(before)
					}
					h := call.Get(s)
					next := locktest.Go(s.Context(), b.Mutex(dir).Lock)
					lost := locktest.LossOf(h)
					time.Sleep(held)
					require.NoError(s, h.Err())
					deleted := time.Now()
					require.NoError(s, s.Server.Delete(h.Node()))
					loss := <-lost
					require.Equal(s, zklock.ErrNodeDeleted, loss.Cause)
					require.ErrorIs(s, h.Err(), zklock.ErrLost)
					if queued || held > 300*time.Millisecond {
						require.Equal(s, deleted, loss.At, "its znode was watched")
					} else {
						require.LessOrEqual(s, loss.At.Sub(deleted), 300*time.Millisecond-held)
					}
					synctest.Wait()
					require.Len(s, told, 1)
					require.Equal(s, zklock.ErrNodeDeleted, told[0].Err)
					require.Equal(s, h.Token(), told[0].Token)
					s.Unlock(next.Get(s))
					synctest.Wait()
					require.Zero(s, s.Server.WatchCount())
				})
			})
		}
	}
}

// scenario 22, the contrast: other changes of the znode are no loss, and do not hide a later loss.
func TestScenario22_DataThatIsSetOnTheHoldersNodeIsNoLoss(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		dir, c := s.Dir("/locks/a"), s.Client()
		h := s.Lock(c.Mutex(dir))
		lost := locktest.LossOf(h)
		time.Sleep(time.Second)
		for range 3 {
			require.NoError(s, s.Server.SetData(h.Node(), []byte("somebody's note")))
			time.Sleep(time.Second)
			require.NoError(s, h.Err())
		}
		require.NoError(s, h.Check(s.Context()))
		deleted := time.Now()
		require.NoError(s, s.Server.Delete(h.Node()))
		loss := <-lost
		require.Equal(s, zklock.ErrNodeDeleted, loss.Cause)
		require.Equal(s, deleted, loss.At)
	})
}

// scenario 22, with Check: it finds the loss even if the notification was lost, and ends the hold.
func TestScenario22_CheckFindsADeletedNode(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		f, dir, b := s.Follower(), s.Dir("/locks/a"), s.Client()
		c := s.ClientAt(f)
		h := s.Lock(c.Mutex(dir))
		time.Sleep(time.Second)
		require.NoError(s, h.Check(s.Context()))
		f.Lag(1) // its state is old, so that only a Check that asks the leader can notice
		require.NoError(s, s.Server.Delete(h.Node()))
		synctest.Wait()
		require.NoError(s, h.Err(), "it does not know yet")
		require.ErrorIs(s, h.Check(s.Context()), zklock.ErrNodeDeleted)
		require.ErrorIs(s, context.Cause(h.Context()), zklock.ErrNodeDeleted)
		s.Owned(b, s.Lock(b.Mutex(dir)))
	})
}

// scenario 22, with Check: a znode of the same name that belongs to another session is not ours.
func TestScenario22_CheckComparesTheOwner(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		dir, c := s.Dir("/locks/a"), s.Client()
		h := s.Lock(c.Mutex(dir))
		require.NoError(s, s.Server.Delete(h.Node())) // a fresh hold does not watch its znode yet
		other := s.Stranger()
		_, err := other.Create(s.Context(), h.Node(), nil, session.Ephemeral, session.WorldACL())
		require.NoError(s, err)
		require.NoError(s, h.Err(), "it does not know yet")
		require.ErrorIs(s, h.Check(s.Context()), zklock.ErrNodeDeleted)
		require.ErrorIs(s, context.Cause(h.Context()), zklock.ErrNodeDeleted)
		require.NoError(s, other.Close())
	})
}

// scenario 23: Unlock is retried late, after the same client took the lock again: it releases its own acquisition only.
func TestScenario23_ALateUnlockReleasesOnlyItsOwnAcquisition(t *testing.T) {
	for name, release := range map[string]func(s *locktest.Sim, c *locktest.Client, h *zklock.Hold){
		"after a release that worked": func(s *locktest.Sim, c *locktest.Client, h *zklock.Hold) { s.Unlock(h) },
		"after one that lost its reply": func(s *locktest.Sim, c *locktest.Client, h *zklock.Hold) {
			s.Server.Inject(fault.CloseAfter().Op(fault.OpDelete).Times(1))
			s.Unlock(h)
		},
		"after one that was repeated in the background": func(s *locktest.Sim, c *locktest.Client, h *zklock.Hold) {
			s.Server.Inject(fault.CloseBefore().Op(fault.OpDelete).Times(3))
			require.NoError(s, h.Unlock())
		},
		"after one without a connection": func(s *locktest.Sim, c *locktest.Client, h *zklock.Hold) {
			s.Server.Leader().Down()
			require.NoError(s, h.Unlock())
			s.Server.Leader().Up()
		},
		"after a loss": func(s *locktest.Sim, c *locktest.Client, h *zklock.Hold) {
			require.NoError(s, s.Server.Delete(h.Node()))
			require.Error(s, h.Unlock())
		},
	} {
		t.Run(name, func(t *testing.T) {
			locktest.Simulate(t, func(s *locktest.Sim) {
				dir, c := s.Dir("/locks/a"), s.Client()
				m := c.Mutex(dir)
				first := s.Lock(m)
				release(s, c, first)
				second := s.Lock(m)
				for range 3 {
					require.ErrorIs(s, first.Unlock(), zklock.ErrUnlocked)
					time.Sleep(10 * time.Second)
				}
				s.Owned(c, second)
				require.Equal(s, []string{path.Base(second.Node())}, s.Server.Children(dir))
				s.Unlock(second)
				require.Empty(s, s.Server.Children(dir))
			})
		})
	}
}
