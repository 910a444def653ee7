package session_test

import (
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/internal/trusted"
	"github.com/zklock/locker/session"
	"github.com/zklock/locker/zktest"
)

// onKeepers runs fn on a ClickHouse Keeper of each version.
func onKeepers(t *testing.T, fn func(t *testing.T, srv *zktest.Server)) {
	t.Helper()
	for _, v := range []zktest.Version{zktest.Keeper22, zktest.Keeper26} {
		t.Run(string(v), func(t *testing.T) { bubble(t, fn, zktest.WithVersion(v)) })
	}
}

func TestASessionOnAKeeperEndsWithItsConnectionAndIsNotDialledFor(t *testing.T) {
	onKeepers(t, func(t *testing.T, srv *zktest.Server) {
		s := open(t, srv)
		id := s.ID()
		srv.DropConnections()
		select {
		case <-s.Done():
		case <-time.After(time.Second):
			t.Fatal("the session goes on")
		}
		require.ErrorIs(t, s.Err(), session.ErrLeaseOver)
		require.ErrorIs(t, s.Err(), session.ErrLost)
		assert.ErrorContains(t, s.Err(), "resumes no session")
		time.Sleep(5 * time.Second)
		require.Len(t, srv.Sessions(), 1, "no session but the old one, which has its timeout")
		assert.Equal(t, id, srv.Sessions()[0].ID)
		time.Sleep(10 * time.Second)
		assert.Empty(t, srv.Sessions())
	})
}

// The server opens a new session although the first one had a password: Keeper at an address that was ZooKeeper's.
func TestScenario66_ASessionThatIsAnsweredWithAnotherOneEndsAtOnceAndLeavesNoneBehind(t *testing.T) {
	bubble(t, func(t *testing.T, srv *zktest.Server) {
		keeper := zktest.Run(t, zktest.WithoutListener(), zktest.WithVersion(zktest.Keeper22))
		dial := srv.Dial
		s := open(t, srv, func(c *session.Config) {
			c.Dial = func(network, addr string, limit time.Duration) (net.Conn, error) { return dial(network, addr, limit) }
		})
		dial = keeper.Dial
		srv.DropConnections()
		select {
		case <-s.Done():
		case <-time.After(3 * time.Second):
			t.Fatal("the session goes on")
		}
		require.ErrorIs(t, s.Err(), session.ErrLeaseOver)
		assert.ErrorContains(t, s.Err(), "in place of")
		require.NoError(t, s.Close())
		synctest.Wait()
		assert.Empty(t, keeper.Sessions())
		assert.Equal(t, 1, keeper.Requests()[zktest.OpCloseSession])
	})
}

func TestScenario66_OnAKeeperNothingIsAskedThatAnOldOneDoesNotKnow(t *testing.T) {
	onKeepers(t, func(t *testing.T, srv *zktest.Server) {
		s := open(t, srv)
		ctx := within(t, soon)
		require.NoError(t, s.CreateAll(ctx, "/a/b", nil, session.Container, zk.WorldACL(zk.PermAll)))
		require.NoError(t, s.CreateAll(ctx, "/a/c", nil, session.Persistent, zk.WorldACL(zk.PermAll)))
		_, err := s.Multi(ctx, &zk.CreateRequest{Path: "/a/d", Acl: zk.WorldACL(zk.PermAll), Flags: int32(session.Container)})
		require.NoError(t, err)
		w, err := s.Watch(ctx, "/a/none")
		require.NoError(t, err)
		w.Close()
		all, err := s.WatchAll(ctx, "/a/b", "/a/c")
		require.NoError(t, err)
		all[0].Close()
		require.NoError(t, srv.Delete("/a/c"))
		<-all[1].Fired()
		assert.Equal(t, zk.EventNodeDeleted, all[1].Event())
		require.NoError(t, s.Err())
		for _, op := range []zktest.Op{zktest.OpSetWatches, zktest.OpRemoveWatches, zktest.OpCreateContainer, zktest.OpCreate2} {
			assert.Zero(t, srv.Requests()[op], op)
		}
		_, there := srv.Node("/a/d")
		assert.True(t, there)
	})
}

