package zklock_test

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/internal/session"
	"github.com/zklock/locker/internal/unsealed"
	"github.com/zklock/locker/tests/locktest"
	"github.com/zklock/locker/zklock"
	"github.com/zklock/locker/zktest"
	"github.com/zklock/locker/zktest/fault"
)

func TestTheClientsSessionIsForTheProgramsOwnReadsAndWrites(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T, srv *zktest.Server) {
		c := locktest.Dial(t, srv)
		s, err := unsealed.Session(locktest.Soon(t), c)
		require.NoError(t, err)
		h := locktest.Lock(t, c.Mutex("/l"))
		node, there := srv.Node(h.Node())
		require.True(t, there)
		require.Equal(t, s.ID(), node.Stat.EphemeralOwner, "the session that the locks live in")
		_, err = s.Create(locktest.Soon(t), "/own", []byte("x"), session.Ephemeral,
			session.WorldACL())
		require.NoError(t, err)
		data, _, err := s.Get(locktest.Soon(t), "/own")
		require.NoError(t, err)
		require.Equal(t, []byte("x"), data)
		require.Len(t, srv.Sessions(), 1)
		require.Equal(t, 1, srv.Connections(), "no second connection")
	})
}

func TestAHoldTellsWhatItIs(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T, srv *zktest.Server) {
		c := locktest.Dial(t, srv)
		before := time.Now()
		h := locktest.Lock(t, c.Mutex("/a/b"))
		node, there := srv.Node(h.Node())
		require.True(t, there)
		require.Equal(t, []string{h.Node()}, h.Nodes())
		require.Regexp(t, `^/a/b/_c_[0-9a-f-]{36}-lock-0000000000$`, h.Node())
		require.EqualValues(t, node.Stat.Czxid, h.Token())
		require.Positive(t, h.Token())
		require.NoError(t, h.Err())
		require.NoError(t, h.Context().Err())
		require.True(t, h.SafeUntil().After(before.Add(5*time.Second)))
		until := h.SafeUntil()
		time.Sleep(time.Minute)
		require.True(t, h.SafeUntil().After(until.Add(50*time.Second)),
			"it moves on with each heartbeat")
		require.NoError(t, h.Check(locktest.Soon(t)))
		inner, ok := zklock.HoldFrom(h.Context(), "/a/b")
		require.True(t, ok)
		require.Same(t, h, inner)

		locktest.Unlock(t, h)
		require.Equal(t, zklock.ErrUnlocked, h.Err())
		require.Equal(t, zklock.ErrUnlocked, context.Cause(h.Context()))
		require.NotErrorIs(t, h.Err(), zklock.ErrLost)
		require.ErrorIs(t, h.Unlock(), zklock.ErrUnlocked)
		require.ErrorIs(t, h.Check(locktest.Soon(t)), zklock.ErrUnlocked)
		_, err := h.Multi(locktest.Soon(t))
		require.ErrorIs(t, err, zklock.ErrUnlocked)
		next := locktest.Lock(t, c.Mutex("/a/b"))
		require.Greater(t, next.Token(), h.Token())
	})
}

// shortLived is a connection that breaks right after the handshake, when the deadline for that is
// cleared.
type shortLived struct{ net.Conn }

func (c shortLived) SetDeadline(t time.Time) error {
	if t.IsZero() {
		return io.ErrClosedPipe
	}
	return c.Conn.SetDeadline(t)
}

// The first connection breaks right after the handshake, and the ensemble ends the session before
// the client has reconnected. Dial goes on until there is a session, or ctx ends.
func TestDialOutlivesASessionThatEndsBeforeItIsHeardOf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := zktest.Run(t, zktest.WithoutListener())
		var dials atomic.Int32
		c, err := zklock.Dial(t.Context(), srv.Addr(),
			zklock.WithDialer(func(n, a string, d time.Duration) (net.Conn, error) {
				conn, err := srv.Dial(n, a, d)
				if err == nil && dials.Add(1) == 1 {
					return shortLived{conn}, nil
				}
				for _, s := range srv.Sessions() {
					_ = srv.Expire(s.ID) // gone by itself, perhaps
				}
				return conn, err
			}))
		require.NoError(t, err)
		_, h, err := c.Mutex("/locks/a").Lock(t.Context())
		require.NoError(t, err)
		require.NoError(t, h.Unlock())
		require.NoError(t, c.Close())
	})
}

