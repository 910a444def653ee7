package zklock_test

import (
	"context"
	"errors"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zklock/locker/internal/locktest"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/session"
	"github.com/zklock/locker/zklock"
	"github.com/zklock/locker/zktest"
)

func TestDialOfAnUnreachableEnsembleNamesEachServerAndItsAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		_, err := zklock.Dial(locktest.Within(t, 2*time.Second), "a:1,b:2/app", zklock.WithDialer(
			func(_, addr string, _ time.Duration) (net.Conn, error) { return nil, errors.New("nobody at " + addr) }))
		require.Equal(t, 2*time.Second, time.Since(start))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorContains(t, err, `zklock: dial "a:1,b:2/app": `)
		require.ErrorContains(t, err, "a:1: nobody at a:1")
		require.ErrorContains(t, err, "b:2: nobody at b:2")
		time.Sleep(10 * time.Second) // what was begun ends by itself
	})
}

func TestDialWithAContextThatHasEnded(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T, srv *zktest.Server) {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		_, err := zklock.Dial(ctx, srv.Addr(), zklock.WithDialer(srv.Dial))
		require.ErrorIs(t, err, context.Canceled)
		time.Sleep(time.Minute)
		require.Empty(t, srv.Sessions())
	})
}

func TestDialWithCredentialsThatAreRefused(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T, srv *zktest.Server) {
		_, err := zklock.Dial(locktest.Soon(t), srv.Addr(), zklock.WithDialer(srv.Dial), zklock.WithAuth("nonesuch", []byte("secret-word")))
		require.ErrorIs(t, err, session.ErrAuth)
		require.ErrorContains(t, err, "nonesuch")
		require.NotContains(t, err.Error(), "secret-word")
		time.Sleep(time.Minute)
		require.Empty(t, srv.Sessions())
	})
}

func TestTheClientsSessionIsForTheProgramsOwnReadsAndWrites(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T, srv *zktest.Server) {
		c := locktest.Dial(t, srv)
		s, err := c.Session(locktest.Soon(t))
		require.NoError(t, err)
		h := locktest.Lock(t, c.Mutex("/l"))
		node, there := srv.Node(h.Node())
		require.True(t, there)
		require.Equal(t, s.ID(), node.Stat.EphemeralOwner, "the session that the locks live in")
		_, err = s.Create(locktest.Soon(t), "/own", []byte("x"), session.Ephemeral, session.WorldACL())
		require.NoError(t, err)
		data, _, err := s.Get(locktest.Soon(t), "/own")
		require.NoError(t, err)
		require.Equal(t, []byte("x"), data)
		require.Len(t, srv.Sessions(), 1)
		require.Equal(t, 1, srv.Connections(), "no second connection")
	})
}

func TestWhenASessionHasEndedTheClientOpensTheNext(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T, srv *zktest.Server) {
		c := locktest.Dial(t, srv)
		for range 3 {
			old, err := c.Session(locktest.Soon(t))
			require.NoError(t, err)
			h := locktest.Lock(t, c.Mutex("/l"))
			require.NoError(t, srv.Expire(old.ID()))
			srv.DropConnections()
			require.ErrorIs(t, locktest.End(h), zklock.ErrSessionExpired)
			next, err := c.Session(locktest.Soon(t))
			require.NoError(t, err)
			require.NotEqual(t, old.ID(), next.ID())
			require.NoError(t, next.Err())
			require.ErrorIs(t, old.Err(), zklock.ErrLost)
		}
		synctest.Wait()
		require.Len(t, srv.Sessions(), 1)
	})
}

func TestSessionWaitsAsLongAsItsContextLasts(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T, srv *zktest.Server) {
		c := locktest.Dial(t, srv)
		s, err := c.Session(locktest.Soon(t))
		require.NoError(t, err)
		srv.Leader().Down()
		require.NoError(t, srv.Expire(s.ID()))
		<-s.Done()
		start := time.Now()
		_, err = c.Session(locktest.Within(t, 5*time.Second))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, 5*time.Second, time.Since(start))
		srv.Leader().Up()
		_, err = c.Session(locktest.Within(t, 5*time.Second))
		require.NoError(t, err)
	})
}

