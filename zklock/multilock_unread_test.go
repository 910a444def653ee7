package zklock_test

import (
	"testing"
	"testing/synctest"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/zklock"
)

func TestAMultiLockThatMayNotReadItsZnodesHoldsNoneThatWasDeletedWhileItWaited(t *testing.T) {
	simTest(t, func(s *sim) {
		da, db, a, b, c := s.dir("/locks/a"), s.dir("/locks/b"), s.client(), s.client(), s.client()
		h := s.lock(a.Mutex(da))
		blind := b.MultiLock([]string{da, db}, zklock.WithACL(zk.ACL{Perms: zk.PermAll &^ zk.PermRead, Scheme: "world", ID: "anyone"}))
		call := simGo(s.Context(), blind.Lock)
		synctest.Wait()
		require.False(s, call.over())
		require.NoError(s, s.srv.Delete(db+"/"+contenders(s.srv.Children(db))[0]))
		other := s.lock(c.Mutex(db))
		s.unlock(h)
		synctest.Wait()
		require.False(s, call.over() && other.Err() == nil, "two hold %s: %v", db, other.Err())
	})
}
