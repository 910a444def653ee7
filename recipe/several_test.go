package recipe_test

import (
	"context"
	"path"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/recipe"
	"github.com/zklock/locker/session"
	"github.com/zklock/locker/zktest"
)

// Tests of tickets with znodes in several queues. Package zklock tests what users see of them.

// multiRun runs f with a session on a server of its own, and queues in two directories of it.
func multiRun(t *testing.T, f func(t *testing.T, srv *zktest.Server, s *session.Session, queues []recipe.Queue)) {
	t.Helper()
	bubble(t, func(t *testing.T, srv *zktest.Server) {
		var queues []recipe.Queue
		for _, dir := range []string{"/a", "/b"} {
			queues = append(queues, recipe.Queue{Dir: dir, Kind: recipe.Lock, ACL: session.WorldACL()})
		}
		f(t, srv, open(t, srv), queues)
	})
}

func TestATicketOfSeveralQueuesEntersThemInOneTransaction(t *testing.T) {
	multiRun(t, func(t *testing.T, srv *zktest.Server, s *session.Session, queues []recipe.Queue) {
		first, err := recipe.Enter(t.Context(), s, queues...)
		require.NoError(t, err)
		slices.Reverse(queues)
		second, err := recipe.Enter(t.Context(), s, queues...)
		require.NoError(t, err)
		require.Greater(t, second.Czxid(), first.Czxid())
		require.Equal(t, "/a", path.Dir(first.Nodes()[0]))
		require.Equal(t, "/b", path.Dir(second.Nodes()[0]), "in the order of the queues")
		for _, g := range []*recipe.Ticket{first, second} {
			for _, node := range g.Nodes() {
				n, ok := srv.Node(node)
				require.True(t, ok)
				require.Equal(t, g.Czxid(), n.Stat.Czxid)
			}
		}
		require.NoError(t, first.Wait(t.Context()))
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		require.ErrorIs(t, second.Wait(ctx), context.DeadlineExceeded)
		_, err = recipe.Try(t.Context(), s, queues...)
		require.ErrorIs(t, err, recipe.ErrBusy)
		require.NoError(t, first.Leave(t.Context()))
		require.NoError(t, second.Leave(t.Context()))
		require.NoError(t, second.Leave(t.Context()), "it has left")
		synctest.Wait()
		require.Zero(t, srv.WatchCount())
	})
}

func TestATicketOfSeveralQueuesIsNotifiedOfADeletedZnodeWhileItWaitsForAnotherQueue(t *testing.T) {
	multiRun(t, func(t *testing.T, srv *zktest.Server, s *session.Session, queues []recipe.Queue) {
		holder, err := recipe.Enter(t.Context(), s, queues[0])
		require.NoError(t, err)
		g, err := recipe.Enter(t.Context(), s, queues...)
		require.NoError(t, err)
		began := time.Now()
		time.AfterFunc(time.Minute, func() {
			if err := srv.Delete(g.Nodes()[1]); err != nil {
				t.Error(err)
			}
		})
		require.ErrorIs(t, g.Wait(within(t, time.Hour)), recipe.ErrGone)
		require.Equal(t, time.Minute, time.Since(began), "at once")
		require.ErrorIs(t, g.Leave(t.Context()), recipe.ErrGone)
		require.NoError(t, holder.Leave(t.Context()))
		require.Empty(t, srv.Children("/a"), "the rest of it goes")
	})
}

// The reply to the transaction is lost, and one of the znodes is deleted before the client has looked for them. The ticket is
// incomplete then, and its remaining znodes must not block its next attempt.
func TestATicketOfWhichOneZnodeIsMissingAfterALostReplyEntersAnew(t *testing.T) {
	for _, missing := range []string{"/a", "/b"} {
		t.Run(missing, func(t *testing.T) {
			multiRun(t, func(t *testing.T, srv *zktest.Server, s *session.Session, queues []recipe.Queue) {
				for _, q := range queues {
					require.NoError(t, srv.Create(q.Dir, nil))
				}
				srv.Inject(zktest.CloseAfter().Op(zktest.OpMulti).Once())
				search := srv.Inject(zktest.Hold().Op(zktest.OpSync).Once())
				var g *recipe.Ticket
				var err error
				entered := make(chan struct{})
				go func() { // ends with EnterAll
					defer close(entered)
					g, err = recipe.Enter(t.Context(), s, queues...)
				}()
				select {
				case <-search.Hit():
				case <-time.After(soon):
					require.FailNow(t, "the search for what was made is not preceded by a sync")
				}
				require.NoError(t, srv.Delete(missing+"/"+srv.Children(missing)[0]))
				search.Release()
				<-entered
				require.NoError(t, err)
				require.NoError(t, g.Wait(t.Context()))
				synctest.Wait() // the rest of the first attempt is deleted
				for i, node := range g.Nodes() {
					n, ok := srv.Node(node)
					require.True(t, ok, node)
					require.Equal(t, g.Czxid(), n.Stat.Czxid)
					require.Equal(t, []string{path.Base(node)}, srv.Children(queues[i].Dir))
				}
				require.NoError(t, g.Leave(t.Context()))
			})
		})
	}
}
