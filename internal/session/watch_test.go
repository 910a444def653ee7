package session_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/internal/session"
	"github.com/zklock/locker/zktest"
	"github.com/zklock/locker/zktest/fault"
)

func fired(w *session.Watch) bool {
	select {
	case <-session.Fired(w):
		return true
	default:
		return false
	}
}

func watch(t *testing.T, s *session.Session, path string) *session.Watch {
	t.Helper()
	w, err := s.Watch(within(t, soon), path)
	require.NoError(t, err)
	return w
}

// requireNoWatches checks that neither the session nor the server has a watch.
func requireNoWatches(t *testing.T, srv *zktest.Server, s *session.Session) {
	t.Helper()
	synctest.Wait()
	require.Zero(t, srv.WatchCount(), "watches at the server: %v", srv.Watches())
	require.Zero(t, s.WatchedPaths(), "paths in the table")
}

func TestAHundredWaitersShareOneWatch(t *testing.T) {
	bubble(t, func(t *testing.T, srv *zktest.Server) {
		require.NoError(t, srv.Create("/x", nil))
		s := open(t, srv)
		var ws []*session.Watch
		for range 100 {
			w := watch(t, s, "/x")
			require.True(t, w.Exists)
			ws = append(ws, w)
		}
		require.Equal(t, 1, srv.Requests()[fault.OpExists])
		require.Equal(t, 1, srv.WatchCount())
		require.NoError(t, srv.Delete("/x"))
		synctest.Wait()
		for _, w := range ws {
			require.True(t, fired(w))
			require.Equal(t, zk.EventNodeDeleted, w.Event())
			w.Close()
			w.Close()
		}
		require.Equal(t, 1, srv.Notifications())
		require.Zero(t, srv.Requests()[fault.OpRemoveWatches],
			"what has fired needs no taking away")
		requireNoWatches(t, srv, s)
	})
}

func TestTheLastCloseTakesTheWatchAwayAtTheServer(t *testing.T) {
	bubble(t, func(t *testing.T, srv *zktest.Server) {
		require.NoError(t, srv.Create("/x", nil))
		s := open(t, srv)
		first, second := watch(t, s, "/x"), watch(t, s, "/x")
		first.Close()
		first.Close()
		synctest.Wait()
		require.Equal(t, 1, srv.WatchCount(), "somebody still waits")
		second.Close()
		requireNoWatches(t, srv, s)
		require.Equal(t, 1, srv.Requests()[fault.OpRemoveWatches])
		require.NoError(t, srv.Delete("/x"))
		synctest.Wait()
		require.False(t, fired(first) || fired(second), "closed watches don't fire")
		require.Zero(t, srv.Notifications())
	})
}

func TestAWatchWhoseContextEndsBeforeItIsSetIsTakenAway(t *testing.T) {
	bubble(t, func(t *testing.T, srv *zktest.Server) {
		require.NoError(t, srv.Create("/x", nil))
		s := open(t, srv)
		failure := srv.Inject(fault.HoldReply().Op(fault.OpExists))
		_, err := s.Watch(within(t, time.Second), "/x")
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorContains(t, err, "waiting for the watch to be set")
		failure.Remove()
		requireNoWatches(t, srv, s)
	})
}

// The session itself asks for a watch, and no call sends that request again.
func TestAWatchThatABusyServerDropsIsAskedForOnTheNextConnection(t *testing.T) {
	bubble(t, func(t *testing.T, srv *zktest.Server) {
		s := open(t, srv)
		before := srv.Requests()[fault.OpConnect]
		const throttled = -127
		srv.Inject(fault.Answer(throttled).Op(fault.OpExists).Once())
		w := watch(t, s, "/x")
		require.False(t, w.Exists)
		require.Equal(t, before+1, srv.Requests()[fault.OpConnect], "the connection was given up")
		require.NoError(t, srv.Create("/x", nil))
		synctest.Wait()
		require.True(t, fired(w))
		w.Close()
	})
}

func TestThenIsCalledOnceWhenItFiresAndNotWhenItIsClosed(t *testing.T) {
	bubble(t, func(t *testing.T, srv *zktest.Server) {
		require.NoError(t, srv.Create("/x", nil))
		s := open(t, srv)
		var calls atomic.Int32
		count := func(zk.EventType) { calls.Add(1) }
		before := watch(t, s, "/x")
		before.Then(count)
		closed := watch(t, s, "/x")
		closed.Then(count)
		closed.Close()
		late := watch(t, s, "/x")
		never := watch(t, s, "/y")
		never.Then(count)
		takenAway := watch(t, s, "/x")
		takenAway.Then(count)
		takenAway.Then(nil)
		require.NoError(t, srv.Delete("/x"))
		synctest.Wait()
		require.EqualValues(t, 1, calls.Load())
		late.Then(count)
		synctest.Wait()
		require.EqualValues(t, 2, calls.Load(), "it has fired already")
		require.NoError(t, s.Close())
		require.EqualValues(t, 2, calls.Load(), "the end of the session is no event of the znode's")
	})
}

func TestThenMayUseTheSession(t *testing.T) {
	bubble(t, func(t *testing.T, srv *zktest.Server) {
		require.NoError(t, srv.Create("/x", nil))
		s := open(t, srv)
		seen := make(chan error, 1)
		watch(t, s, "/x").Then(func(zk.EventType) {
			_, err := s.Watch(s.Context(), "/x")
			if err == nil {
				_, _, err = s.Get(s.Context(), "/x")
			}
			seen <- err
		})
		require.NoError(t, srv.SetData("/x", []byte("1")))
		require.NoError(t, <-seen)
	})
}
