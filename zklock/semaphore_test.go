package zklock_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/tests/locktest"
	"github.com/zklock/locker/zklock"
)

// Tests of a semaphore; most are scripts: testdata/scripts/semaphore.txt.

// scenario 35: programs give one semaphore different sizes, as during a rolling deploy from 8 to 10
// and back. The ensemble's counts for all; who has another is warned once.
func TestScenario35_TheSizeAtTheEnsembleCountsAndAnotherIsWarnedOf(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		dir := s.Dir("/locks/a")
		s.Unlock(s.Take(locktest.Permits(s.Client().Semaphore(dir, 8), 1)))
		for _, size := range []int{10, 8, 5} {
			var log bytes.Buffer
			c := s.Client(zklock.WithLogger(slog.New(slog.NewTextHandler(&log,
				&slog.HandlerOptions{Level: slog.LevelWarn}))))
			m := c.Semaphore(dir, size)
			for range 2 {
				h := s.Take(locktest.Permits(m, 5))
				_, _, err := m.TryAcquire(s.Context(), 4)
				require.ErrorIs(s, err, zklock.ErrBusy, "3 are left")
				s.Unlock(h)
			}
			_, _, err := m.Acquire(s.Context(), 9)
			require.ErrorIs(s, err, zklock.ErrInvalid)
			require.ErrorContains(s, err, "more than the semaphore has, which is 8")
			if size == 8 {
				require.Empty(s, log.String())
			} else {
				require.Equal(s, 1, strings.Count(log.String(), "\n"), log.String())
				require.Contains(s, log.String(),
					fmt.Sprintf("path=%s ensemble=8 program=%d", dir, size))
			}
		}
		s.NothingLeft(dir)
	})
}

// No call overwrites the data that another program keeps at the path, and the error names them
// (scenario 67).
func TestASemaphoreDoesNotOverwriteAnotherClientsData(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		s.Dir("/locks")
		for i, data := range []string{"hello", `{"size":"3"}`, `{"size":-3}`,
			`{"size":3,"owner":"me"}`, `[3]`, "3", "null", "\xff\xfe", `{"size":1e99}`, "\u202egnp"} {
			dir := "/locks/" + string(rune('a'+i))
			require.NoError(s, s.Server.Create(dir, []byte(data)))
			m := s.Client().Semaphore(dir, 3)
			for _, err := range []error{
				func() error { _, _, err := m.Acquire(s.Context(), 1); return err }(),
				func() error { _, _, err := m.TryAcquire(s.Context(), 1); return err }(),
				m.Resize(s.Context(), 5),
			} {
				require.ErrorIs(s, err, zklock.ErrConflict, "data %q", data)
				require.ErrorContains(s, err, dir+" has data that no lock has written")
				require.NotContains(s, err.Error(), "\u202e")
			}
			n, _ := s.Server.Node(dir)
			require.Equal(s, data, string(n.Data))
			require.Empty(s, s.Server.Children(dir))
		}
		for i, data := range []string{"", `{"size":0}`, "{}", ` { "size": 3 } `} { // nobody's, or a size
			dir := "/locks/" + string(rune('A'+i))
			require.NoError(s, s.Server.Create(dir, []byte(data)))
			s.Unlock(s.Take(locktest.Permits(s.Client().Semaphore(dir, 3), 3)))
			size, _, err := s.Client().Semaphore(dir, 4).Size(s.Context())
			require.NoError(s, err)
			require.Equal(s, 3, size, "data %q", data)
		}
	})
}

// A contender that could not announce that it holds would keep those behind it waiting.
func TestASemaphoreWhoseUsersMayCreateAndNotWriteIsRefused(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		acl := zklock.WithACL(append(zk.DigestACL(zk.PermAll, "alice", "a"),
			zk.WorldACL(zk.PermCreate|zk.PermRead|zk.PermDelete)...)...)
		sem := s.Client().Semaphore("/locks/a", 2, acl)
		_, _, err := sem.Acquire(s.Context(), 1)
		require.ErrorIs(s, err, zklock.ErrInvalid)
		require.ErrorContains(s, err, "the access list lets world:anyone create, but not write")
		_, _, err = sem.TryAcquire(s.Context(), 1)
		require.ErrorIs(s, err, zklock.ErrInvalid)
		_, stands := s.Server.Node("/locks/a")
		require.False(s, stands)
	})
}
