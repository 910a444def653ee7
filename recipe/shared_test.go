package recipe_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/recipe"
	"github.com/zklock/locker/zktest"
)

// crowdOf makes n calls of one session enter one directory at once.
func crowdOf(t *testing.T, ctx context.Context, srv *zktest.Server, n int) (tickets []*recipe.Ticket, errs []error) {
	t.Helper()
	s, q := open(t, srv), queue()
	var all sync.WaitGroup
	var mu sync.Mutex
	for range n {
		all.Go(func() {
			ticket, err := recipe.Enter(ctx, s, q)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				errs = append(errs, err)
				return
			}
			tickets = append(tickets, ticket)
		})
	}
	all.Wait()
	return tickets, errs
}

func TestACrowdOfOneClientSharesItsLists(t *testing.T) {
	bubble(t, func(t *testing.T, srv *zktest.Server) {
		require.NoError(t, srv.Create("/l", nil))
		srv.Inject(zktest.DelayReply(time.Millisecond).Op(zktest.OpGetChildren2))
		const n = 400
		tickets, errs := crowdOf(t, within(t, time.Minute), srv, n)
		require.Empty(t, errs)
		require.Len(t, tickets, n)
		require.Less(t, lists(srv), n/10)
		slices.SortFunc(tickets, func(a, b *recipe.Ticket) int { return int(a.Czxid() - b.Czxid()) })
		var done []<-chan error
		for _, ticket := range tickets {
			done = append(done, wait(ticket, within(t, time.Hour)))
		}
		for i, ticket := range tickets { // each has seen the contenders before it
			require.NoError(t, <-done[i])
			if i+1 < n {
				pending(t, done[i+1])
			}
			require.NoError(t, ticket.Leave(within(t, soon)))
		}
		synctest.Wait()
		require.Zero(t, srv.WatchCount())
	})
}

func TestACrowdWhoseListIsRefusedLeavesNothing(t *testing.T) {
	bubble(t, func(t *testing.T, srv *zktest.Server) {
		require.NoError(t, srv.Create("/l", nil))
		srv.Inject(zktest.Answer(zktest.CodeNoAuth).Op(zktest.OpGetChildren2).Times(1000))
		tickets, errs := crowdOf(t, within(t, time.Minute), srv, 100)
		require.Empty(t, tickets)
		for _, err := range errs {
			require.ErrorIs(t, err, zk.ErrNoAuth)
		}
		synctest.Wait()
		require.Empty(t, srv.Children("/l"))
	})
}

func TestACallThatLeavesItsCrowdLeavesNothing(t *testing.T) {
	bubble(t, func(t *testing.T, srv *zktest.Server) {
		require.NoError(t, srv.Create("/l", nil))
		held := srv.Inject(zktest.Hold().Op(zktest.OpGetChildren2))
		tickets, errs := crowdOf(t, within(t, time.Second), srv, 100)
		require.Empty(t, tickets)
		for _, err := range errs {
			require.True(t, errors.Is(err, context.DeadlineExceeded), "%v", err)
		}
		held.Remove()
		held.Release()
		time.Sleep(time.Minute)
		require.Empty(t, srv.Children("/l"))
	})
}

// A shared list may be older than the create of a call: that call waits for the next list.
func TestASharedListIsNewerThanTheCreateOfEachThatTakesIt(t *testing.T) {
	bubble(t, func(t *testing.T, srv *zktest.Server) {
		require.NoError(t, srv.Create("/l", nil))
		for round := range 5 {
			srv.Inject(zktest.Delay(time.Duration(round) * time.Millisecond).Op(zktest.OpCreate).After(20 * round).Times(50))
			tickets, errs := crowdOf(t, within(t, time.Minute), srv, 100)
			require.Empty(t, errs, "whose znode is not in its list is gone")
			for _, ticket := range tickets {
				require.NoError(t, ticket.Leave(within(t, soon)))
			}
		}
	})
}
