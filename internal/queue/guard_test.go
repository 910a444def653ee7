package queue_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/internal/queue"
	"github.com/zklock/locker/internal/session"
	"github.com/zklock/locker/zktest"
	"github.com/zklock/locker/zktest/fault"
)

// Holds that did not wait share the request that sets their watches, whether they began together or
// not. Each is notified of the deletion of its own znode, and those that were released before cost
// nothing.
func TestHoldsOfASessionAreWatchedTogether(t *testing.T) {
	bubble(t, func(t *testing.T, srv *zktest.Server) {
		s := open(t, srv)
		hold := func(i int, lost chan<- error) *queue.Ticket {
			q := aMutex()
			q.Dir = fmt.Sprintf("/l%d", i)
			ticket := enter(t, q, s)
			require.NoError(t, ticket.Wait(within(t, soon)))
			ticket.Guard(func(err error) { lost <- err })
			return ticket
		}
		const together, later = 1500, 10
		tickets, lost := make([]*queue.Ticket, together+later), make([]chan error, together+later)
		for i := range tickets {
			if i == together {
				require.NoError(t, tickets[0].Leave(within(t, soon)))
				require.NoError(t, tickets[7].Leave(within(t, soon)))
				time.Sleep(queue.WatchAfter / 2)
			}
			lost[i] = make(chan error, 1)
			tickets[i] = hold(i, lost[i])
		}
		before := srv.Requests()
		time.Sleep(queue.WatchAfter / 2)
		synctest.Wait()
		require.Equal(t, together-2, srv.WatchCount())
		time.Sleep(queue.WatchAfter / 2)
		synctest.Wait()
		require.Equal(t, together-2+later, srv.WatchCount())
		require.LessOrEqual(t, srv.Requests()[fault.OpSetWatches]-before[fault.OpSetWatches], 3)

		for _, i := range []int{1, together - 1, together + later - 1} {
			require.NoError(t, srv.Delete(tickets[i].Nodes()[0]))
			require.ErrorIs(t, <-lost[i], queue.ErrGone)
		}
		for i, c := range lost {
			require.Empty(t, c, i)
		}
	})
}

// A server in trouble refuses to set the watches, together and one by one. They are set when it has
// recovered.
func TestOwnZnodesAreWatchedOnceTheServerIsOutOfTrouble(t *testing.T) {
	for name, ops := range map[string][]fault.Op{"setWatches": {fault.OpSetWatches},
		"Stat": {fault.OpExists}} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, srv *zktest.Server) {
				s := open(t, srv)
				lost := make(chan error, 10)
				tickets := make([]*queue.Ticket, 3)
				for i := range tickets {
					q := aMutex()
					q.Dir = fmt.Sprintf("/l%d", i)
					tickets[i] = enter(t, q, s)
					require.NoError(t, tickets[i].Wait(within(t, soon)))
					tickets[i].Guard(func(err error) { lost <- err })
				}
				trouble := srv.Inject(fault.Answer(fault.CodeMarshallingError).Op(ops...))
				time.Sleep(10 * time.Second)
				trouble.Remove()
				time.Sleep(time.Second)
				require.Equal(t, len(tickets), srv.WatchCount())
				require.NoError(t, srv.Delete(tickets[1].Nodes()[0]))
				require.ErrorIs(t, <-lost, queue.ErrGone)
				time.Sleep(time.Second)
				require.Empty(t, lost)
			})
		})
	}
}

// The data of several znodes of one ticket are set at the same moment, repeatedly.
func TestAZnodeThatIsSetIsWatchedAgainOnce(t *testing.T) {
	multiRun(t, func(t *testing.T, srv *zktest.Server, s *session.Session, queues []queue.Queue) {
		g, err := queue.Enter(t.Context(), s, queues...)
		require.NoError(t, err)
		require.NoError(t, g.Wait(t.Context()))
		g.Guard(func(error) {})
		time.Sleep(time.Second)
		other := open(t, srv)
		var ops []session.Op
		for _, node := range g.Nodes() {
			ops = append(ops, session.OpSet{Path: node, Data: []byte("x"), Version: -1})
		}
		asked := 0
		for range 8 {
			before := requests(srv, fault.OpSetWatches, fault.OpExists)
			_, err = other.Multi(t.Context(), ops...)
			require.NoError(t, err)
			time.Sleep(time.Second)
			asked = requests(srv, fault.OpSetWatches, fault.OpExists) - before
		}
		require.LessOrEqual(t, asked, 8, "requests for two events")
		require.NoError(t, g.Leave(t.Context()))
		time.Sleep(time.Second)
		require.Zero(t, srv.WatchCount())
	})
}

// One of two znodes is deleted. Until the holder has been notified of the loss, the lease must go
// on protecting the other one.
func TestTheLeaseIsKeptUntilTheHolderHasHeardOfTheLoss(t *testing.T) {
	multiRun(t, func(t *testing.T, srv *zktest.Server, s *session.Session, queues []queue.Queue) {
		g, err := queue.Enter(t.Context(), s, queues...)
		require.NoError(t, err)
		require.NoError(t, g.Wait(t.Context()))
		told, heard := make(chan struct{}), make(chan struct{})
		g.Guard(func(error) { close(told); <-heard }) // a holder whose notification is slow
		time.Sleep(time.Minute)
		require.NoError(t, srv.Delete(g.Nodes()[1]))
		<-told
		require.ErrorIs(t, g.Check(within(t, soon)), queue.ErrGone)
		time.Sleep(time.Second) // plain pings are answered
		f := srv.Inject(fault.Freeze())
		safe := s.SafeUntil()
		time.Sleep(time.Until(safe))
		synctest.Wait()
		over := s.Err()
		close(heard)
		f.Remove()
		require.Error(t, over, "the session may be over at the ensemble, and the holder goes on")
	})
}

// multiRun runs f with a session on a server of its own, and queues in two directories of it.
func multiRun(
	t *testing.T,
	f func(t *testing.T, srv *zktest.Server, s *session.Session, queues []queue.Queue),
) {
	t.Helper()
	bubble(t, func(t *testing.T, srv *zktest.Server) {
		var queues []queue.Queue
		for _, dir := range []string{"/a", "/b"} {
			queues = append(queues, mutexIn(dir))
		}
		f(t, srv, open(t, srv), queues)
	})
}
