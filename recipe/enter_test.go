package recipe_test

import (
	"context"
	"encoding/binary"
	"path"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/recipe"
	"github.com/zklock/locker/session"
	"github.com/zklock/locker/zktest"
)

// noChildren turns the reply to a list (header 16, vector, stat 68) into that of an empty directory, as a server answers that
// lags behind in spite of the sync.
func noChildren(reply []byte) []byte {
	if len(reply) < 16+4+68 {
		return reply
	}
	out := append([]byte{}, reply[:16]...)
	out = binary.BigEndian.AppendUint32(out, 0)
	return append(out, reply[len(reply)-68:]...)
}

// missedByTheFirstLook makes the first list behind a sync show an empty directory. It returns how often that has happened.
// (Lists cannot be counted: whether the server reads a list behind a create after which it closes the connection is random.)
func missedByTheFirstLook(srv *zktest.Server) *atomic.Int32 {
	var synced, missed atomic.Int32
	srv.Inject(zktest.Garble(func(reply []byte) []byte {
		synced.Add(1)
		return reply
	}).Op(zktest.OpSync))
	srv.Inject(zktest.Garble(func(reply []byte) []byte {
		if synced.Load() == 0 || !missed.CompareAndSwap(0, 1) {
			return reply
		}
		return noChildren(reply)
	}).Op(zktest.OpGetChildren2))
	return &missed
}

func TestACreateThatTheFirstLookMissesIsNotLeftBehindWhenCtxEndsBeforeTheNext(t *testing.T) {
	bubble(t, func(t *testing.T, srv *zktest.Server) {
		require.NoError(t, srv.Create("/a", nil))
		s := open(t, srv)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		srv.Inject(zktest.CloseAfter().Op(zktest.OpCreate).Once())
		missed := missedByTheFirstLook(srv)
		q := recipe.Queue{Dir: "/a", Kind: recipe.Lock, ACL: session.WorldACL(), Retried: func(error) { cancel() }}
		_, err := recipe.Enter(ctx, s, q)
		require.ErrorIs(t, err, context.Canceled)
		require.EqualValues(t, 1, missed.Load())
		time.Sleep(time.Hour)
		synctest.Wait()
		require.NoError(t, s.Err())
		require.Empty(t, srv.Children("/a"), "the znode of a call that has ended is in everybody's way")
	})
}

// The reply to a create is lost, the first look misses its znode, and the create is made again; that reply is lost too, and then
// ctx ends.
func TestTheSweeperDeletesAllThatOneContenderHasMade(t *testing.T) {
	bubble(t, func(t *testing.T, srv *zktest.Server) {
		require.NoError(t, srv.Create("/a", nil))
		s := open(t, srv)
		srv.Inject(zktest.CloseAfter().Op(zktest.OpCreate).Times(2))
		missed := missedByTheFirstLook(srv)
		held := srv.Inject(zktest.Hold().Op(zktest.OpSync).After(1))
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		_, err := recipe.Enter(ctx, s, recipe.Queue{Dir: "/a", Kind: recipe.Lock, ACL: session.WorldACL()})
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.EqualValues(t, 1, missed.Load())
		require.Len(t, srv.Children("/a"), 2)

		held.Remove()
		time.Sleep(time.Hour)
		synctest.Wait()
		require.NoError(t, s.Err())
		require.False(t, recipe.Sweeping(s))
		require.Empty(t, srv.Children("/a"))
	})
}

// Servers since 3.9 refuse the Stat of a znode that the session may not read, and a server in trouble refuses any. The znode
// exists all the same, and blocks the lock.
func TestACreateWhoseReplyIsLostLeavesNoZnodeWhoseStatIsRefused(t *testing.T) {
	hidden := []zk.ACL{{Perms: zk.PermAll &^ zk.PermRead, Scheme: "world", ID: "anyone"}}
	for name, c := range map[string]struct {
		acl   []zk.ACL
		fault func(srv *zktest.Server)
	}{
		"it may not be read":       {hidden, func(*zktest.Server) {}},
		"nor was it seen at first": {hidden, func(srv *zktest.Server) { missedByTheFirstLook(srv) }},
		"the server is in trouble": {session.WorldACL(), func(srv *zktest.Server) {
			srv.Inject(zktest.Answer(zktest.CodeMarshallingError).Op(zktest.OpExists).Times(5))
		}},
		"it may be read, and is read": {session.WorldACL(), func(*zktest.Server) {}},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, srv *zktest.Server) {
				require.NoError(t, srv.Create("/l", nil))
				s := open(t, srv)
				srv.Inject(zktest.CloseAfter().Op(zktest.OpCreate).Once())
				c.fault(srv)
				q := queue()
				q.ACL = c.acl
				ticket, err := recipe.Enter(within(t, soon), s, q)
				if name != "the server is in trouble" {
					require.NoError(t, err)
				}
				if err == nil {
					require.NoError(t, ticket.Wait(within(t, soon)), "nobody else is there")
					require.NoError(t, ticket.Leave(within(t, soon)))
				}
				time.Sleep(time.Minute)
				synctest.Wait()
				require.NoError(t, s.Err())
				require.Empty(t, srv.Children("/l"))
			}, zktest.WithVersion(zktest.Version39))
		})
	}
}

// The first look misses the znode, and the server is in trouble when the list behind the next create shows it.
func TestAZnodeThatTheFirstLookMissedIsDeletedThoughItsStatIsRefusedForAWhile(t *testing.T) {
	for _, refusals := range []int{1, 2, 10} {
		bubble(t, func(t *testing.T, srv *zktest.Server) {
			require.NoError(t, srv.Create("/l", nil))
			s := open(t, srv)
			srv.Inject(zktest.CloseAfter().Op(zktest.OpCreate).Once())
			missed := missedByTheFirstLook(srv)
			srv.Inject(zktest.Answer(zktest.CodeMarshallingError).Op(zktest.OpExists).Times(refusals))
			ticket := enter(t, queue(), s)
			require.EqualValues(t, 1, missed.Load())
			require.NoError(t, ticket.Wait(within(t, soon)), "only its own znode is before it")
			require.Equal(t, []string{path.Base(ticket.Nodes()[0])}, srv.Children("/l"))
		})
	}
}
