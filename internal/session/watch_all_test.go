package session_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"regexp"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/internal/session"
	"github.com/zklock/locker/tests/locktest"
	"github.com/zklock/locker/zktest"
	"github.com/zklock/locker/zktest/fault"
)

func watchAll(t *testing.T, s *session.Session, paths ...string) []*session.Watch {
	t.Helper()
	ws, err := s.WatchAll(within(t, soon), paths...)
	require.NoError(t, err)
	require.Len(t, ws, len(paths))
	return ws
}

func TestWatchAllTellsOfWhatGoesAndOfWhatIsGone(t *testing.T) {
	bubble(t, func(t *testing.T, srv *zktest.Server) {
		for _, p := range []string{"/deleted", "/set", "/quiet"} {
			require.NoError(t, srv.Create(p, nil))
			require.NoError(t, srv.SetData(p, []byte("before anybody watched")))
		}
		s := open(t, srv)
		ws := watchAll(t, s, "/quiet", "/gone", "/deleted", "/set")
		synctest.Wait()
		require.True(t, fired(ws[1]))
		require.Equal(t, zk.EventNodeDeleted, ws[1].Event())
		for _, i := range []int{0, 2, 3} {
			require.True(t, ws[i].Exists)
			require.False(t, fired(ws[i]), "%d", i)
			require.True(t, ws[i].ExistedWhen(ws[1]), "%d", i)
		}
		require.Equal(t, 3, srv.WatchCount())
		require.NoError(t, srv.Delete("/deleted"))
		require.NoError(t, srv.SetData("/set", nil))
		require.NoError(t, srv.Create("/gone", nil))
		synctest.Wait()
		require.Equal(t, zk.EventNodeDeleted, ws[2].Event())
		require.Equal(t, zk.EventNodeDataChanged, ws[3].Event())
		require.False(t, fired(ws[0]))
		require.True(t, ws[0].ExistedWhen(ws[2]))
		require.False(t, ws[0].ExistedWhen(ws[3]), "nothing was deleted")
		require.False(t, ws[3].ExistedWhen(ws[2]), "it does not watch any more")
		ws[0].Close()
		requireNoWatches(t, srv, s)
	})
}

func TestWatchAllIsOneRequestForThoseThatNoCallerWatches(t *testing.T) {
	bubble(t, func(t *testing.T, srv *zktest.Server) {
		for _, p := range []string{"/a", "/b", "/c"} {
			require.NoError(t, srv.Create(p, nil))
		}
		s := open(t, srv)
		first := watchAll(t, s, "/a", "/b")
		second := watchAll(t, s, "/c", "/b", "/a")
		third := watchAll(t, s, "/a", "/b", "/c")
		require.Equal(t, 2, srv.Requests()[fault.OpSetWatches])
		require.Zero(t, srv.Requests()[fault.OpExists])
		require.Equal(t, 3, srv.WatchCount())
		require.NoError(t, srv.Delete("/b"))
		synctest.Wait()
		require.True(t, fired(first[1]) && fired(second[1]) && fired(third[1]))
		for _, ws := range [][]*session.Watch{first, second, third} {
			for _, w := range ws {
				w.Close()
			}
		}
		requireNoWatches(t, srv, s)
	})
}

func TestWatchAllOfMoreThanOneRequestMayHold(t *testing.T) {
	bubble(t, func(t *testing.T, srv *zktest.Server) {
		s := open(t, srv)
		paths := make([]string, 3000)
		for i := range paths {
			paths[i] = fmt.Sprintf("/%0200d", i)
			require.NoError(t, srv.Create(paths[i], nil))
		}
		ws := watchAll(t, s, paths...)
		require.Greater(t, srv.Requests()[fault.OpSetWatches], 3)
		require.Equal(t, len(paths), srv.WatchCount())
		for i, w := range ws {
			require.True(t, w.Exists)
			require.NoError(t, srv.Delete(paths[i]))
		}
		requireNoWatches(t, srv, s)
	})
}

func TestWatchAllThatIsGivenUpLeavesNothing(t *testing.T) {
	bubble(t, func(t *testing.T, srv *zktest.Server) {
		require.NoError(t, srv.Create("/x", nil))
		s := open(t, srv)
		failure := srv.Inject(fault.HoldReply().Op(fault.OpSetWatches))
		_, err := s.WatchAll(within(t, time.Second), "/x", "/gone")
		require.ErrorIs(t, err, context.DeadlineExceeded)
		failure.Remove()
		requireNoWatches(t, srv, s)
		refused := srv.Inject(fault.Answer(fault.CodeNoAuth).Op(fault.OpSetWatches))
		_, err = s.WatchAll(within(t, time.Second), "/x", "/gone")
		require.ErrorIs(t, err, zk.ErrNoAuth)
		refused.Remove()
		requireNoWatches(t, srv, s)
	})
}

