package zklock_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/internal/locktest"
	"github.com/zklock/locker/zklock"
	"github.com/zklock/locker/zktest"
)

// A write hold's Multi must not be carried out after the lock has become a read lock, when other clients may be reading.
func TestAWriteHoldsMultiIsRefusedOnceTheLockIsAReaders(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		s.Dir("/data")
		b := s.Client()
		hooked := make(chan struct{})
		proceed := make(chan struct{})
		a := s.Client(zklock.WithHooks(zklock.Hooks{Downgraded: func(zklock.DowngradedInfo) { close(hooked); <-proceed }}))
		w, err := a.RWMutex("/l").Lock(s.Context())
		require.NoError(s, err)
		down := make(chan error, 1)
		go func() {
			_, err := a.RWMutex("/l").Downgrade(s.Context(), w)
			down <- err
		}()
		<-hooked
		r, err := b.RWMutex("/l").RLock(s.Context())
		require.NoError(s, err)
		_, err = w.Multi(s.Context(), &zk.SetDataRequest{Path: "/data", Data: []byte("written"), Version: -1})
		node, _ := s.Server.Node("/data")
		require.NoError(s, r.Err())
		close(proceed)
		require.NoError(s, <-down)
		require.Error(s, err, "a write under the write lock while another client reads")
		require.Empty(s, node.Data)
	})
}

// The lock is lost while a Downgrade, which the ensemble has carried out, waits for its reply. The hold goes on saying why.
func TestADowngradeOfAHoldThatWasLostDuringADowngradeIsALoss(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		dir, a := s.Dir("/locks/a"), s.Client()
		m := a.RWMutex(dir, zklock.WithMaxHold(time.Second))
		w := s.Take(m.Lock)
		late := s.Server.Inject(zktest.HoldReply().Op(zktest.OpMulti).Session(a.SessionID()).Once())
		call := locktest.Go(s.Context(), downgrade(m, w))
		<-late.Hit()
		<-w.Context().Done()
		synctest.Wait()
		late.Release()
		s.Until(time.Minute, "the Downgrade has ended", call.Over)
		require.ErrorIs(s, call.Err, zklock.ErrMaxHold)
		_, err := m.Downgrade(s.Context(), w)
		require.ErrorIs(s, err, zklock.ErrMaxHold)
		require.ErrorIs(s, w.Unlock(s.Context()), zklock.ErrMaxHold)
		s.NothingLeft(dir)
	})
}
