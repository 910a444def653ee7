package session_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/internal/session"
	"github.com/zklock/locker/zktest"
	"github.com/zklock/locker/zktest/fault"
)

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

// Scenario 77: one transaction causes several events, and the connection breaks after the first of them.
func TestScenario77_NoEventOfATransactionIsLostWhenTheConnectionBreaksBetweenThem(t *testing.T) {
	for _, version := range bothVersions {
		for told := range 3 {
			t.Run(fmt.Sprint(version, " ", told), func(t *testing.T) {
				bubble(t, func(t *testing.T, srv *zktest.Server) {
					s, other := open(t, srv), open(t, srv)
					ws := watchLists(t, srv, s)
					srv.Inject(fault.CloseAfter().Op(fault.OpNotify).Session(s.ID()).After(told).Once())
					var ops []session.Op
					for _, dir := range []string{"/a", "/b", "/c"} {
						ops = append(ops, session.OpCreate{Path: dir + "/child", ACL: session.WorldACL()})
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

// Scenario 77: on a new connection a heartbeat, or the sync behind an event that has no zxid, overtakes the setWatches. It is
// answered, and the connection breaks again.
func TestScenario77_NoEventIsLostWhenARequestOvertakesTheWatchesAndTheConnectionBreaksAgain(t *testing.T) {
	for _, version := range bothVersions {
		for name, urgent := range map[string]fault.Op{"heartbeat": fault.OpMulti, "sync": fault.OpSync} {
			t.Run(fmt.Sprint(version, " ", name), func(t *testing.T) {
				bubble(t, func(t *testing.T, srv *zktest.Server) {
					s := open(t, srv)
					ws := watchLists(t, srv, s)
					if urgent == fault.OpMulti {
						made, err := s.Create(t.Context(), "/held", nil, session.Ephemeral, session.WorldACL())
						require.NoError(t, err)
						retain(t, s, made.Path)
						time.Sleep(10 * time.Second) // so that a heartbeat is due on a new connection
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
					require.True(t, overtaken || urgent == fault.OpSync && version == zktest.Version39)
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