// A server that enforces authentication answers the handshake of each session, and refuses its
// first request.
func TestALockWhereAuthenticationIsEnforcedSaysSoAtOnce(t *testing.T) {
	srv := zktest.Run(t)
	c := locktest.Dial(t, srv)
	const required = -124 // SESSIONCLOSEDREQUIRESASLAUTH
	srv.Inject(fault.Answer(required))
	for name, lock := range map[string]locktest.Acquire{
		"Lock":    c.Mutex("/locks/a").Lock,
		"TryLock": c.Mutex("/locks/a").TryLock,
		"Acquire": func(ctx context.Context) (context.Context, *zklock.Hold, error) {
			return c.Semaphore("/locks/s", 2).Acquire(ctx, 1)
		},
	} {
		_, _, err := lock(locktest.Within(t, 20*time.Second))
		require.ErrorIs(t, err, zklock.ErrAuth, name)
		require.ErrorContains(t, err, "enforces authentication", name)
		require.NotErrorIs(t, err, context.DeadlineExceeded, name)
	}
}

// Scenario 56: writes take from a twentieth to more than a third of the timeout, on every server.
// Locks are still acquired, held and handed over.
func TestScenarioLocksWorkWhileWritesAreSlow(t *testing.T) {
	for _, slow := range []time.Duration{500, 1150, 1250, 1500, 1800, 2000, 2600, 3000, 3300,
		3700} {
		slow *= time.Millisecond
		t.Run(slow.String(), func(t *testing.T) {
			locktest.Simulate(t, func(s *locktest.Sim) {
				a, b := s.Client(), s.Client()
				s.Server.Inject(fault.DelayReply(slow).Op(fault.OpCreate, fault.OpDelete,
					fault.OpSetData, fault.OpMulti, fault.OpSync))
				for range 5 {
					for _, c := range []*locktest.Client{a, b} {
						ctx, cancel := context.WithTimeout(s.Context(), 2*time.Minute)
						began := time.Now()
						_, hold, err := c.Mutex("/locks/slow").Lock(ctx)
						require.NoError(s, err)
						s.Logf("locked after %v", time.Since(began))
						time.Sleep(30 * time.Second)
						require.NoError(s, hold.Err())
						require.NoError(s, hold.Unlock())
						cancel()
					}
				}
			})
		})
	}
}

// Scenarios 51 and 52: a directory whose list is too long to read fails its own lock, and not the
// client's other locks; the same for a transaction that is too long for a server.
func TestALockThatIsTooLargeForARequestFailsAlone(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		c := s.Client()
		_, other, err := c.Mutex("/locks/other").Lock(s.Context())
		require.NoError(s, err)
		require.NoError(s, s.Server.Create("/locks/long", nil))
		name := make([]byte, 900<<10)
		for i := range name {
			name[i] = 'n'
		}
		for i := range 40 {
			require.NoError(s,
				s.Server.Create("/locks/long/"+
					string(rune('a'+i%26))+string(rune('a'+i/26))+string(name), nil))
		}
		connects := s.Server.Requests()[fault.OpConnect]
		_, _, err = c.Mutex("/locks/long").Lock(s.Context())
		require.ErrorIs(s, err, zklock.ErrTooLarge)
		require.Less(s, len(err.Error()), 400)
		_, _, err = c.Mutex("/locks/long").TryLock(s.Context())
		require.ErrorIs(s, err, zklock.ErrTooLarge)
		time.Sleep(5 * time.Second)
		for _, name := range s.Server.Children("/locks/long") {
			require.Greater(s, len(name), 1000, "nothing of ours is left there")
		}

		paths := make([]string, 20)
		for i := range paths {
			paths[i] = "/locks/m" + string(rune('a'+i))
		}
		ctx, cancel := context.WithTimeout(s.Context(), time.Minute)
		defer cancel()
		_, _, err = c.MultiLock(paths, zklock.WithOwner(strings.Repeat("x", 60<<10))).Lock(ctx)
		require.ErrorIs(s, err, zklock.ErrTooLarge)

		require.Equal(s, connects, s.Server.Requests()[fault.OpConnect], "no connection was lost")
		require.NoError(s, other.Check(s.Context()))
		require.NoError(s, other.Unlock())
	})
}

// A call whose context ends at the moment at which the session's first connection opens and breaks
// gets a session or an error.
func TestACallThatEndsAsTheFirstConnectionBreaksDoesNotPanic(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		for range 100 {
			const at = 500 * time.Millisecond
			s.Server.Inject(fault.DelayReply(at).Op(fault.OpConnect).Once())
			time.AfterFunc(at, s.Server.DropConnections)
			c, err := zklock.Open(s.Server.Addr(), zklock.WithDialer(s.Server.Dial))
			require.NoError(s, err)
			var all sync.WaitGroup
			for range 100 {
				all.Go(func() {
					ctx, cancel := context.WithTimeout(s.Context(), at)
					defer cancel()
					_, h, err := c.Mutex("/l").Lock(ctx)
					if err != nil {
						return
					}
					if err := h.Unlock(); err != nil && !errors.Is(err, zklock.ErrLost) {
						s.Error(err)
					}
				})
			}
			all.Wait()
			require.NoError(s, c.Close())
		}
	})
}
