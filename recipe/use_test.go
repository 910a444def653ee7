package recipe_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/recipe"
	"github.com/zklock/locker/session"
	"github.com/zklock/locker/zktest"
)

func writer() recipe.Queue {
	q := queue()
	q.Kind = recipe.Write
	return q
}

// holding returns a writer's ticket that holds and is guarded; told has what Guard reports.
func holding(t *testing.T, s *session.Session) (ticket *recipe.Ticket, told chan error) {
	t.Helper()
	ticket, told = enter(t, writer(), s), make(chan error, 2)
	require.NoError(t, ticket.Wait(within(t, soon)))
	ticket.Guard(func(err error) { told <- err })
	return ticket, told
}

func TestADowngradedTicketIsAReaderAtTheSamePlaceAndGuarded(t *testing.T) {
	bubble(t, func(t *testing.T, srv *zktest.Server) {
		s := open(t, srv)
		ticket, told := holding(t, s)
		node, czxid := ticket.Nodes()[0], ticket.Czxid()
		require.NoError(t, ticket.Downgrade(within(t, soon)))
		require.NotEqual(t, node, ticket.Nodes()[0])
		require.Contains(t, ticket.Nodes()[0], "__READ__")
		require.Equal(t, node[len(node)-10:], ticket.Nodes()[0][len(ticket.Nodes()[0])-10:])
		require.Equal(t, czxid, ticket.Czxid())
		require.NoError(t, ticket.Downgrade(within(t, soon)), "it is one already")
		require.Len(t, srv.Children("/l"), 1)
		time.Sleep(time.Second)
		require.Empty(t, told, "the writer's znode went by our own hand")
		require.NoError(t, srv.Delete(ticket.Nodes()[0]))
		require.ErrorIs(t, <-told, recipe.ErrGone)
	})
}

// Scenario 62: Leave waits for a Downgrade no longer than its context lasts, and goes on in the background.
func TestLeaveDuringADowngradeGivesUpWhatThereIsThen(t *testing.T) {
	bubble(t, func(t *testing.T, srv *zktest.Server) {
		s := open(t, srv)
		ticket, told := holding(t, s)
		held := srv.Inject(zktest.HoldReply().Op(zktest.OpMulti).Session(s.ID()))
		moved := make(chan error, 1)
		go func() { moved <- ticket.Downgrade(context.Background()) }()
		synctest.Wait()
		require.ErrorIs(t, ticket.Leave(within(t, time.Second)), context.DeadlineExceeded)
		held.Remove()
		require.NoError(t, <-moved)
		require.NoError(t, ticket.Leave(within(t, soon)), "it waits for the one in the background")
		require.Empty(t, srv.Children("/l"))
		require.ErrorIs(t, ticket.Downgrade(within(t, soon)), recipe.ErrLeft)
		require.Empty(t, told)
		require.Zero(t, s.EphemeralBytes())
	})
}

// The reply to a Downgrade is lost, and ctx ends before the client could look. Leave deletes whichever of the two znodes exists, and
// neither stays in the session's count of ephemerals.
func TestALostDowngradeLeavesNothing(t *testing.T) {
	for name, fault := range map[string]zktest.Fault{
		"carried out": zktest.CloseAfter().Op(zktest.OpMulti).Once(), "not carried out": zktest.CloseBefore().Op(zktest.OpMulti).Once(),
	} {
		for _, looked := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				bubble(t, func(t *testing.T, srv *zktest.Server) {
					s := open(t, srv)
					ticket, told := holding(t, s)
					srv.Inject(fault)
					var refuse *zktest.Injection
					if !looked {
						refuse = srv.Inject(zktest.Refuse())
					}
					err := ticket.Downgrade(within(t, 2*time.Second))
					if looked {
						require.NoError(t, err)
					} else {
						require.ErrorIs(t, err, session.ErrUnknownOutcome)
						require.ErrorIs(t, err, context.DeadlineExceeded)
						require.False(t, errors.Is(err, recipe.ErrGone))
						require.ErrorIs(t, ticket.Downgrade(within(t, soon)), session.ErrUnknownOutcome)
						over, cancel := context.WithCancel(context.Background())
						cancel()
						require.ErrorIs(t, ticket.Leave(over), context.Canceled)
						refuse.Remove()
					}
					require.NoError(t, ticket.Leave(within(t, soon)))
					time.Sleep(5 * time.Second)
					require.Empty(t, srv.Children("/l"))
					require.Empty(t, told)
					require.Zero(t, s.EphemeralBytes())
					require.Zero(t, srv.WatchCount())
				})
			})
		}
	}
}

