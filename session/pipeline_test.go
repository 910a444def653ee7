package session_test

import (
	"context"
	"fmt"
	"path"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/session"
	"github.com/zklock/locker/zktest"
)

// Several requests in one round trip: TransactAndList, ListAll, ReadBelow.

// lineCreates is a transaction that makes an ephemeral sequential znode in each of dirs.
func lineCreates(dirs []string) (ops []any) {
	for _, dir := range dirs {
		ops = append(ops, &zk.CreateRequest{Path: dir + "/x-", Acl: everybody, Flags: int32(session.EphemeralSequential)})
	}
	return ops
}

func TestATransactionAndItsListsAreOneRoundTrip(t *testing.T) {
	everywhere(t, func(t *testing.T, g *ground) {
		var dirs []string
		for i := range 5 {
			dirs = append(dirs, g.path(fmt.Sprint("/d", i)))
			require.NoError(t, g.CreateAll(g.ctx, dirs[i], nil, session.Persistent, everybody))
		}
		tx, lists, err := g.TransactAndList(g.ctx, lineCreates(dirs), dirs)
		require.NoError(t, err)
		for i, r := range tx.Responses {
			require.Equal(t, []string{path.Base(r.String)}, lists[i], "the list was made after it")
			stat, err := g.Exists(g.ctx, r.String)
			require.NoError(t, err)
			require.Equal(t, tx.Zxid, stat.Czxid)
		}
		all, err := g.ListAll(g.ctx, append(dirs, g.path("/missing")))
		require.NoError(t, err)
		require.Equal(t, append(lists, nil), all)

		_, _, err = g.TransactAndList(g.ctx, lineCreates(append(dirs[:2:2], g.path("/missing"))), dirs)
		require.ErrorIs(t, err, zk.ErrNoNode)
		again, err := g.ListAll(g.ctx, dirs)
		require.NoError(t, err)
		require.Equal(t, lists, again, "all or none")

		tx, _, err = g.TransactAndList(g.ctx, lineCreates(dirs[:1]), []string{g.path("/missing")})
		require.ErrorIs(t, err, zk.ErrNoNode, "a list that fails")
		require.NotZero(t, tx.Zxid, "the transaction was carried out")
		_, err = g.Exists(g.ctx, tx.Responses[0].String)
		require.NoError(t, err)
		_, err = g.ListAll(g.ctx, []string{dirs[0], "bad"})
		require.ErrorIs(t, err, session.ErrPath)
	})
}

func TestReadingSeveralZnodesAtOnceTellsWhatIsWrongWithEach(t *testing.T) {
	everywhere(t, func(t *testing.T, g *ground) {
		for name, acl := range map[string][]zk.ACL{"/open": everybody, "/shut": zk.WorldACL(zk.PermDelete)} {
			_, err := g.Create(g.ctx, g.path(name), []byte(name), session.Ephemeral, acl)
			require.NoError(t, err)
		}
		names := []string{"open", "shut", "missing", "open", "", "a/b", ".."}
		all := func(zk.Stat) bool { return true }
		nodes, err := g.ReadBelow(g.ctx, g.path(""), names, all)
		require.NoError(t, err)
		require.Len(t, nodes, len(names))
		require.NoError(t, nodes[0].Err)
		require.Equal(t, "/open", string(nodes[0].Data))
		require.Equal(t, g.ID(), nodes[0].Stat.EphemeralOwner)
		require.ErrorIs(t, nodes[1].Err, zk.ErrNoAuth)
		require.ErrorIs(t, nodes[2].Err, zk.ErrNoNode)
		require.Equal(t, nodes[0], nodes[3])
		for _, n := range nodes[4:] {
			require.ErrorIs(t, n.Err, session.ErrPath, "a name that no server has")
		}
		stats, err := g.StatsBelow(g.ctx, g.path(""), names)
		require.NoError(t, err)
		require.Equal(t, nodes[0].Stat, stats[0].Stat)
		require.Nil(t, stats[0].Data)
		require.ErrorIs(t, stats[2].Err, zk.ErrNoNode)
		nodes, err = g.ReadBelow(g.ctx, g.path(""), names[:1], func(stat zk.Stat) bool { return stat.DataLength < 5 })
		require.NoError(t, err)
		require.Equal(t, []session.Node{{Stat: stats[0].Stat}}, nodes, "not wanted")
		nodes, err = g.ReadBelow(g.ctx, g.path(""), nil, all)
		require.NoError(t, err)
		require.Empty(t, nodes)
		_, err = g.StatsBelow(g.ctx, "bad", names)
		require.ErrorIs(t, err, session.ErrPath)
	})
}

// A list behind the transaction is lost: it alone is asked for again, and the transaction is made once.
func TestAListThatIsLostBehindATransactionIsAskedForAgain(t *testing.T) {
	bubble(t, func(t *testing.T, srv *zktest.Server) {
		dirs := []string{"/a", "/b", "/c"}
		for _, dir := range dirs {
			require.NoError(t, srv.Create(dir, nil))
		}
		s := open(t, srv)
		for i := range dirs {
			srv.Inject(zktest.CloseAfter().Op(zktest.OpGetChildren2).Path(dirs[i]).Once())
			tx, lists, err := s.TransactAndList(within(t, soon), lineCreates(dirs), dirs)
			require.NoError(t, err)
			require.NotZero(t, tx.Zxid)
			for j := range dirs {
				require.Len(t, lists[j], i+1)
			}
		}
		require.Equal(t, len(dirs), srv.Requests()[zktest.OpMulti])
		srv.Inject(zktest.CloseAfter().Op(zktest.OpGetData).Times(2))
		nodes, err := s.ReadBelow(within(t, soon), "/", []string{"a", "b", "c"}, func(zk.Stat) bool { return true })
		require.NoError(t, err)
		for _, n := range nodes {
			require.NoError(t, n.Err)
		}
	})
}

// The transaction's own reply is lost, or ctx ends before it: the error says that the outcome is unknown. When ctx ends
// behind it, what was made is told.
func TestATransactionWhoseListsDoNotComeTellsWhatItMade(t *testing.T) {
	bubble(t, func(t *testing.T, srv *zktest.Server) {
		dirs := []string{"/a"}
		require.NoError(t, srv.Create("/a", nil))
		s := open(t, srv)
		srv.Inject(zktest.CloseAfter().Op(zktest.OpMulti).Once())
		_, _, err := s.TransactAndList(within(t, soon), lineCreates(dirs), dirs)
		require.ErrorIs(t, err, session.ErrUnknownOutcome)

		for _, op := range []zktest.Op{zktest.OpMulti, zktest.OpGetChildren2} {
			held := srv.Inject(zktest.HoldReply().Op(op))
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			began := time.Now()
			tx, _, err := s.TransactAndList(ctx, lineCreates(dirs), dirs)
			cancel()
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.Equal(t, time.Second, time.Since(began))
			if op == zktest.OpMulti {
				require.ErrorIs(t, err, session.ErrUnknownOutcome)
				require.Zero(t, tx.Zxid)
			} else {
				require.NotErrorIs(t, err, session.ErrUnknownOutcome, "it speaks of the transaction, which was carried out")
				require.NotZero(t, tx.Zxid)
			}
			held.Remove()
			synctest.Wait()
		}
		require.Len(t, srv.Children("/a"), 3)
	})
}
