package session_test

import (
	"context"
	"errors"
	"fmt"
	"path"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/internal/session"
	"github.com/zklock/locker/zktest"
	"github.com/zklock/locker/zktest/fault"
)

// Several requests in one round trip.

func TestABatchIsCarriedOutInItsOrderAndAnswersEachByItself(t *testing.T) {
	everywhere(t, func(t *testing.T, g *ground) {
		b := g.Batch()
		made := b.Create(g.path("/x"), []byte("data"), session.Persistent, everybody)
		b.Sync(g.path("/x"))
		data, stat := b.Get(g.path("/x")), b.Exists(g.path("/x"))
		again := b.Create(g.path("/x"), nil, session.Persistent, everybody)
		tx := b.Multi(session.OpCreate{Path: g.path("/x/child"), ACL: everybody})
		children := b.List(g.path("/x"))
		early, gone := b.Delete(g.path("/x"), -1), b.Exists(g.path("/no"))
		require.ErrorIs(t, b.Do(g.ctx), zk.ErrNodeExists, "the first that was refused")
		require.Equal(t, session.Created{Path: g.path("/x"), Czxid: stat.Value.Czxid}, made.Value)
		require.Equal(t, "data", string(data.Value.Bytes))
		require.Equal(t, stat.Value, data.Value.Stat)
		require.ErrorIs(t, again.Err, zk.ErrNodeExists)
		require.Zero(t, again.Value)
		require.Greater(t, tx.Value.Zxid, made.Value.Czxid)
		require.Equal(t, []string{"child"}, children.Value.Names)
		require.EqualValues(t, 1, children.Value.Stat.NumChildren)
		require.ErrorIs(t, early.Err, zk.ErrNotEmpty)
		require.ErrorIs(t, gone.Err, zk.ErrNoNode)
		for _, err := range []error{made.Err, data.Err, stat.Err, tx.Err, children.Err} {
			require.NoError(t, err)
		}
	})
}

// A request that cannot work must not keep the others of its batch from being sent: recipe's
// sweeper deletes the znodes of many calls in one batch.
func TestARequestThatCanNotWorkIsNotSentAndTheOthersOfItsBatchAre(t *testing.T) {
	bubble(t, func(t *testing.T, srv *zktest.Server) {
		s := open(t, srv)
		for name, add := range map[string]func(b *session.Batch){
			"path": func(b *session.Batch) { b.Delete("", -1) },
			"new path": func(b *session.Batch) {
				b.Create("/a//b", nil, session.Persistent, everybody)
			},
			"multi": func(b *session.Batch) { b.Multi(session.OpDelete{Path: "/.."}) },
		} {
			b := s.Batch()
			before := b.Create("/before", nil, session.Persistent, everybody)
			add(b)
			behind := b.Delete("/before", -1)
			require.ErrorIs(t, b.Do(within(t, soon)), session.ErrPath, name)
			require.NoError(t, before.Err, name)
			require.NoError(t, behind.Err, name)

			b = s.Batch()
			requests := srv.Requests()
			add(b)
			require.ErrorIs(t, b.Do(within(t, soon)), session.ErrPath, name)
			require.Equal(t, requests, srv.Requests(), name)
		}
		requests := srv.Requests()
		require.NoError(t, s.Batch().Do(within(t, soon)), "there is nothing to do")
		require.Equal(t, requests, srv.Requests())
	})
}

// Two creates in one batch, and no room for the second: neither is sent, and no room stays
// reserved.
func TestABatchForWhichThereIsNoRoomKeepsNone(t *testing.T) {
	bubble(t, func(t *testing.T, srv *zktest.Server) {
		s := open(t, srv, cramped)
		made := fill(t, s)
		require.NoError(t, s.Delete(within(t, soon), made[0], -1))
		used := s.EphemeralBytes()
		b := s.Batch()
		name := made[0][:len(made[0])-10]
		first, second := b.Create(name, nil, session.EphemeralSequential, everybody), b.Create(name,
			nil, session.EphemeralSequential, everybody)
		require.ErrorIs(t, b.Do(within(t, soon)), session.ErrSessionFull)
		require.ErrorIs(t, first.Err, session.ErrNotSent)
		require.ErrorIs(t, second.Err, session.ErrNotSent)
		require.Equal(t, used, s.EphemeralBytes())
	})
}

