package zklock_test

import (
	"path"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/session"
	"github.com/zklock/locker/tests/locktest"
	"github.com/zklock/locker/zklock"
	"github.com/zklock/locker/zktest"
	"github.com/zklock/locker/zktest/fault"
)

// Scenario 83: the servers refuse the credentials for two seconds after the outage. Then the lost
// session is closed all the same.
func TestScenario83_CredentialsAreRefusedForAMomentAfterTheOutage(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T, srv *zktest.Server) {
		c := locktest.Dial(t, srv, zklock.WithAuth("digest", []byte("a:b")))
		lost := locktest.Lock(t, c.Mutex("/l"))
		time.Sleep(30 * time.Second)
		srv.Leader().Down()
		<-lost.Context().Done()
		require.ErrorIs(t, lost.Unlock(), zklock.ErrLost)
		refusal := srv.Inject(fault.Answer(fault.CodeAuthFailed).Op(fault.OpAuth))
		srv.Leader().Up()
		time.Sleep(2 * time.Second)
		refusal.Remove()
		began := time.Now()
		locktest.Unlock(t, locktest.Lock(t, c.Mutex("/l")))
		require.Less(t, time.Since(began), 2*time.Second)
	})
}

// Scenario 83: a hook that is told of the session's end takes its time, and even locks. The lost
// session is closed all the same.
func TestScenario83_AHookTakesItsTime(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T, srv *zktest.Server) {
		var c *zklock.Client
		hooks := zklock.Hooks{Session: func(change session.Change) {
			if change.State == session.Over && c != nil {
				time.Sleep(5 * time.Second)
			}
		}}
		c = locktest.Dial(t, srv, zklock.WithHooks(hooks))
		lost := locktest.Lock(t, c.Mutex("/l"))
		time.Sleep(30 * time.Second)
		srv.Leader().Down()
		<-lost.Context().Done()
		require.ErrorIs(t, lost.Unlock(), zklock.ErrLost)
		srv.Leader().Up()
		began := time.Now()
		locktest.Unlock(t, locktest.Lock(t, c.Mutex("/l")))
		require.Less(t, time.Since(began), 3*time.Second)
	})
}

// Scenario 83: the program has an ephemeral znode of its own in the lost session, and only the
// program knows what that protects. So the session lasts until the ensemble ends it.
func TestScenario83_AProgramsOwnEphemeralZnodeKeepsTheLostSession(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T, srv *zktest.Server) {
		c := locktest.Dial(t, srv)
		s, err := c.Session(locktest.Soon(t))
		require.NoError(t, err)
		own, err := s.Create(locktest.Soon(t), "/mine", nil, session.Ephemeral,
			zk.WorldACL(zk.PermAll))
		require.NoError(t, err)
		lost := locktest.Lock(t, c.Mutex("/l"))
		time.Sleep(30 * time.Second)
		srv.Leader().Down()
		<-s.Context().Done()
		safe := s.SafeUntil()
		require.ErrorIs(t, lost.Unlock(), zklock.ErrLost)
		srv.Leader().Up()
		time.Sleep(time.Until(safe))
		_, stands := srv.Node(own.Path)
		require.True(t, stands)
		locktest.Unlock(t, locktest.Lock(t, c.Mutex("/l")))
	})
}

// Scenario 83: a process is stopped when its turn has come, before it holds, and its session is
// lost and replaced meanwhile. The lost session may be closed, since nobody holds under it. So the
// call takes another place in line, in the session that has replaced it.
func TestScenario83_ATurnOfALostSessionIsNotHeld(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		m := s.Client().Mutex("/l")
		stopped, goOn := make(chan struct{}), make(chan struct{})
		stop := sync.OnceFunc(func() {
			close(stopped)
			<-goOn
		})
		zklock.DelayHolds(m, stop)
		call := locktest.Go(s.Context(), m.Lock)
		<-stopped
		lost := s.Server.Children("/l")
		s.Server.Leader().Down()
		time.Sleep(20 * time.Second)
		s.Server.Leader().Up()
		other := s.Lock(s.Client().Mutex("/l"))

		close(goOn)
		require.False(s, call.Over(), "while another client holds")
		s.Unlock(other)
		h := call.Get(s)
		require.NotContains(s, lost, path.Base(h.Node()))
		s.Unlock(h)
	})
}