// Data that another client has set in the writer's znode are carried over to the reader's, however shortly before the Downgrade
// they were set.
func TestWhatWasSetBeforeADowngradeIsHeardAndStaysInTheReadersZnode(t *testing.T) {
	for name, q := range map[string]recipe.Queue{"plain": writer(), "with a lock delay": func() recipe.Queue {
		q := writer()
		q.Delays, q.Delay = true, time.Second
		return q
	}()} {
		for _, age := range []time.Duration{0, time.Minute} { // watched or not
			for _, earlier := range []bool{false, true} {
				t.Run(name, func(t *testing.T) {
					bubble(t, func(t *testing.T, srv *zktest.Server) {
						ticket := enter(t, q, open(t, srv))
						require.NoError(t, ticket.Wait(within(t, soon)))
						heard := make(chan string, 10)
						ticket.OnSet(func(data []byte, _ zk.Stat) { heard <- string(data) })
						ticket.Guard(func(err error) { require.NoError(t, err) })
						time.Sleep(age)
						node := ticket.Nodes()[0]
						if earlier {
							require.NoError(t, srv.SetData(node, []byte("earlier")))
							time.Sleep(time.Second)
							require.Equal(t, "earlier", <-heard)
						}
						require.NoError(t, srv.SetData(node, []byte("let go")))
						require.NoError(t, ticket.Downgrade(within(t, soon)))
						time.Sleep(time.Second)
						require.Equal(t, "let go", <-heard)
						require.Empty(t, heard)
						n, ok := srv.Node(ticket.Nodes()[0])
						require.True(t, ok)
						require.Equal(t, "let go", string(n.Data))
						require.NoError(t, srv.SetData(ticket.Nodes()[0], []byte("once more")))
						require.Equal(t, "once more", <-heard)
						require.NoError(t, ticket.Leave(within(t, soon)))
						require.Empty(t, srv.Children("/l"))
					})
				})
			}
		}
	}
}

// A client that keeps setting the writer's data is noticed, and does not delay the Downgrade for ever.
func TestADowngradeIsMadeThoughTheDataAreSetAllTheTime(t *testing.T) {
	bubble(t, func(t *testing.T, srv *zktest.Server) {
		ticket, told := holding(t, open(t, srv))
		node := ticket.Nodes()[0]
		srv.Inject(zktest.Garble(func(reply []byte) []byte { // after each read of the data they are set again
			_ = srv.SetData(node, []byte("noise"))
			return reply
		}).Op(zktest.OpGetData))
		require.NoError(t, srv.SetData(node, []byte("noise")))
		require.NoError(t, ticket.Downgrade(within(t, soon)))
		require.Contains(t, ticket.Nodes()[0], "__READ__")
		require.Empty(t, told)
	})
}

// A neighbour who sets as much data as a request can carry cannot keep a writer from becoming a reader.
func TestADowngradeIsMadeThoughTheDataThatWereSetFitIntoNoTransaction(t *testing.T) {
	bubble(t, func(t *testing.T, srv *zktest.Server) {
		ticket, told := holding(t, open(t, srv))
		require.NoError(t, srv.SetData(ticket.Nodes()[0], make([]byte, session.DefaultPacketLimit-100)))
		require.NoError(t, ticket.Downgrade(within(t, soon)))
		n, ok := srv.Node(ticket.Nodes()[0])
		require.True(t, ok)
		require.Equal(t, "me", string(n.Data))
		require.Empty(t, told)
	})
}

func TestAWriterWhoseZnodeWasDeletedIsNotDowngraded(t *testing.T) {
	bubble(t, func(t *testing.T, srv *zktest.Server) {
		ticket, told := holding(t, open(t, srv))
		require.NoError(t, srv.Delete(ticket.Nodes()[0]))
		require.ErrorIs(t, ticket.Downgrade(within(t, soon)), recipe.ErrGone)
		require.ErrorIs(t, <-told, recipe.ErrGone)
		require.Empty(t, srv.Children("/l"))
	})
}

// Whether a neighbour's predecessor may be read is found out without a list of its children.
func TestAPredecessorWithManyChildrenCostsNothing(t *testing.T) {
	bubble(t, func(t *testing.T, srv *zktest.Server) {
		require.NoError(t, srv.Create("/l", nil))
		require.NoError(t, srv.Create("/l/x-lock-0000000000", nil))
		for _, name := range []string{"a", "b", "c"} {
			require.NoError(t, srv.Create("/l/x-lock-0000000000/"+strings.Repeat(name, 1000), nil))
		}
		q := queue()
		q.Describe = nil
		done := wait(enter(t, q, open(t, srv)), context.Background())
		lists := srv.Requests()[zktest.OpGetChildren2]
		time.Sleep(time.Hour)
		pending(t, done)
		require.Equal(t, lists, srv.Requests()[zktest.OpGetChildren2])
		require.Less(t, int(srv.Requests()[zktest.OpGetData]), 65, "one short read a minute")
		for _, name := range srv.Children("/l/x-lock-0000000000") {
			require.NoError(t, srv.Delete("/l/x-lock-0000000000/"+name))
		}
		require.NoError(t, srv.Delete("/l/x-lock-0000000000"))
		require.NoError(t, <-done)
	})
}