// One caller waits for the znode's creation, while another, who believes that it exists, has
// requested a watch on its deletion.
func TestAWatchThatJoinsAWatchAllOfAZnodeThatIsGoneHearsOfItsCreation(t *testing.T) {
	bubble(t, func(t *testing.T, srv *zktest.Server) {
		s := open(t, srv)
		hold := srv.Inject(fault.Hold().Op(fault.OpSetWatches))
		s.Go(func(ctx context.Context) { _, _ = s.WatchAll(ctx, "/x") })
		synctest.Wait()
		got := make(chan *session.Watch, 1)
		go func() { got <- watch(t, s, "/x") }()
		synctest.Wait()
		hold.Remove()
		w := <-got
		require.False(t, w.Exists)
		require.NoError(t, srv.Create("/x", nil))
		synctest.Wait()
		require.True(t, fired(w))
		require.Equal(t, zk.EventNodeCreated, w.Event())
		requireNoWatches(t, srv, s)
	})
}

func TestWakeSendsOnceAWatchHasFired(t *testing.T) {
	bubble(t, func(t *testing.T, srv *zktest.Server) {
		require.NoError(t, srv.Create("/x", nil))
		s := open(t, srv)
		ws := watchAll(t, s, "/x", "/gone")
		ch := make(chan struct{}, 1)
		ws[1].Wake(ch)
		<-ch
		ws[0].Wake(ch)
		require.Empty(t, ch)
		require.NoError(t, srv.Delete("/x"))
		<-ch
	})
}

// Notifications of deletions have no zxid here. A server that lags behind may report a znode as
// existing that was deleted before an event that another server has reported.
func TestEventsOfTwoConnectionsHaveNoOrder(t *testing.T) {
	r := session.NewRig()
	defer r.Stop()
	// set watches paths, and returns when that makes n watches in the table.
	set := func(n int, paths ...string) <-chan []*session.Watch {
		got := make(chan []*session.Watch, 1)
		go func() {
			ws, err := r.WatchAll(context.Background(), paths...)
			if err != nil {
				t.Error(err)
			}
			got <- ws
		}()
		require.Eventually(t, func() bool { return r.WatchedPaths() == n }, soon, time.Millisecond)
		return got
	}
	both := answerUntil(t, r, set(2, "/d/own", "/d/before"))
	own, before := both[0], both[1]
	require.NoError(t, r.Notify(zk.EventNodeDataChanged, "/app/d/own"))
	again := set(2, "/d/own")
	require.NoError(t, r.Notify(zk.EventNodeDeleted, "/app/d/before"))
	require.True(t, fired(own) && fired(before))
	r.Break(errors.New("the connection broke"))
	r.Reconnect()
	own = answerUntil(t, r, again)[0]
	require.True(t, own.Exists)
	require.False(t, own.ExistedWhen(before),
		"it may have been deleted first, and this server not know it yet")

	// On one connection they are in order.
	before = answerUntil(t, r, set(2, "/d/next"))[0]
	require.False(t, own.ExistedWhen(before), "that stands")
	require.NoError(t, r.Notify(zk.EventNodeDeleted, "/app/d/next"))
	require.True(t, own.ExistedWhen(before))
	require.NoError(t, r.Notify(zk.EventNodeDeleted, "/app/d/own"))
	require.False(t, own.ExistedWhen(before), "now it has fired too: nobody asks for the order")
}

// recorder keeps what is written.
type recorder struct {
	net.Conn
	wrote *locktest.Buffer
}

func (r recorder) Write(b []byte) (int, error) {
	if n, err := r.wrote.Write(b); err != nil {
		return n, err
	}
	return r.Conn.Write(b)
}

// A server reports several missing znodes in the order of the request, which has to be that of the
// call, also when the request is made again on a new connection because the first was lost before
// the answer.
func TestWatchAllAsksInTheOrderOfItsPaths(t *testing.T) {
	bubble(t, func(t *testing.T, srv *zktest.Server) {
		var wrote locktest.Buffer
		s := open(t, srv, func(c *session.Config) {
			c.Dial = func(network, addr string, timeout time.Duration) (net.Conn, error) {
				conn, err := srv.Dial(network, addr, timeout)
				return recorder{conn, &wrote}, err
			}
		})
		srv.Inject(fault.CloseBefore().Op(fault.OpSetWatches).Once())
		watchAll(t, s, "/own", "/before")
		require.Equal(t, []string{"/own", "/before", "/own", "/before"},
			regexp.MustCompile("/(own|before)").FindAllString(wrote.String(), -1))
	})
}