// lineCreates is a transaction that makes an ephemeral sequential znode in each of dirs.
func lineCreates(dirs []string) (ops []session.Op) {
	for _, dir := range dirs {
		ops = append(ops,
			session.OpCreate{Path: dir + "/x-", ACL: everybody, Mode: session.EphemeralSequential})
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
		tx, lists, err := transactAndList(g.ctx, g, lineCreates(dirs), dirs)
		require.NoError(t, err)
		for i, r := range tx.Responses {
			require.Equal(t, []string{path.Base(r.String)}, lists[i], "the list was made after it")
			stat, err := g.Exists(g.ctx, r.String)
			require.NoError(t, err)
			require.Equal(t, tx.Zxid, stat.Czxid)
		}
		all, err := listAll(g.ctx, g, append(dirs, g.path("/missing")))
		require.NoError(t, err)
		require.Equal(t, append(lists, nil), all)

		_, _, err = transactAndList(g.ctx, g, lineCreates(append(dirs[:2:2], g.path("/missing"))),
			dirs)
		require.ErrorIs(t, err, zk.ErrNoNode)
		again, err := listAll(g.ctx, g, dirs)
		require.NoError(t, err)
		require.Equal(t, lists, again, "all or none")

		tx, _, err = transactAndList(g.ctx, g, lineCreates(dirs[:1]), []string{g.path("/missing")})
		require.ErrorIs(t, err, zk.ErrNoNode, "a list that fails")
		require.NotZero(t, tx.Zxid, "the transaction was carried out")
		_, err = g.Exists(g.ctx, tx.Responses[0].String)
		require.NoError(t, err)
		_, err = listAll(g.ctx, g, []string{dirs[0], "bad"})
		require.ErrorIs(t, err, session.ErrPath)
	})
}

func TestReadingSeveralZnodesAtOnceTellsWhatIsWrongWithEach(t *testing.T) {
	everywhere(t, func(t *testing.T, g *ground) {
		for name, acl := range map[string][]zk.ACL{"/open": everybody,
			"/shut": zk.WorldACL(zk.PermDelete)} {
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
		nodes, err = g.ReadBelow(g.ctx, g.path(""), names[:1], func(stat zk.Stat) bool {
			return stat.DataLength < 5
		})
		require.NoError(t, err)
		require.Equal(t, []session.Node{{Stat: stats[0].Stat}}, nodes, "not wanted")
		nodes, err = g.ReadBelow(g.ctx, g.path(""), nil, all)
		require.NoError(t, err)
		require.Empty(t, nodes)
		_, err = g.StatsBelow(g.ctx, "bad", names)
		require.ErrorIs(t, err, session.ErrPath)
	})
}

// A list behind the transaction is lost: only the list is sent again, and the transaction is
// carried out once.
func TestAListThatIsLostBehindATransactionIsAskedForAgain(t *testing.T) {
	bubble(t, func(t *testing.T, srv *zktest.Server) {
		dirs := []string{"/a", "/b", "/c"}
		for _, dir := range dirs {
			require.NoError(t, srv.Create(dir, nil))
		}
		s := open(t, srv)
		for i := range dirs {
			srv.Inject(fault.CloseAfter().Op(fault.OpGetChildren2).Path(dirs[i]).Once())
			tx, lists, err := transactAndList(within(t, soon), s, lineCreates(dirs), dirs)
			require.NoError(t, err)
			require.NotZero(t, tx.Zxid)
			for j := range dirs {
				require.Len(t, lists[j], i+1)
			}
		}
		require.Equal(t, len(dirs), srv.Requests()[fault.OpMulti])
		srv.Inject(fault.CloseAfter().Op(fault.OpGetData).Times(2))
		nodes, err := s.ReadBelow(within(t, soon), "/", []string{"a", "b", "c"},
			func(zk.Stat) bool { return true })
		require.NoError(t, err)
		for _, n := range nodes {
			require.NoError(t, n.Err)
		}
	})
}

// If the transaction's own reply is lost, or ctx ends before it, the error says that the outcome is
// unknown. If ctx ends after it, the result has the znodes that were made.
func TestATransactionWhoseListsDoNotComeTellsWhatItMade(t *testing.T) {
	bubble(t, func(t *testing.T, srv *zktest.Server) {
		dirs := []string{"/a"}
		require.NoError(t, srv.Create("/a", nil))
		s := open(t, srv)
		srv.Inject(fault.CloseAfter().Op(fault.OpMulti).Once())
		_, _, err := transactAndList(within(t, soon), s, lineCreates(dirs), dirs)
		require.ErrorIs(t, err, session.ErrUnknownOutcome)

		for _, op := range []fault.Op{fault.OpMulti, fault.OpGetChildren2} {
			held := srv.Inject(fault.HoldReply().Op(op))
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			began := time.Now()
			tx, _, err := transactAndList(ctx, s, lineCreates(dirs), dirs)
			cancel()
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.Equal(t, time.Second, time.Since(began))
			if op == fault.OpMulti {
				require.ErrorIs(t, err, session.ErrUnknownOutcome)
				require.Zero(t, tx.Zxid)
			} else {
				require.NotErrorIs(t, err, session.ErrUnknownOutcome,
					"it speaks of the transaction, which was carried out")
				require.NotZero(t, tx.Zxid)
			}
			held.Remove()
			synctest.Wait()
		}
		require.Len(t, srv.Children("/a"), 3)
	})
}

// batcher is a session, or a type that embeds one.
type batcher interface{ Batch() *session.Batch }

// createAndList makes a znode and lists its parent, in one round trip.
func createAndList(
	ctx context.Context, s batcher, znode string, data []byte, mode session.Mode, acl []zk.ACL,
) (session.Created, []string, error) {
	b := s.Batch()
	made, list := b.Create(znode, data, mode, acl), b.List(path.Dir(znode))
	err := b.Do(ctx)
	return made.Value, list.Value.Names, err
}

// transactAndList carries out a transaction and lists dirs, in one round trip.
func transactAndList(
	ctx context.Context, s batcher, ops []session.Op, dirs []string,
) (session.Transaction, [][]string, error) {
	b := s.Batch()
	tx := b.Multi(ops...)
	var lists []*session.Result[session.Children]
	for _, dir := range dirs {
		lists = append(lists, b.List(dir))
	}
	err := b.Do(ctx)
	var names [][]string
	for _, l := range lists {
		names = append(names, l.Value.Names)
	}
	return tx.Value, names, err
}

// listAll lists several znodes in one round trip. One that does not exist has no children.
func listAll(ctx context.Context, s batcher, paths []string) (names [][]string, err error) {
	b := s.Batch()
	var lists []*session.Result[session.Children]
	for _, p := range paths {
		lists = append(lists, b.List(p))
	}
	_ = b.Do(ctx) // the results say the same
	for _, l := range lists {
		if err = l.Err; err != nil && !errors.Is(err, zk.ErrNoNode) {
			return nil, err
		}
		names = append(names, l.Value.Names)
	}
	return names, nil
}

// existsNow reads a Stat after a sync, in one round trip.
func existsNow(ctx context.Context, s batcher, znode string) (zk.Stat, error) {
	b := s.Batch()
	b.Sync(znode)
	stat := b.Exists(znode)
	err := b.Do(ctx)
	return stat.Value, err
}

// deleteAll deletes several znodes in one round trip, and returns an error for each.
func deleteAll(ctx context.Context, s batcher, paths []string) (errs []error) {
	b := s.Batch()
	var deleted []*session.Result[session.None]
	for _, p := range paths {
		deleted = append(deleted, b.Delete(p, -1))
	}
	_ = b.Do(ctx) // the results say the same
	for _, d := range deleted {
		errs = append(errs, d.Err)
	}
	return errs
}

// A batch of a read and a write: both are sent, the write is carried out, and ctx or the session
// ends before the replies.
func TestAWriteBehindAReadInABatchThatIsGivenUpHasAnUnknownOutcome(t *testing.T) {
	for name, closing := range map[string]bool{"ctx": false, "session": true} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, srv *zktest.Server) {
				s := open(t, srv)
				srv.Inject(fault.FreezeReplies())
				b := s.Batch()
				b.Exists("/")
				made := b.Create("/x", nil, session.Persistent, session.WorldACL())
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				if closing {
					go func() { time.Sleep(100 * time.Millisecond); s.Close() }()
				}
				require.Error(t, b.Do(ctx))
				synctest.Wait()
				_, exists := srv.Node("/x")
				require.True(t, exists)
				require.ErrorIs(t, made.Err, session.ErrUnknownOutcome, "it was carried out")
			})
		})
	}
}

