package session_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/internal/session"
	"github.com/zklock/locker/zktest"
	"github.com/zklock/locker/zktest/fault"
)

// Watches on the list of a znode's children.

// lineFired reports whether a watch has fired by the time that every goroutine waits.
func lineFired(w *session.Watch) bool {
	synctest.Wait()
	select {
	case <-w.Fired():
		return true
	default:
		return false
	}
}

// lineWatch watches /dir, which must succeed.
func lineWatch(t *testing.T, s *session.Session) (*session.Watch, []string) {
	t.Helper()
	w, names, _, err := s.WatchChildren(within(t, soon), "/dir")
	require.NoError(t, err)
	require.True(t, w.Exists)
	return w, names
}

func TestAWatchOfChildrenFiresWhenItsZnodeIsDeleted(t *testing.T) {
	bubble(t, func(t *testing.T, srv *zktest.Server) {
		s := open(t, srv)
		_, _, _, err := s.WatchChildren(within(t, soon), "/dir")
		require.ErrorIs(t, err, zk.ErrNoNode)
		_, _, _, err = s.WatchChildren(within(t, soon), "dir")
		require.ErrorIs(t, err, session.ErrPath)
		require.Zero(t, s.WatchedPaths())
		require.NoError(t, srv.Create("/dir", nil))
		w, _ := lineWatch(t, s)
		both, err := s.Watch(within(t, soon), "/dir")
		require.NoError(t, err)
		require.NoError(t, srv.Delete("/dir"))
		require.True(t, lineFired(w))
		require.True(t, lineFired(both), "one notification is for both kinds")
		require.Equal(t, zk.EventNodeDeleted, w.Event())
		require.Zero(t, srv.WatchCount())
	})
}

// ctx ends while the list is under way, with other calls at the same path: the call leaves nothing behind, and the watch of
// another caller stays and fires.
func TestAWatchOfChildrenWhoseContextEndsInFlightLeavesNothing(t *testing.T) {
	for _, others := range []string{"nobody", "before", "behind", "afterwards"} {
		for name, failure := range map[string]fault.Fault{
			"request": fault.Hold().Op(fault.OpGetChildren2), "reply": fault.HoldReply().Op(fault.OpGetChildren2),
			"broken": fault.CloseAfter().Op(fault.OpGetChildren2).Once(),
		} {
			t.Run(others+", "+name, func(t *testing.T) {
				bubble(t, func(t *testing.T, srv *zktest.Server) {
					require.NoError(t, srv.Create("/dir", nil))
					s := open(t, srv)
					var other *session.Watch
					if others == "before" {
						other, _ = lineWatch(t, s)
					}
					in := srv.Inject(failure)
					ctx, cancel := context.WithCancel(context.Background())
					var all sync.WaitGroup
					all.Go(func() {
						if w, _, _, err := s.WatchChildren(ctx, "/dir"); err == nil {
							w.Close() // its request was sent again
						}
					})
					synctest.Wait()
					watch := func() {
						var err error
						if other, _, _, err = s.WatchChildren(within(t, soon), "/dir"); err != nil {
							t.Error(err)
						}
					}
					var late sync.WaitGroup
					if others == "behind" {
						late.Go(watch)
						synctest.Wait()
					}
					cancel()
					all.Wait()
					if others == "afterwards" {
						late.Go(watch)
						synctest.Wait()
					}
					in.Remove()
					late.Wait()
					time.Sleep(5 * time.Second)
					if other == nil {
						require.Zero(t, srv.WatchCount())
						require.Zero(t, s.WatchedPaths())
						return
					}
					require.Equal(t, 1, srv.WatchCount())
					require.NoError(t, srv.Create("/dir/a", nil))
					require.True(t, lineFired(other))
					time.Sleep(time.Second)
					require.Zero(t, srv.WatchCount())
					require.Zero(t, s.WatchedPaths())
				})
			})
		}
	}
}
