package session_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/internal/session"
	"github.com/zklock/locker/zktest"
	"github.com/zklock/locker/zktest/fault"
)

func TestAWatchSurvivesReconnections(t *testing.T) {
	for name, c := range map[string]struct {
		before bool // the znode existed when the watch was set
		change func(srv *zktest.Server) error
		event  zk.EventType
	}{
		"deleted meanwhile":            {true, func(srv *zktest.Server) error { return srv.Delete("/x") }, zk.EventNodeDeleted},
		"changed meanwhile":            {true, func(srv *zktest.Server) error { return srv.SetData("/x", nil) }, zk.EventNodeDataChanged},
		"created meanwhile":            {false, func(srv *zktest.Server) error { return srv.Create("/x", nil) }, zk.EventNodeCreated},
		"deleted and made anew":        {true, func(srv *zktest.Server) error { return errors.Join(srv.Delete("/x"), srv.Create("/x", nil)) }, zk.EventNodeDataChanged},
		"nothing happened, then later": {true, nil, zk.EventNodeDeleted},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, srv *zktest.Server) {
				if c.before {
					require.NoError(t, srv.Create("/x", nil))
				}
				s := open(t, srv)
				w := watch(t, s, "/x")
				require.Equal(t, c.before, w.Exists)
				for range 2 { // once without anything happening
					srv.DropConnections()
					time.Sleep(2 * time.Second)
					require.False(t, fired(w))
					require.Equal(t, 1, srv.WatchCount())
				}
				srv.Leader().Down()
				synctest.Wait()
				if c.change != nil {
					require.NoError(t, c.change(srv))
				}
				srv.Leader().Up()
				time.Sleep(2 * time.Second)
				if c.change == nil {
					require.False(t, fired(w))
					require.NoError(t, srv.Delete("/x"))
					synctest.Wait()
				}
				require.True(t, fired(w))
				require.Equal(t, c.event, w.Event())
				w.Close()
				requireNoWatches(t, srv, s)
			})
		})
	}
}

func TestThousandsOfWatchesSurviveAReconnection(t *testing.T) {
	bubble(t, func(t *testing.T, srv *zktest.Server) {
		s := open(t, srv)
		long := func(i int) string { return fmt.Sprintf("/%0200d", i) } // more than one setWatches request may hold
		const n = 3000
		ws := make([]*session.Watch, n)
		for i := range ws {
			if i%2 == 0 {
				require.NoError(t, srv.Create(long(i), nil))
			}
			ws[i] = watch(t, s, long(i))
		}
		srv.DropConnections()
		time.Sleep(2 * time.Second)
		require.Equal(t, n, srv.WatchCount())
		require.Greater(t, srv.Requests()[fault.OpSetWatches], 2)
		for i, w := range ws {
			require.False(t, fired(w))
			if i%2 == 0 {
				require.NoError(t, srv.Delete(long(i)))
			} else {
				require.NoError(t, srv.Create(long(i), nil))
			}
		}
		synctest.Wait()
		for i, w := range ws {
			require.True(t, fired(w), "%d", i)
		}
		requireNoWatches(t, srv, s)
	})
}

func TestAWatchThatIsGivenUpWithoutAConnectionLeavesNothing(t *testing.T) {
	bubble(t, func(t *testing.T, srv *zktest.Server) {
		s := open(t, srv)
		srv.Leader().Down()
		synctest.Wait()
		for i := range 50 {
			_, err := s.Watch(within(t, time.Millisecond), fmt.Sprintf("/x%d", i))
			require.ErrorIs(t, err, context.DeadlineExceeded)
		}
		require.Zero(t, s.WatchedPaths(), "nobody waits for these")
		srv.Leader().Up()
		time.Sleep(time.Second)
		require.Zero(t, srv.Requests()[fault.OpExists], "and nobody asks for them")
		require.NoError(t, s.Close())
		_, err := s.Watch(within(t, soon), "/x")
		require.ErrorIs(t, err, session.ErrClosed)
		require.Zero(t, s.WatchedPaths())
	})
}
