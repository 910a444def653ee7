package zklock_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/internal/session"
	"github.com/zklock/locker/tests/locktest"
	"github.com/zklock/locker/zklock"
	"github.com/zklock/locker/zktest"
	"github.com/zklock/locker/zktest/fault"
)

// mutexCalls are all calls of a Mutex.
var mutexCalls = map[string]func(ctx context.Context, m *zklock.Mutex) error{
	"Lock": func(ctx context.Context, m *zklock.Mutex) error {
		_, _, err := m.Lock(ctx)
		return err
	},
	"TryLock": func(ctx context.Context, m *zklock.Mutex) error {
		_, _, err := m.TryLock(ctx)
		return err
	},
	"Do": func(ctx context.Context, m *zklock.Mutex) error {
		return m.Do(ctx, func(context.Context) error { panic("called") })
	},
}

// untouched runs a test that must not send a request.
func untouched(t *testing.T, fn func(t *testing.T, c *zklock.Client)) {
	t.Helper()
	locktest.Bubble(t, func(t *testing.T, srv *zktest.Server) {
		c := locktest.Dial(t, srv)
		before := srv.Requests()
		fn(t, c)
		made := srv.Requests()
		delete(before, fault.OpPing)
		delete(made, fault.OpPing)
		require.Equal(t, before, made, "no I/O")
	})
}

func TestABadLockOptionIsRefusedByEveryCallBeforeAnyRequest(t *testing.T) {
	untouched(t, func(t *testing.T, c *zklock.Client) {
		for name, bad := range badLockOptions {
			m := c.Mutex("/l", zklock.WithOwner("me"), bad.opt)
			for call, do := range mutexCalls {
				err := do(context.Background(), m)
				require.ErrorIs(t, err, zklock.ErrInvalid, "%s: %s", name, call)
				require.ErrorContains(t, err, bad.says, "%s: %s", name, call)
			}
		}
	})
}

func TestTheLongestPathThatIsTakenWorks(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T, srv *zktest.Server) {
		c := locktest.Dial(t, srv)
		longest := 0
		for n := 3900; n <= 4096; n++ {
			if _, _, err := c.Mutex("/" +
				strings.Repeat("x", n-1)).TryLock(locktest.Soon(t)); err == nil {
				longest = n
			} else {
				require.ErrorIs(t, err, zklock.ErrPath)
				break
			}
		}
		require.Greater(t, longest, 3990)
	})
}

// When a thousand callers send requests at once, each waits for the answers to the others as well.
// As long as answers arrive the server is in order. If the client gave the connection up, it would
// send all requests again to a server that is already busy.
func TestABurstOfRequestsIsNoReasonToGiveAConnectionUpThatAnswers(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		const callers, names = 1000, 400
		dir, breaks := s.Dir("/l"), new(atomic.Int64)
		for i := range names {
			require.NoError(s, s.Server.Create(fmt.Sprintf("%s/%064d", dir, i), nil))
		}
		c := slowClient(s, 1_000_000,
			zklock.WithHooks(zklock.Hooks{Session: func(i session.Change) {
				if i.State == session.Disconnected {
					breaks.Add(1)
				}
			}}))
		ses, err := c.Session(s.Context())
		require.NoError(s, err)
		began := time.Now()
		ends := make(chan error, callers)
		for range callers {
			go func() {
				_, _, err := ses.List(s.Context(), dir)
				ends <- err
			}()
		}
		for range callers {
			require.NoError(s, <-ends)
		}
		require.Greater(s, time.Since(began), 2*ses.Timeout(),
			"the last answer is far behind the first")
		require.Zero(s, breaks.Load())
	})
}
