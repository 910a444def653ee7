package zklock_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zklock/locker/internal/locktest"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/session"
	"github.com/zklock/locker/zklock"
	"github.com/zklock/locker/zktest"
)

var errOwn = errors.New("the work's own error")

func TestDoHoldsTheLockWhileItsFunctionRuns(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T, srv *zktest.Server) {
		c := locktest.Dial(t, srv)
		require.NoError(t, c.Mutex("/l").Do(locktest.Soon(t), func(ctx context.Context) error {
			require.Len(t, srv.Children("/l"), 1)
			h, ok := zklock.HoldFrom(ctx)
			require.True(t, ok)
			require.NoError(t, h.Check(ctx))
			return nil
		}))
		require.Empty(t, srv.Children("/l"))
	})
}

func TestDoReturnsItsFunctionsErrorAndReleases(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T, srv *zktest.Server) {
		err := locktest.Dial(t, srv).Mutex("/l").Do(locktest.Soon(t), func(context.Context) error { return errOwn })
		require.Equal(t, errOwn, err, "as it is")
		require.Empty(t, srv.Children("/l"))
	})
}

func TestDoReleasesWhenItsFunctionPanics(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T, srv *zktest.Server) {
		m := locktest.Dial(t, srv).Mutex("/l")
		require.PanicsWithValue(t, "oh", func() {
			_ = m.Do(locktest.Soon(t), func(context.Context) error { panic("oh") })
		})
		require.Empty(t, srv.Children("/l"))
		require.NoError(t, m.Do(locktest.Soon(t), func(context.Context) error { return nil }))
	})
}

func TestDoReportsALossTogetherWithItsFunctionsError(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T, srv *zktest.Server) {
		m := locktest.Dial(t, srv).Mutex("/l")
		err := m.Do(locktest.Soon(t), func(ctx context.Context) error {
			time.Sleep(time.Second)
			require.NoError(t, srv.Delete("/l/"+srv.Children("/l")[0]))
			<-ctx.Done()
			require.ErrorIs(t, context.Cause(ctx), zklock.ErrNodeDeleted)
			return errOwn
		})
		require.ErrorIs(t, err, errOwn)
		require.ErrorIs(t, err, zklock.ErrLost)
		require.ErrorIs(t, err, zklock.ErrNodeDeleted)

		err = m.Do(locktest.Soon(t), func(ctx context.Context) error {
			time.Sleep(time.Second)
			require.NoError(t, srv.Delete("/l/"+srv.Children("/l")[0]))
			<-ctx.Done()
			return nil // it did not notice
		})
		require.ErrorIs(t, err, zklock.ErrNodeDeleted, "a loss is no success")
	})
}

func TestDosContextEndsWithTheCallersAndTheLockIsReleasedAfterwards(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T, srv *zktest.Server) {
		m := locktest.Dial(t, srv).Mutex("/l")
		ctx, cancel := context.WithCancelCause(context.Background())
		err := m.Do(ctx, func(ctx context.Context) error {
			cancel(errOwn)
			<-ctx.Done()
			require.Equal(t, errOwn, context.Cause(ctx))
			require.Len(t, srv.Children("/l"), 1, "held until the function has returned")
			return ctx.Err()
		})
		require.ErrorIs(t, err, context.Canceled)
		require.NotErrorIs(t, err, zklock.ErrLost)
		require.Empty(t, srv.Children("/l"))

		start := time.Now()
		err = m.Do(locktest.Within(t, 5*time.Second), func(ctx context.Context) error {
			deadline, ok := ctx.Deadline()
			require.True(t, ok)
			require.Equal(t, start.Add(5*time.Second), deadline)
			<-ctx.Done()
			return context.Cause(ctx)
		})
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Empty(t, srv.Children("/l"))
	})
}

func TestDoThatDoesNotGetTheLockDoesNotCallItsFunction(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T, srv *zktest.Server) {
		a, b := locktest.Dial(t, srv), locktest.Dial(t, srv)
		locktest.Lock(t, a.Mutex("/l"))
		never := func(context.Context) error { panic("called") }
		require.ErrorIs(t, b.Mutex("/l").Do(locktest.Within(t, time.Second), never), context.DeadlineExceeded)
		require.ErrorIs(t, b.Mutex("/l", zklock.WithWait(0)).Do(locktest.Within(t, time.Second), never), zklock.ErrBusy)
		synctest.Wait() // the first one's znode goes in the background
		require.Len(t, srv.Children("/l"), 1)
	})
}

