package zklock_test

import (
	"fmt"
	"testing"

	"github.com/zklock/locker/internal/locktest"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/zklock"
)

func TestWhatIsPrintedIsAName(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		c := s.Client(zklock.WithAuth("digest", []byte("user:secret")))
		require.Equal(s, "client of "+s.Server.Addr()+" (connected)", fmt.Sprint(c.Client))
		for want, lock := range map[string]any{
			"mutex /a": c.Mutex("/a"), "read/write lock /a": c.RWMutex("/a"), "semaphore /a": c.Semaphore("/a", 2), "election /a": c.Election("/a"),
			"once /a": c.Once("/a"), "multi lock /a, /b": c.MultiLock([]string{"/a", "/b"}), `mutex /\x1b`: c.Mutex("/\x1b"),
		} {
			require.Equal(s, want, fmt.Sprint(lock))
			require.Equal(s, want, fmt.Sprintf("%s", lock))
		}
		h := s.Lock(c.Mutex("/a"))
		text := fmt.Sprintf("hold of /a, token %d", h.Token())
		require.Equal(s, text, fmt.Sprintf("%v", h))
		s.Unlock(h)
		require.Equal(s, text+", released", fmt.Sprint(h))
		h, err := c.MultiLock([]string{"/a", "/b"}).Lock(s.Context())
		require.NoError(s, err)
		require.Equal(s, fmt.Sprintf("hold of /a, /b, token %d", h.Token()), fmt.Sprint(h))
		require.NoError(s, c.Close())
		require.Equal(s, fmt.Sprintf("hold of /a, /b, token %d, lost: closed", h.Token()), fmt.Sprint(h))
		require.Equal(s, "client of "+s.Server.Addr()+" (over)", fmt.Sprint(c.Client))
	})
}