func TestCloseEndsHoldsAndWaitsWithErrClosed(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T, srv *zktest.Server) {
		c := locktest.Dial(t, srv)
		h := locktest.Lock(t, c.Mutex("/l"))
		waiting := make(chan error, 1)
		go func() {
			_, err := c.Mutex("/l").Lock(context.Background())
			waiting <- err
		}()
		synctest.Wait()
		start := time.Now()
		require.NoError(t, c.Close())
		require.Zero(t, time.Since(start))
		require.ErrorIs(t, h.Err(), zklock.ErrClosed)
		require.ErrorIs(t, context.Cause(h.Context()), zklock.ErrClosed)
		require.NotErrorIs(t, h.Err(), zklock.ErrLost, "it was asked for")
		require.ErrorIs(t, <-waiting, zklock.ErrClosed)
		require.ErrorIs(t, h.Unlock(context.Background()), zklock.ErrClosed)
		require.Empty(t, srv.Children("/l"), "the locks are free at once")
		require.Empty(t, srv.Sessions())
		require.NoError(t, c.Close())

		_, err := c.Session(context.Background())
		require.ErrorIs(t, err, zklock.ErrClosed)
		_, err = c.Mutex("/l").Lock(context.Background())
		require.ErrorIs(t, err, zklock.ErrClosed)
		require.EqualError(t, err, "zklock: lock /l: client closed")
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
		require.True(t, h.SafeUntil().After(until.Add(50*time.Second)), "it moves on with each heartbeat")
		require.NoError(t, h.Check(locktest.Soon(t)))
		inner, ok := zklock.HoldFrom(h.Context())
		require.True(t, ok)
		require.Same(t, h, inner)

		locktest.Unlock(t, h)
		require.Equal(t, zklock.ErrUnlocked, h.Err())
		require.Equal(t, zklock.ErrUnlocked, context.Cause(h.Context()))
		require.NotErrorIs(t, h.Err(), zklock.ErrLost)
		require.ErrorIs(t, h.Unlock(locktest.Soon(t)), zklock.ErrNotHeld)
		require.ErrorIs(t, h.Check(locktest.Soon(t)), zklock.ErrUnlocked)
		_, err := h.Multi(locktest.Soon(t))
		require.ErrorIs(t, err, zklock.ErrUnlocked)
		next := locktest.Lock(t, c.Mutex("/a/b"))
		require.Greater(t, next.Token(), h.Token())
	})
}

func TestTheHoldsContextHasTheCallersValuesAndNotItsEnd(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T, srv *zktest.Server) {
		type key struct{}
		c := locktest.Dial(t, srv)
		ctx, cancel := context.WithCancel(context.WithValue(context.Background(), key{}, "mine"))
		h, err := c.Mutex("/l").Lock(ctx)
		require.NoError(t, err)
		cancel()
		time.Sleep(time.Second)
		require.NoError(t, h.Context().Err())
		require.Equal(t, "mine", h.Context().Value(key{}))
		require.NoError(t, h.Unlock(context.WithoutCancel(ctx)))
	})
}

func TestUnlockWithAContextThatHasEndedReleasesAllTheSame(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T, srv *zktest.Server) {
		c := locktest.Dial(t, srv)
		ctx, cancel := context.WithCancel(context.Background())
		h, err := c.Mutex("/l").Lock(ctx)
		require.NoError(t, err)
		cancel()
		require.ErrorIs(t, h.Unlock(ctx), context.Canceled)
		require.Equal(t, zklock.ErrUnlocked, h.Err())
		synctest.Wait()
		require.Empty(t, srv.Children("/l"))
	})
}