func TestDosContextIsOverWhenItHasReturned(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T, srv *zktest.Server) {
		var leaked context.Context
		require.NoError(t, locktest.Dial(t, srv).Mutex("/l").Do(locktest.Soon(t), func(ctx context.Context) error {
			leaked = ctx
			return nil
		}))
		require.Error(t, leaked.Err())
		require.ErrorIs(t, context.Cause(leaked), zklock.ErrUnlocked)
	})
}

func TestMultiCommitsOnlyWhileTheLockIsHeld(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T, srv *zktest.Server) {
		require.NoError(t, srv.Create("/counter", []byte("0")))
		c := locktest.Dial(t, srv)
		h := locktest.Lock(t, c.Mutex("/l"))
		acl := session.WorldACL()
		resps, err := h.Multi(locktest.Soon(t),
			&zk.SetDataRequest{Path: "/counter", Data: []byte("1"), Version: 0}, &zk.CreateRequest{Path: "/made", Acl: acl})
		require.NoError(t, err)
		require.Len(t, resps, 2, "one for each operation, without the guard's")
		require.EqualValues(t, 1, resps[0].Stat.Version)
		require.Equal(t, "/made", resps[1].String)

		resps, err = h.Multi(locktest.Soon(t),
			&zk.CreateRequest{Path: "/other", Acl: acl}, &zk.SetDataRequest{Path: "/counter", Data: []byte("x"), Version: 0})
		require.ErrorIs(t, err, zk.ErrBadVersion)
		require.NotErrorIs(t, err, zklock.ErrLost)
		require.Len(t, resps, 2)
		require.NoError(t, resps[0].Error)
		require.ErrorIs(t, resps[1].Error, zk.ErrBadVersion)
		require.NoError(t, h.Err(), "the lock is not lost by a refusal")
		_, there := srv.Node("/other")
		require.False(t, there)

		_, err = h.Multi(locktest.Soon(t), &zk.DeleteRequest{Path: "/not/there", Version: -1})
		require.ErrorIs(t, err, zk.ErrNoNode)
		require.NotErrorIs(t, err, zklock.ErrLost, "the operation's own answer")
		require.NoError(t, h.Err())
		_, err = h.Multi(locktest.Soon(t), "no operation")
		require.Error(t, err)
		resps, err = h.Multi(locktest.Soon(t))
		require.NoError(t, err, "a guard alone")
		require.Empty(t, resps)

		require.NoError(t, srv.Delete(h.Node())) // not noticed yet
		_, err = h.Multi(locktest.Soon(t), &zk.SetDataRequest{Path: "/counter", Data: []byte("2"), Version: -1})
		require.ErrorIs(t, err, zklock.ErrLost)
		require.ErrorIs(t, err, zklock.ErrNodeDeleted)
		node, _ := srv.Node("/counter")
		require.Equal(t, []byte("1"), node.Data, "nothing was written without the lock")
		require.ErrorIs(t, h.Err(), zklock.ErrNodeDeleted, "and the hold knows")
	})
}

func TestMultiWithALostReplyHasAnUnknownOutcome(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T, srv *zktest.Server) {
		h := locktest.Lock(t, locktest.Dial(t, srv).Mutex("/l"))
		srv.Inject(zktest.CloseAfter().Op(zktest.OpMulti).Once())
		_, err := h.Multi(locktest.Soon(t), &zk.CreateRequest{Path: "/x", Acl: session.WorldACL()})
		require.ErrorIs(t, err, zklock.ErrUnknownOutcome)
		require.NoError(t, h.Err())
		require.NoError(t, h.Check(locktest.Soon(t)))
	})
}

func TestCheckWhoseContextEndsSaysNothingAboutTheLock(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T, srv *zktest.Server) {
		h := locktest.Lock(t, locktest.Dial(t, srv).Mutex("/l"))
		fault := srv.Inject(zktest.Hold().Op(zktest.OpSync))
		err := h.Check(locktest.Within(t, time.Second))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.NotErrorIs(t, err, zklock.ErrLost)
		require.NoError(t, h.Err())
		fault.Remove()
		require.NoError(t, h.Check(locktest.Soon(t)))
	})
}