// The context ends while a call waits for the read behind its write. The write's answer has come:
// it says that the server has dropped the write, or that the write may still be carried out.
func TestOnlyAThrottledWriteIsKnownNotToBeDoneWhenItsCallEndsAtTheReadBehindIt(t *testing.T) {
	for code, dropped := range map[fault.Code]bool{-127: true, -4: false, -7: false, -122: false} {
		t.Run(fmt.Sprint(int32(code)), func(t *testing.T) {
			bubble(t, func(t *testing.T, srv *zktest.Server) {
				require.NoError(t, srv.Create("/x", nil))
				s := open(t, srv)
				answered := srv.Inject(fault.Answer(code).Op(fault.OpDelete))
				srv.Inject(fault.HoldReply().Op(fault.OpExists))
				b := s.Batch()
				deleted, stat := b.Delete("/x", -1), b.Exists("/x")
				err := b.Do(within(t, time.Second))
				require.ErrorIs(t, err, context.DeadlineExceeded)
				require.Equal(t, err, deleted.Err)
				require.Equal(t, 1, answered.Hits())
				require.ErrorIs(t, stat.Err, context.DeadlineExceeded)
				require.Equal(t, dropped, errors.Is(err, session.ErrNotSent), "%v", err)
				require.Equal(t, !dropped, errors.Is(err, session.ErrUnknownOutcome), "%v", err)
			})
		})
	}
}
