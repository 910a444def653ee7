package session_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/session"
	"github.com/zklock/locker/zktest"
)

func TestTwoWatchesInOneRoundTripFireEachForItsOwnZnode(t *testing.T) {
	everywhere(t, func(t *testing.T, g *ground) {
		for _, p := range []string{"/a", "/b"} {
			require.NoError(t, g.CreateAll(g.ctx, g.path(p), nil, session.Persistent, everybody))
		}
		a, b, err := g.WatchBoth(g.ctx, g.path("/a"), g.path("/b"))
		require.NoError(t, err)
		require.True(t, a.Exists && b.Exists)
		require.NoError(t, g.Delete(g.ctx, g.path("/b"), -1))
		<-b.Fired()
		require.Equal(t, zk.EventNodeDeleted, b.Event())
		select {
		case <-a.Fired():
			t.Fatal("the other one's znode stands")
		default:
		}
		again, gone, err := g.WatchBoth(g.ctx, g.path("/a"), g.path("/b"))
		require.NoError(t, err)
		require.True(t, again.Exists)
		require.False(t, gone.Exists)
		for _, w := range []*session.Watch{a, again, gone} {
			w.Close()
		}
		for _, bad := range [][2]string{{"bad", "/d"}, {"/d", "bad"}} {
			_, _, err = g.WatchBoth(g.ctx, bad[0], bad[1])
			require.ErrorIs(t, err, session.ErrPath)
		}
	})
}

// Either may be watched already, by another waiter of the session: it costs no request then, and delays no other's.
func TestTwoWatchesShareWhatTheSessionWatchesAlready(t *testing.T) {
	for _, watched := range []string{"/a", "/b"} {
		bubble(t, func(t *testing.T, srv *zktest.Server) {
			require.NoError(t, srv.Create("/a", nil))
			require.NoError(t, srv.Create("/b", nil))
			s := open(t, srv)
			other, err := s.Watch(within(t, soon), watched)
			require.NoError(t, err)
			began, asked := time.Now(), srv.Requests()[zktest.OpExists]
			a, b, err := s.WatchBoth(within(t, soon), "/a", "/b")
			require.NoError(t, err)
			require.Less(t, time.Since(began), 100*time.Millisecond)
			require.Equal(t, asked+1, srv.Requests()[zktest.OpExists])
			for _, w := range []*session.Watch{other, a, b} {
				w.Close()
			}
			synctest.Wait()
			require.Zero(t, srv.WatchCount())
		})
	}
}

func TestTwoWatchesWhoseRepliesAreLostAreAskedForAgain(t *testing.T) {
	bubble(t, func(t *testing.T, srv *zktest.Server) {
		require.NoError(t, srv.Create("/a", nil))
		s := open(t, srv)
		for _, path := range []string{"/a", "/b"} {
			srv.Inject(zktest.CloseAfter().Op(zktest.OpExists).Path(path).Once())
			a, b, err := s.WatchBoth(within(t, soon), "/a", "/b")
			require.NoError(t, err)
			require.True(t, a.Exists)
			require.False(t, b.Exists)
			a.Close()
			b.Close()
		}
	})
}

func TestTwoWatchesThatAreGivenUpLeaveNothing(t *testing.T) {
	for _, path := range []string{"/a", "/b"} {
		bubble(t, func(t *testing.T, srv *zktest.Server) {
			s := open(t, srv)
			held := srv.Inject(zktest.HoldReply().Op(zktest.OpExists).Path(path))
			_, _, err := s.WatchBoth(within(t, 10*time.Millisecond), "/a", "/b")
			require.ErrorIs(t, err, context.DeadlineExceeded)
			held.Remove()
			synctest.Wait()
			require.Zero(t, srv.WatchCount())
		})
	}
}
