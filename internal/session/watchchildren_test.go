package session_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/assert"
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
	case <-session.Fired(w):
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

// The first call is given up, and its list finds no directory. The second one's, behind it, finds
// one.
func TestAWatchOfChildrenSurvivesTheFailureOfAnotherCall(t *testing.T) {
	bubble(t, func(t *testing.T, srv *zktest.Server) {
		s := open(t, srv)
		late := srv.Inject(fault.HoldReply().Op(fault.OpGetChildren2).Once())
		ctx, cancel := context.WithCancel(t.Context())
		var calls sync.WaitGroup
		calls.Go(func() {
			_, _, _, err := s.WatchChildren(ctx, "/dir")
			assert.ErrorIs(t, err, context.Canceled)
		})
		synctest.Wait()
		var w *session.Watch
		calls.Go(func() {
			var err error
			w, _, _, err = s.WatchChildren(t.Context(), "/dir")
			assert.NoError(t, err)
		})
		synctest.Wait()
		cancel()
		synctest.Wait()
		require.NoError(t, srv.Create("/dir", nil))
		late.Release()
		calls.Wait()
		require.NoError(t, srv.Create("/dir/a", nil))
		require.True(t, lineFired(w))
	})
}

// ctx ends while the list is under way, with other calls at the same path: the call leaves nothing
// behind, and the watch of another caller stays and fires.
func TestAWatchOfChildrenWhoseContextEndsInFlightLeavesNothing(t *testing.T) {
	for _, others := range []string{"nobody", "before", "behind", "afterwards"} {
		for name, failure := range map[string]fault.Fault{
			"request": fault.Hold().Op(fault.OpGetChildren2),
			"reply":   fault.HoldReply().Op(fault.OpGetChildren2),
			"broken":  fault.CloseAfter().Op(fault.OpGetChildren2).Once(),
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

var bothVersions = []zktest.Version{zktest.Version38, zktest.Version39}

// watchLists watches the children of /a, /b and /c, which it makes.
func watchLists(t *testing.T, srv *zktest.Server, s *session.Session) (ws []*session.Watch) {
	t.Helper()
	for _, dir := range []string{"/a", "/b", "/c"} {
		require.NoError(t, srv.Create(dir, nil))
		w, _, _, err := s.WatchChildren(t.Context(), dir)
		require.NoError(t, err)
		ws = append(ws, w)
	}
	return ws
}

// Scenario 77: one transaction causes several events, and the connection breaks after the first of
// them.
func TestScenario77_NoEventOfATransactionIsLostWhenTheConnectionBreaksBetweenThem(t *testing.T) {
	for _, version := range bothVersions {
		for told := range 3 {
			t.Run(fmt.Sprint(version, " ", told), func(t *testing.T) {
				bubble(t, func(t *testing.T, srv *zktest.Server) {
					s, other := open(t, srv), open(t, srv)
					ws := watchLists(t, srv, s)
					srv.Inject(
						fault.CloseAfter().Op(fault.OpNotify).Session(s.ID()).After(told).Once())
					var ops []session.Op
					for _, dir := range []string{"/a", "/b", "/c"} {
						ops = append(ops,
							session.OpCreate{Path: dir + "/child", ACL: session.WorldACL()})
					}
					_, err := other.Multi(t.Context(), ops...)
					require.NoError(t, err)
					time.Sleep(time.Minute)
					for _, w := range ws {
						require.True(t, fired(w))
					}
				}, zktest.WithVersion(version))
			})
		}
	}
}

// Scenario 77: on a new connection a heartbeat, or the sync behind an event that has no zxid,
// overtakes the setWatches. It is answered, and the connection breaks again.
func TestScenario77_NoEventIsLostWhenARequestOvertakesTheWatchesAndTheConnectionBreaksAgain(
	t *testing.T,
) {
	for _, version := range bothVersions {
		for name, urgent := range map[string]fault.Op{"heartbeat": fault.OpMulti,
			"sync": fault.OpSync} {
			t.Run(fmt.Sprint(version, " ", name), func(t *testing.T) {
				bubble(t, func(t *testing.T, srv *zktest.Server) {
					s := open(t, srv)
					ws := watchLists(t, srv, s)
					if urgent == fault.OpMulti {
						made, err := s.Create(t.Context(), "/held", nil, session.Ephemeral,
							session.WorldACL())
						require.NoError(t, err)
						retain(t, s, made.Path)
						// so that a heartbeat is due on a new connection
						time.Sleep(10 * time.Second)
					} else {
						require.NoError(t, srv.Create("/c/child", nil))
						synctest.Wait()
						require.True(t, fired(ws[2]))
					}
					srv.Leader().Down()
					synctest.Wait()
					require.NoError(t, srv.Create("/a/child", nil))
					require.NoError(t, srv.Create("/b/child", nil))
					held := srv.Inject(fault.Hold().Op(fault.OpSetWatches).Session(s.ID()))
					before := srv.Requests()[urgent]
					srv.Leader().Up()
					time.Sleep(500 * time.Millisecond)
					require.EqualValues(t, 1, held.Hits())
					overtaken := srv.Requests()[urgent] > before
					require.True(t, overtaken || urgent == fault.OpSync &&
						version == zktest.Version39)
					srv.DropConnections()
					held.Remove()
					time.Sleep(8 * time.Second)
					require.True(t, fired(ws[0]), "the children of /a")
					require.True(t, fired(ws[1]), "the children of /b")
				}, zktest.WithVersion(version))
			})
		}
	}
}
