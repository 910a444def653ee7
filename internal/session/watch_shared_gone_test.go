package session_test

import (
	"testing"
	"testing/synctest"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/internal/session"
	"github.com/zklock/locker/zktest"
	"github.com/zklock/locker/zktest/fault"
)

// A Watch finds no znode and waits for its creation. A WatchAll of the same path, which waits for the znode's deletion, must not
// share that watch: it would wait for ever.
func TestWatchAllOfAZnodeThatAWatchHasFoundMissingTellsThatItIsGone(t *testing.T) {
	for name, first := range map[string]func(srv *zktest.Server) *zktest.Injection{
		"after the answer":  func(*zktest.Server) *zktest.Injection { return nil },
		"before the answer": func(srv *zktest.Server) *zktest.Injection { return srv.Inject(fault.HoldReply().Op(fault.OpExists)) },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, srv *zktest.Server) {
				require.NoError(t, srv.Create("/own", nil))
				s := open(t, srv)
				hold := first(srv)
				watched := make(chan *session.Watch, 1)
				go func() {
					w, err := s.Watch(t.Context(), "/gone")
					require.NoError(t, err)
					watched <- w
				}()
				synctest.Wait()
				all := make(chan []*session.Watch, 1)
				go func() {
					ws, err := s.WatchAll(t.Context(), "/own", "/gone")
					require.NoError(t, err)
					all <- ws
				}()
				synctest.Wait()
				if hold != nil {
					hold.Remove()
				}
				w, ws := <-watched, <-all
				require.False(t, w.Exists)
				require.False(t, ws[1].Exists)
				require.True(t, fired(ws[1]), "a waiter would wait for ever")
				require.Equal(t, zk.EventNodeDeleted, ws[1].Event())
				require.False(t, fired(w))
				require.NoError(t, srv.Create("/gone", nil))
				synctest.Wait()
				require.True(t, fired(w), "the Watch still waits for the creation")
				require.Equal(t, zk.EventNodeCreated, w.Event())
				ws[0].Close()
				requireNoWatches(t, srv, s)
			})
		})
	}
}
