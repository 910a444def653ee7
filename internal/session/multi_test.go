package session_test

import (
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/internal/session"
	"github.com/zklock/locker/zktest"
	"github.com/zklock/locker/zktest/fault"
)

func TestMultiDoesEverything(t *testing.T) {
	everywhere(t, func(t *testing.T, g *ground) {
		_, err := g.Create(g.ctx, g.path("/old"), []byte("0"), session.Persistent, everybody)
		require.NoError(t, err)
		_, err = g.Create(g.ctx, g.path("/gone"), nil, session.Persistent, everybody)
		require.NoError(t, err)
		tx, err := g.Transact(g.ctx,
			session.OpCheck{Path: g.path("/old"), Version: 0},
			session.OpCreate{Path: g.path("/new"), Data: []byte("n"), ACL: everybody,
				Mode: session.Ephemeral},
			session.OpCreate{Path: g.path("/seq-"), ACL: everybody,
				Mode: session.PersistentSequential},
			session.OpSet{Path: g.path("/old"), Data: []byte("1"), Version: 0},
			session.OpDelete{Path: g.path("/gone"), Version: -1},
			session.OpCheck{Path: g.path("/old"), Version: 1},
		)
		require.NoError(t, err)
		resps := tx.Responses
		require.Len(t, resps, 6)
		for i, r := range resps {
			require.NoError(t, r.Error, "%d", i)
		}
		require.Equal(t, g.path("/new"), resps[1].String)
		require.Regexp(t, "^"+g.path("/seq-")+`\d{10}$`, resps[2].String)
		require.EqualValues(t, 1, resps[3].Stat.Version)
		for _, p := range []string{resps[1].String, resps[2].String} {
			stat, err := g.Exists(g.ctx, p)
			require.NoError(t, err)
			require.Equal(t, tx.Zxid, stat.Czxid,
				"the transaction's zxid is the czxid of what it made")
		}
		_, err = g.Exists(g.ctx, g.path("/gone"))
		require.ErrorIs(t, err, zk.ErrNoNode)
	})
}

func TestAMultiMakesContainersToo(t *testing.T) {
	everywhere(t, func(t *testing.T, g *ground) {
		tx, err := g.Transact(g.ctx,
			session.OpCreate{Path: g.path("/box"), ACL: everybody, Mode: session.Container},
			session.OpCreate{Path: g.path("/box/x"), ACL: everybody, Mode: session.Ephemeral})
		require.NoError(t, err)
		require.Equal(t, g.path("/box"), tx.Responses[0].String)
		require.Equal(t, g.path("/box/x"), tx.Responses[1].String)
		stat, err := g.Exists(g.ctx, g.path("/box"))
		require.NoError(t, err)
		require.Equal(t, tx.Zxid, stat.Czxid)
	})
}

func TestAMultiOfWhichOneFailsDoesNothingAndSaysWhich(t *testing.T) {
	everywhere(t, func(t *testing.T, g *ground) {
		_, err := g.Create(g.ctx, g.path("/x"), nil, session.Persistent, everybody)
		require.NoError(t, err)
		good := func(name string) session.Op {
			return session.OpCreate{Path: g.path(name), ACL: everybody}
		}
		for name, c := range map[string]struct {
			ops  []session.Op
			at   int
			path string // of the one at fault
			want error
		}{
			"the only one": {[]session.Op{session.OpDelete{Path: g.path("/no"),
				Version: -1}}, 0, "/no", zk.ErrNoNode},
			"the first": {[]session.Op{session.OpCheck{Path: g.path("/x"),
				Version: 9}, good("/a"), good("/b")}, 0, "/x", zk.ErrBadVersion},
			"one in between": {[]session.Op{good("/a"), good("/x"), good("/b")}, 1,
				"/x", zk.ErrNodeExists},
			"the last": {[]session.Op{good("/a"), good("/b"),
				session.OpSet{Path: g.path("/no"), Version: -1}}, 2, "/no", zk.ErrNoNode},
			"two": {[]session.Op{good("/a"), good("/x"), good("/b"),
				good("/x")}, 1, "/x", zk.ErrNodeExists},
			"a check of what is not there": {[]session.Op{good("/a"),
				session.OpCheck{Path: g.path("/no"), Version: -1}}, 1, "/no", zk.ErrNoNode},
		} {
			resps, err := g.Multi(g.ctx, c.ops...)
			require.ErrorIs(t, err, c.want, name)
			require.NotErrorIs(t, err, session.ErrUnknownOutcome, name)
			require.Len(t, resps, len(c.ops), name)
			for i, r := range resps {
				switch {
				case i < c.at:
					require.NoError(t, r.Error, "%s: %d", name, i)
				case i == c.at:
					require.ErrorIs(t, r.Error, c.want, "%s: %d", name, i)
				default:
					require.Error(t, r.Error, "%s: %d", name, i)
				}
			}
			var op *session.OpError
			require.ErrorAs(t, err, &op)
			require.Equal(t, g.path(c.path), op.Path, "%s: the message names the operation's path",
				name)
			names, _, err := g.List(g.ctx, g.path(""))
			require.NoError(t, err)
			require.Equal(t, []string{"x"}, names, "%s: nothing was done", name)
		}
	})
}

func TestAMultiWithANilOperationIsRefusedBeforeItIsSent(t *testing.T) {
	srv := zktest.Run(t)
	_, err := open(t, srv).Multi(within(t, soon), session.OpCreate{Path: "/made", ACL: everybody},
		nil)
	require.EqualError(t, err, "session: multi: an operation is nil")
	require.Zero(t, srv.Requests()[fault.OpMulti])
}

// The header of the reply says OK, and the result of an operation: try again.
func TestATransactionOfWhichAnOperationIsThrottledIsSentAgainAfterAPause(t *testing.T) {
	bubble(t, func(t *testing.T, srv *zktest.Server) {
		s := open(t, srv)
		const throttled = -127
		srv.Inject(fault.AnswerInside(throttled).Op(fault.OpMulti).Once())
		began := time.Now()
		_, err := s.Multi(t.Context(), session.OpCreate{Path: "/x", ACL: everybody})
		require.NoError(t, err)
		require.Positive(t, time.Since(began))
		require.Equal(t, 2, srv.Requests()[fault.OpMulti])
		_, made := srv.Node("/x")
		require.True(t, made)
	})
}