func TestACreationIsToldTogetherWithTheDeletionOfTheSameTransaction(t *testing.T) {
	for name, c := range map[string]struct {
		opts  []zktest.Option
		known bool
	}{
		"3.8": {[]zktest.Option{zktest.WithVersion(zktest.Version38)}, false},
		"3.9": {[]zktest.Option{zktest.WithVersion(zktest.Version39)}, true},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, srv *zktest.Server) {
				require.NoError(t, srv.Create("/own", nil))
				require.NoError(t, srv.Create("/other", nil))
				s := open(t, srv)
				ws, created, err := s.WatchAllAndCreation(within(t, soon), "/word", "/own",
					"/other")
				require.NoError(t, err)
				require.Equal(t, 1, srv.Requests()[fault.OpSetWatches])
				require.False(t, created.Exists)
				srv.DropConnections() // a watch that has been set stays
				time.Sleep(time.Second)
				require.False(t, fired(created))
				_, err = s.Multi(within(t, soon),
					session.OpCreate{Path: "/word", ACL: everybody, Mode: session.Ephemeral},
					session.OpDelete{Path: "/word", Version: -1},
					session.OpDelete{Path: "/other", Version: -1})
				require.NoError(t, err)
				synctest.Wait()
				require.Equal(t, zk.EventNodeCreated, created.Event())
				require.Equal(t, zk.EventNodeDeleted, ws[1].Event())
				same, known := created.FiredWith(ws[1])
				require.Equal(t, []bool{c.known, c.known}, []bool{same, known})
				require.Zero(t, s.EphemeralBytes(),
					"what a transaction makes and deletes needs no room")
				ws[0].Close()
				requireNoWatches(t, srv, s)
			}, c.opts...)
		})
	}
}

func TestACreationAndALaterDeletionAreToldApart(t *testing.T) {
	bubble(t, func(t *testing.T, srv *zktest.Server) {
		require.NoError(t, srv.Create("/other", nil))
		s := open(t, srv)
		ws, created, err := s.WatchAllAndCreation(within(t, soon), "/word", "/other")
		require.NoError(t, err)
		require.NoError(t, srv.Create("/word", nil))
		require.NoError(t, srv.Delete("/other"))
		synctest.Wait()
		same, known := created.FiredWith(ws[0])
		require.Equal(t, []bool{false, true}, []bool{same, known})
	}, zktest.WithVersion(zktest.Version39))
}

func TestACreationThatNeverComesIsTakenAway(t *testing.T) {
	bubble(t, func(t *testing.T, srv *zktest.Server) {
		require.NoError(t, srv.Create("/own", nil))
		require.NoError(t, srv.Create("/there", nil))
		s := open(t, srv)
		for _, absent := range []string{"/word", "/there"} {
			ws, created, err := s.WatchAllAndCreation(within(t, soon), absent, "/own")
			require.NoError(t, err)
			require.False(t, fired(created))
			ws[0].Close()
			created.Close()
			requireNoWatches(t, srv, s)
		}
	})
}

// Watches that were requested on a connection that broke are requested on the next one, again in
// one request.
func TestACreationThatWasAskedForWithoutAConnectionIsWatchedOnTheNext(t *testing.T) {
	bubble(t, func(t *testing.T, srv *zktest.Server) {
		require.NoError(t, srv.Create("/own", nil))
		s := open(t, srv)
		srv.Leader().Down()
		synctest.Wait()
		type watched struct {
			own, created *session.Watch
		}
		got := make(chan watched, 1)
		go func() {
			ws, created, err := s.WatchAllAndCreation(within(t, soon), "/word", "/own")
			if err != nil {
				t.Error(err)
			}
			got <- watched{ws[0], created}
		}()
		synctest.Wait()
		srv.Leader().Up()
		w := <-got
		require.Equal(t, 1, srv.Requests()[fault.OpSetWatches])
		require.Zero(t, srv.Requests()[fault.OpExists])
		require.NoError(t, srv.Create("/word", nil))
		synctest.Wait()
		require.True(t, fired(w.created))
		w.own.Close()
	})
}
