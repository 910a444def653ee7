package queue_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/internal/queue"
	"github.com/zklock/locker/internal/session"
	"github.com/zklock/locker/tests/locktest"
	"github.com/zklock/locker/zktest"
	"github.com/zklock/locker/zktest/fault"
)

func requests(srv *zktest.Server, ops ...fault.Op) (n int) {
	for _, op := range ops {
		n += int(srv.Requests()[op])
	}
	return n
}

// enterMany has n callers enter directories of their own until ctx ends, and waits for all.
func enterMany(t *testing.T, ctx context.Context, s *session.Session, n int) {
	t.Helper()
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			q := aMutex()
			q.Dir = fmt.Sprintf("/l/%d", i%10)
			ticket, err := queue.Enter(ctx, s, q)
			if err == nil {
				err = ticket.Leave(ctx)
			}
			require.ErrorIs(t, err, ctx.Err())
		})
	}
	all.Wait()
}

// Scenario 55: the znode of a create that was never sent need not be searched for.
func TestCallsThatEndWhileDisconnectedLeaveNothingBehind(t *testing.T) {
	for name, many := range map[string]func(context.Context, *session.Session){
		"one": func(ctx context.Context, s *session.Session) {
			_, err := queue.Enter(ctx, s, aMutex())
			require.ErrorIs(t, err, session.ErrNotSent)
		},
		"several": func(ctx context.Context, s *session.Session) {
			a, b := aMutex(), aMutex()
			b.Dir = "/m"
			_, err := queue.Enter(ctx, s, a, b)
			require.ErrorIs(t, err, session.ErrNotSent)
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, srv *zktest.Server) {
				s := open(t, srv)
				enter(t, aMutex(), s)
				outage := srv.Inject(fault.Refuse())
				cut := srv.Inject(fault.CloseBefore().Op(fault.OpExists).Once())
				ctx, cancel := context.WithTimeout(context.Background(), time.Second)
				_, err := s.Exists(ctx, "/cut")
				require.ErrorIs(t, err, context.DeadlineExceeded)
				cancel()
				cut.Remove()
				before := locktest.Goroutines()

				ctx, cancel = context.WithTimeout(context.Background(), time.Second)
				defer cancel()
				var all sync.WaitGroup
				for range 1000 {
					all.Go(func() { many(ctx, s) })
				}
				all.Wait()
				require.LessOrEqual(t, locktest.Goroutines(), before+2,
					"goroutines after 1,000 calls")

				asked := srv.Requests()
				outage.Remove()
				_, err = s.Exists(within(t, soon), "/back")
				require.NoError(t, s.Err())
				require.Error(t, err)
				time.Sleep(2 * time.Second)
				for _, op := range []fault.Op{fault.OpSync, fault.OpGetChildren2, fault.OpDelete,
					fault.OpCreate} {
					require.Equal(t, asked[op], srv.Requests()[op], "requests after the outage: %v",
						op)
				}
			})
		})
	}
}

// Scenario 55: znodes that may have been made while the connection broke are searched for together,
// by one goroutine.
func TestZnodesThatManyCallsMayHaveLeftAreSearchedTogether(t *testing.T) {
	bubble(t, func(t *testing.T, srv *zktest.Server) {
		s := open(t, srv)
		for i := range 10 {
			require.NoError(t,
				s.CreateAll(within(t, soon), fmt.Sprintf("/l/%d", i), nil, session.Persistent,
					session.WorldACL()))
		}
		before := locktest.Goroutines()
		// the first 256 or so are made, one by one
		late := srv.Inject(fault.HoldReply().Op(fault.OpCreate))
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		enterMany(t, ctx, s, 1000)
		require.LessOrEqual(t, locktest.Goroutines(), before+2, "goroutines after 1,000 calls")
		late.Remove()
		looks := []fault.Op{fault.OpSync, fault.OpGetChildren2, fault.OpExists, fault.OpMulti}
		asked := requests(srv, looks...)
		time.Sleep(5 * time.Second)
		require.LessOrEqual(t, requests(srv, looks...)-asked, 2000,
			"looks for 1,000 znodes in ten directories")
		for i := range 10 {
			names, _, err := s.List(within(t, soon), fmt.Sprintf("/l/%d", i))
			require.NoError(t, err)
			require.Empty(t, names)
		}
		require.False(t, queue.Sweeping(s))
	})
}

// Znodes whose deletion the calls could not wait for are deleted together too, in a few round
// trips.
func TestZnodesThatManyCallsGaveUpDuringAnOutageAreDeletedTogether(t *testing.T) {
	bubble(t, func(t *testing.T, srv *zktest.Server) {
		s := open(t, srv)
		var tickets []*queue.Ticket
		for range 300 {
			tickets = append(tickets, enter(t, aMutex(), s))
		}
		hold := srv.Inject(fault.Freeze())
		before := locktest.Goroutines()
		gone, cancel := context.WithCancel(context.Background())
		cancel()
		for _, ticket := range tickets {
			require.ErrorIs(t, ticket.Leave(gone), context.Canceled)
		}
		require.LessOrEqual(t, locktest.Goroutines(), before+2, "goroutines after 300 calls")
		hold.Remove()
		ctx := within(t, soon)
		require.NoError(t, srv.Await(ctx, func() bool { return len(srv.Children("/l")) == 0 }))
		time.Sleep(time.Second)
		require.False(t, queue.Sweeping(s))
	})
}

// The connection breaks when a refused deletion is repeated. That says nothing about the access
// list: the log has said so already, and the next pause is longer than the last one.
func TestADeletionThatIsRefusedAgainAfterABrokenConnectionIsNoNewRefusal(t *testing.T) {
	bubble(t, func(t *testing.T, srv *zktest.Server) {
		var log locktest.Buffer
		s, err := session.Open(within(t, soon), srv.Addr(), session.Config{Dial: srv.Dial,
			Logger: slog.New(slog.NewTextHandler(&log, nil))})
		require.NoError(t, err)
		defer s.Close()
		ticket := enter(t, aMutex(), s)
		refused := srv.Inject(fault.Answer(fault.CodeNoAuth).Op(fault.OpDelete))
		gone, cancel := context.WithCancel(context.Background())
		cancel()
		require.ErrorIs(t, ticket.Leave(gone), context.Canceled)
		time.Sleep(time.Second / 2)
		require.Equal(t, 1, refused.Hits())

		refused.Remove()
		srv.Inject(fault.CloseBefore().Op(fault.OpDelete).Once())
		refused = srv.Inject(fault.Answer(fault.CodeNoAuth).Op(fault.OpDelete).After(1))
		require.NoError(t, refused.Wait(within(t, soon), 1))
		again := time.Now()
		require.NoError(t, refused.Wait(within(t, soon), 2))
		require.Equal(t, 2*time.Second, time.Since(again).Round(time.Second/10))
		require.Equal(t, 1, strings.Count(log.String(), "own znode can't be deleted"))
		refused.Remove()
		time.Sleep(time.Minute)
		require.Empty(t, srv.Children("/l"))
	})
}
