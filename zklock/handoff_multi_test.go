package zklock_test

import (
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/internal/session"
	"github.com/zklock/locker/tests/locktest"
	"github.com/zklock/locker/zklock"
	"github.com/zklock/locker/zktest/fault"
)

func TestMultiAndCheckOfAHandedOnHold(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		m := s.Client().Mutex("/l", zklock.WithHandoffs(50))
		first := s.Lock(m)
		calls := inLine(s, m, 3)
		s.Unlock(first)
		h := calls[0].Get(s)
		require.NoError(s, h.Check(s.Context()))
		_, err := h.Multi(s.Context(), session.OpCreate{Path: "/a", ACL: session.WorldACL()})
		require.NoError(s, err)
		_, err = first.Multi(s.Context(), session.OpCreate{Path: "/b", ACL: session.WorldACL()})
		require.ErrorIs(s, err, zklock.ErrUnlocked)
		require.ErrorIs(s, first.Check(s.Context()), zklock.ErrUnlocked)
		_, ok := s.Server.Node("/b")
		require.False(s, ok)
		s.Unlock(h)
		h = calls[1].Get(s)
		require.Equal(s, first.Token(), h.Token(), "a Multi that was answered is no reason to give the znode up")
		require.NoError(s, s.Server.Delete(h.Node()))
		_, err = h.Multi(s.Context(), session.OpCreate{Path: "/c", ACL: session.WorldACL()})
		require.ErrorIs(s, err, zklock.ErrNodeDeleted)
		last := calls[2].Get(s)
		require.Greater(s, last.Token(), h.Token())
		s.Unlock(last)
		clean(s, "/l")
	})
}

// A Multi that is under way when its hold is released, or whose outcome is unknown, could be carried out during the next
// hold, if that had the znode that the Multi checks. So the next hold gets another znode.
func TestAZnodeThatAMultiMayStillCheckIsNotHandedOn(t *testing.T) {
	for name, failure := range map[string]fault.Fault{"under way": fault.Hold(), "reply lost": fault.CloseAfter()} {
		t.Run(name, func(t *testing.T) {
			locktest.Simulate(t, func(s *locktest.Sim) {
				c := s.Client()
				m := c.Mutex("/l", zklock.WithHandoffs(50))
				h := s.Lock(m)
				w := inLine(s, m, 1)[0]
				in := s.Server.Inject(failure.Op(fault.OpMulti).Once())
				done := make(chan error, 1)
				go func() {
					_, err := h.Multi(s.Context(), session.OpCreate{Path: "/a", ACL: session.WorldACL()})
					done <- err
				}()
				<-in.Hit()
				synctest.Wait()
				unlocked := make(chan error, 1)
				go func() { unlocked <- h.Unlock() }()
				synctest.Wait()
				in.Remove()
				require.NoError(s, <-unlocked)
				if err := <-done; name == "reply lost" {
					require.ErrorIs(s, err, zklock.ErrUnknownOutcome)
				} else {
					require.NoError(s, err)
				}
				require.Greater(s, w.Get(s).Token(), h.Token())
			})
		})
	}
}
