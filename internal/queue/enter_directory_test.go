package queue_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/internal/queue"
	"github.com/zklock/locker/zktest"
	"github.com/zklock/locker/zktest/fault"
)

// The first contender of a directory makes the directory and its znode in one transaction, and holds without a list.
func TestTheFirstContenderOfADirectoryMakesItWithItsZnode(t *testing.T) {
	for name, container := range map[string]bool{"persistent": false, "container": true} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, srv *zktest.Server) {
				s, q := open(t, srv), aMutex()
				q.Container = container
				ticket := enter(t, q, s)
				require.NoError(t, ticket.Wait(within(t, soon)))
				made := srv.Requests()
				require.Equal(t, []int{1, 1, 1}, []int{made[fault.OpCreate], made[fault.OpGetChildren2], made[fault.OpMulti]},
					"a create and a list, which find no directory, and the transaction")
				require.Zero(t, made[fault.OpCreateContainer])
				dir, err := s.Exists(within(t, soon), "/l")
				require.NoError(t, err)
				require.Equal(t, ticket.Czxid(), dir.Czxid)
				require.Len(t, srv.Children("/l"), 1)
				require.NoError(t, ticket.Leave(within(t, soon)))
				time.Sleep(time.Hour)
				_, err = s.Exists(within(t, soon), "/l")
				require.Equal(t, container, errors.Is(err, zk.ErrNoNode), "the ensemble removes an empty container")
			})
		})
	}
}

// Whatever happens to the transaction, the contender has one znode in the end.
func TestADirectorysFirstContenderHasOneZnodeWhateverBecomesOfItsTransaction(t *testing.T) {
	for name, failure := range map[string]fault.Fault{
		"request lost": fault.CloseBefore(), "reply lost": fault.CloseAfter(),
		"refused": fault.Answer(fault.CodeNoAuth),
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, srv *zktest.Server) {
				s := open(t, srv)
				struck := srv.Inject(failure.Op(fault.OpMulti).Once())
				ticket := enter(t, aMutex(), s)
				require.NoError(t, ticket.Wait(within(t, soon)))
				require.Equal(t, 1, struck.Hits())
				require.Equal(t, ticket.Nodes(), []string{"/l/" + srv.Children("/l")[0]})
				require.Len(t, srv.Children("/l"), 1)
				require.NoError(t, ticket.Leave(within(t, soon)))
				require.Empty(t, srv.Children("/l"))
			})
		})
	}
}

// If another client makes the directory, and holds, while the transaction is under way, the contender waits behind it.
func TestAContenderWhoseDirectoryIsMadeMeanwhileWaitsForItsPredecessor(t *testing.T) {
	bubble(t, func(t *testing.T, srv *zktest.Server) {
		a, b := open(t, srv), open(t, srv)
		late := srv.Inject(fault.Hold().Op(fault.OpMulti).Session(b.ID()).Once())
		entered := make(chan *queue.Ticket, 1)
		go func() {
			ticket, err := queue.Enter(t.Context(), b, aMutex())
			if err != nil {
				t.Error(err)
			}
			entered <- ticket
		}()
		<-late.Hit()
		first := enter(t, aMutex(), a)
		require.NoError(t, first.Wait(within(t, soon)))
		late.Remove()
		second := <-entered
		held := wait(second, context.Background())
		pending(t, held)
		require.NoError(t, first.Leave(within(t, soon)))
		require.NoError(t, <-held)
		require.Greater(t, second.Czxid(), first.Czxid())
		require.NoError(t, second.Leave(within(t, soon)))
	})
}
