package zklock_test

import (
	"testing"
	"testing/synctest"

	"github.com/zklock/locker/internal/locktest"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/zklock"
)

func TestAMultiLockThatMayNotReadItsZnodesHoldsNoneThatWasDeletedWhileItWaited(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		da, db, a, b, c := s.Dir("/locks/a"), s.Dir("/locks/b"), s.Client(), s.Client(), s.Client()
		h := s.Lock(a.Mutex(da))
		blind := b.MultiLock([]string{da, db}, zklock.WithACL(zk.ACL{Perms: zk.PermAll &^ zk.PermRead, Scheme: "world", ID: "anyone"}))
		call := locktest.Go(s.Context(), blind.Lock)
		synctest.Wait()
		require.False(s, call.Over())
		require.NoError(s, s.Server.Delete(db+"/"+locktest.Contenders(s.Server.Children(db))[0]))
		other := s.Lock(c.Mutex(db))
		s.Unlock(h)
		synctest.Wait()
		require.False(s, call.Over() && other.Err() == nil, "two hold %s: %v", db, other.Err())
	})
}