// The requests are queued before the session knows what kind of server it is.
func TestOnAKeeperAContainerThatIsAskedForBeforeTheFirstConnectionIsPersistent(t *testing.T) {
	onKeepers(t, func(t *testing.T, srv *zktest.Server) {
		for name, ask := range map[string]func(s *session.Session, b *session.Batch){
			"/create": func(_ *session.Session, b *session.Batch) {
				b.Create("/create", nil, session.Container, session.WorldACL())
			},
			"/multi": func(_ *session.Session, b *session.Batch) {
				b.Multi(&zk.CreateRequest{Path: "/multi", Acl: session.WorldACL(), Flags: int32(session.Container)},
					&zk.CreateRequest{Path: "/multi/child", Acl: session.WorldACL()})
			},
			"/grouped": func(s *session.Session, b *session.Batch) {
				*b = *s.Grouped(trusted.Caller{})
				b.Create("/grouped", nil, session.Container, session.WorldACL())
			},
		} {
			s, err := session.Start(srv.Addr(), session.Config{Dial: srv.Dial})
			require.NoError(t, err)
			b := s.Batch()
			ask(s, b)
			require.NoError(t, b.Do(within(t, soon)), name)
			require.NoError(t, s.Err(), name)
			_, there := srv.Node(name)
			assert.True(t, there, name)
			require.NoError(t, s.Close())
		}
		assert.Zero(t, srv.Requests()[zktest.OpCreateContainer])
	})
}

func TestOnAKeeperAWatchOfAZnodeThatHasGoneLeavesNoneForItsCreation(t *testing.T) {
	onKeepers(t, func(t *testing.T, srv *zktest.Server) {
		s := open(t, srv)
		ctx := within(t, soon)
		all, err := s.WatchAll(ctx, "/gone-0000000001")
		require.NoError(t, err)
		assert.False(t, all[0].Exists)
		assert.Equal(t, zk.EventNodeDeleted, all[0].Event())
		assert.Zero(t, srv.WatchCount())
	})
}

func TestOnAKeeperAZnodeThatMayNotBeReadIsWatchedAllTheSame(t *testing.T) {
	onKeepers(t, func(t *testing.T, srv *zktest.Server) {
		mine := open(t, srv, func(c *session.Config) { c.Auth = []session.Auth{{Scheme: "digest", Credential: []byte("u:p")}} })
		s := open(t, srv)
		ctx := within(t, soon)
		_, err := mine.Create(ctx, "/x", nil, session.Persistent, zk.DigestACL(zk.PermAll, "u", "p"))
		require.NoError(t, err)
		all, err := s.WatchAll(ctx, "/x")
		require.NoError(t, err)
		assert.True(t, all[0].Exists)
		require.NoError(t, mine.Delete(ctx, "/x", -1))
		<-all[0].Fired()
	})
}

func TestAKeeperTellsTheTruthAboutTheLease(t *testing.T) {
	onKeepers(t, func(t *testing.T, srv *zktest.Server) {
		s := open(t, srv)
		ctx := within(t, time.Hour)
		made, err := s.Create(ctx, "/e", nil, session.Ephemeral, zk.WorldACL(zk.PermAll))
		require.NoError(t, err)
		retain(t, s, made.Path)
		time.Sleep(10 * time.Minute)
		require.NoError(t, s.Err())
		srv.Inject(zktest.Freeze())
		<-s.Done()
		_, there := srv.Node("/e")
		assert.True(t, there, "the session was given up before the ensemble ended it")
	})
}

// Keeper answers with a timeout when its Raft has not accepted a request in time: it may accept it later.
func TestAWriteThatIsAnsweredWithATimeoutHasAnUnknownOutcome(t *testing.T) {
	onKeepers(t, func(t *testing.T, srv *zktest.Server) {
		s := open(t, srv)
		ctx := within(t, soon)
		for _, code := range []zktest.Code{zktest.CodeOperationTimeout, zktest.CodeConnectionLoss} {
			srv.Inject(zktest.Answer(code).Op(zktest.OpCreate, zktest.OpDelete, zktest.OpMulti).Times(3))
			_, err := s.Create(ctx, "/x", nil, session.Ephemeral, zk.WorldACL(zk.PermAll))
			require.ErrorIs(t, err, session.ErrUnknownOutcome)
			require.ErrorIs(t, s.Delete(ctx, "/x", -1), session.ErrUnknownOutcome)
			_, err = s.Multi(ctx, &zk.DeleteRequest{Path: "/x", Version: -1})
			require.ErrorIs(t, err, session.ErrUnknownOutcome)
		}
		require.NoError(t, s.Err())
	})
}
