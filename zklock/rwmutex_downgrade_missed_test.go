package zklock_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zklock/locker/internal/locktest"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/zklock"
	"github.com/zklock/locker/zktest"
)

func TestADowngradeThatTheFirstLookMissesLeavesNoReaderWhenCtxEndsBeforeTheNextAttempt(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		dir, a, b := s.Dir("/locks/rw"), s.Client(), s.Client()
		m := a.RWMutex(dir, zklock.WithLockDelay(time.Second))
		h, err := m.Lock(s.Context())
		require.NoError(s, err)
		s.Server.Inject(zktest.CloseAfter().Op(zktest.OpMulti).Session(a.SessionID()).Once()) // carried out, and its reply is lost
		noNode := func(b []byte) []byte { return append(append([]byte{}, b[:12]...), 0xff, 0xff, 0xff, 0x9b) }
		look := s.Server.Inject(zktest.Garble(noNode).Op(zktest.OpExists).Session(a.SessionID()).Once())
		held := s.Server.Inject(zktest.Hold().Op(zktest.OpGetData).Session(a.SessionID()).After(1)) // the read before the second attempt
		ctx, cancel := context.WithTimeout(s.Context(), 3*time.Second)
		defer cancel()
		_, err = m.Downgrade(ctx, h)
		require.Error(s, err)
		require.Equal(s, 1, look.Hits())
		held.Remove()
		synctest.Wait()
		_ = h.Unlock(s.Context())
		time.Sleep(time.Minute)
		require.NoError(s, a.Current().Err())
		_, err = b.RWMutex(dir).TryLock(s.Context())
		require.NoError(s, err, "%v", s.Server.Children(dir))
	})
}
