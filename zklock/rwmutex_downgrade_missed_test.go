package zklock_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/zklock"
	"github.com/zklock/locker/zktest"
)

func TestADowngradeThatTheFirstLookMissesLeavesNoReaderWhenCtxEndsBeforeTheNextAttempt(t *testing.T) {
	simTest(t, func(s *sim) {
		dir, a, b := s.dir("/locks/rw"), s.client(), s.client()
		m := a.RWMutex(dir, zklock.WithLockDelay(time.Second))
		h, err := m.Lock(s.Context())
		require.NoError(s, err)
		s.srv.Inject(zktest.CloseAfter().Op(zktest.OpMulti).Session(a.id()).Once()) // carried out, and its reply is lost
		noNode := func(b []byte) []byte { return append(append([]byte{}, b[:12]...), 0xff, 0xff, 0xff, 0x9b) }
		look := s.srv.Inject(zktest.Garble(noNode).Op(zktest.OpExists).Session(a.id()).Once())
		held := s.srv.Inject(zktest.Hold().Op(zktest.OpGetData).Session(a.id()).After(1)) // the read before the second attempt
		ctx, cancel := context.WithTimeout(s.Context(), 3*time.Second)
		defer cancel()
		_, err = m.Downgrade(ctx, h)
		require.Error(s, err)
		require.Equal(s, 1, look.Hits())
		held.Remove()
		synctest.Wait()
		_ = h.Unlock(s.Context())
		time.Sleep(time.Minute)
		require.NoError(s, a.session().Err())
		_, err = b.RWMutex(dir).TryLock(s.Context())
		require.NoError(s, err, "%v", s.srv.Children(dir))
	})
}
