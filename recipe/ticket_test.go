package recipe_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/internal/locktest"
	"github.com/zklock/locker/recipe"
	"github.com/zklock/locker/session"
	"github.com/zklock/locker/zktest"
)

const soon = 20 * time.Second

var (
	within = locktest.Within
	bubble = locktest.BubbleAlone
)

func open(t *testing.T, srv *zktest.Server, auth ...session.Auth) *session.Session {
	t.Helper()
	s, err := session.Open(within(t, soon), srv.Addr(), session.Config{Dial: srv.Dial, Auth: auth})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

func queue() recipe.Queue {
	return recipe.Queue{Dir: "/l", Kind: recipe.Lock, ACL: session.WorldACL(), Data: []byte("me"), Describe: func(b []byte) string { return string(b) }}
}

func enter(t *testing.T, q recipe.Queue, s *session.Session) *recipe.Ticket {
	t.Helper()
	ticket, err := recipe.Enter(within(t, soon), s, q)
	require.NoError(t, err)
	return ticket
}

// wait calls Wait in a new goroutine.
func wait(ticket *recipe.Ticket, ctx context.Context) <-chan error {
	done := make(chan error, 1)
	go func() { done <- ticket.Wait(ctx) }()
	return done
}

func pending(t *testing.T, done <-chan error) {
	t.Helper()
	synctest.Wait()
	select {
	case err := <-done:
		require.FailNow(t, "does not wait", "%v", err)
	default:
	}
}

func TestATicketIsAnEphemeralZnodeAndLeaveDeletesThatAlone(t *testing.T) {
	bubble(t, func(t *testing.T, srv *zktest.Server) {
		s := open(t, srv)
		first, second := enter(t, queue(), s), enter(t, queue(), s)
		node, there := srv.Node(first.Nodes()[0])
		require.True(t, there)
		require.Equal(t, s.ID(), node.Stat.EphemeralOwner)
		require.Equal(t, node.Stat.Czxid, first.Czxid())
		require.Equal(t, []byte("me"), node.Data)
		require.Equal(t, []string{first.Nodes()[0]}, first.Nodes())
		require.Greater(t, second.Czxid(), first.Czxid())
		require.Same(t, s, first.Session())

		require.NoError(t, first.Wait(within(t, soon)))
		require.NoError(t, first.Leave(within(t, soon)))
		require.Len(t, srv.Children("/l"), 1)
		require.NoError(t, first.Leave(within(t, soon)), "it has left")
		require.Len(t, srv.Children("/l"), 1)
		require.NoError(t, second.Wait(within(t, soon)))
		require.NoError(t, second.Leave(within(t, soon)))
		require.Empty(t, srv.Children("/l"))
		synctest.Wait()
		require.Zero(t, srv.WatchCount())
	})
}

func TestTheNextInLineIsWokenByTheNotificationAlone(t *testing.T) {
	bubble(t, func(t *testing.T, srv *zktest.Server) {
		a, b := open(t, srv), open(t, srv)
		var lines []recipe.Line
		q := queue()
		q.Queued = func(l recipe.Line) { lines = append(lines, l) }
		first := enter(t, queue(), a)
		require.NoError(t, first.Wait(within(t, soon)))
		second := enter(t, q, b)
		done := wait(second, within(t, soon))
		pending(t, done)
		require.Equal(t, []recipe.Line{{Ahead: 1, Holder: first.Nodes()[0]}}, lines)
		reads := srv.Requests()
		require.NoError(t, first.Leave(within(t, soon)))
		require.NoError(t, <-done)
		after := srv.Requests()
		for _, op := range []zktest.Op{zktest.OpExists, zktest.OpSetWatches, zktest.OpGetData, zktest.OpGetChildren2, zktest.OpSync} {
			require.Equal(t, reads[op], after[op], "%v", op)
		}
		require.Len(t, lines, 1)
		require.Equal(t, 1, srv.Notifications())
	})
}

func TestAWaiterBehindTwoLooksAgainWhenTheNearerOneGoes(t *testing.T) {
	bubble(t, func(t *testing.T, srv *zktest.Server) {
		s := open(t, srv)
		ahead := 0
		q := queue()
		q.Queued = func(l recipe.Line) { ahead = l.Ahead }
		first, second, third := enter(t, queue(), s), enter(t, queue(), s), enter(t, q, s)
		done := wait(third, within(t, soon))
		pending(t, done)
		require.Equal(t, 2, ahead)
		require.NoError(t, second.Leave(within(t, soon)))
		pending(t, done)
		require.NoError(t, first.Leave(within(t, soon)))
		require.NoError(t, <-done)
	})
}

func TestAWaitThatEndsSaysBehindWhomAndKeepsThePlace(t *testing.T) {
	bubble(t, func(t *testing.T, srv *zktest.Server) {
		s := open(t, srv)
		first := enter(t, queue(), s)
		second := enter(t, queue(), s)
		third := enter(t, queue(), s)
		err := second.Wait(within(t, 10*time.Millisecond))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorContains(t, err, "waiting 2nd in line behind _c_", "nobody has read the holder's data in so short a time")
		err = third.Wait(within(t, time.Second))
		require.ErrorContains(t, err, "waiting 3rd in line behind me")
		for _, ticket := range []*recipe.Ticket{first, second, third} {
			_, there := srv.Node(ticket.Nodes()[0])
			require.True(t, there)
		}
	})
}

func TestAWaiterWhoseZnodeIsDeletedIsTold(t *testing.T) {
	for name, after := range map[string]time.Duration{"at once": 0, "after a while": time.Minute} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, srv *zktest.Server) {
				s := open(t, srv)
				first, second := enter(t, queue(), s), enter(t, queue(), s)
				done := wait(second, context.Background())
				time.Sleep(after)
				require.NoError(t, srv.Delete(second.Nodes()[0]))
				time.Sleep(time.Second)
				select {
				case err := <-done:
					require.ErrorIs(t, err, recipe.ErrGone)
				default:
					require.FailNow(t, "waits on without a place in line")
				}
				require.ErrorIs(t, second.Leave(within(t, soon)), recipe.ErrGone)
				require.NoError(t, first.Wait(within(t, soon)))
			})
		})
	}
}

func TestAWaitEndsWithItsSession(t *testing.T) {
	bubble(t, func(t *testing.T, srv *zktest.Server) {
		a, b := open(t, srv), open(t, srv)
		enter(t, queue(), a)
		second := enter(t, queue(), b)
		done := wait(second, context.Background())
		pending(t, done)
		require.NoError(t, srv.Expire(b.ID()))
		srv.DropConnections()
		if err := <-done; !errors.Is(err, recipe.ErrGone) { // the deletion of its znode may be notified before the end of its session
			require.ErrorIs(t, err, session.ErrExpired)
		}
		<-b.Done()
		require.ErrorIs(t, second.Leave(within(t, soon)), session.ErrExpired)
	})
}

func TestTryIsARefusalThatCostsReadsAndNoWrite(t *testing.T) {
	bubble(t, func(t *testing.T, srv *zktest.Server) {
		s := open(t, srv)
		q := queue()
		first, err := recipe.Try(within(t, soon), s, q) // makes the directory, too
		require.NoError(t, err)
		for _, nameReads := range []int64{1, 0} { // the second time the holder is known
			before := srv.Requests()
			_, err = recipe.Try(within(t, soon), s, q)
			require.ErrorIs(t, err, recipe.ErrBusy)
			require.ErrorContains(t, err, "held by me")
			after := srv.Requests()
			require.EqualValues(t, before[zktest.OpGetChildren2]+1, after[zktest.OpGetChildren2])
			require.EqualValues(t, int64(before[zktest.OpExists])+nameReads, after[zktest.OpExists])
			require.EqualValues(t, int64(before[zktest.OpGetData])+nameReads, after[zktest.OpGetData])
			require.Equal(t, before[zktest.OpCreate], after[zktest.OpCreate])
		}
		require.NoError(t, first.Leave(within(t, soon)))
		_, err = recipe.Try(within(t, soon), s, q)
		require.NoError(t, err)
	})
}

func TestTryThatIsOvertakenLeavesNothing(t *testing.T) {
	bubble(t, func(t *testing.T, srv *zktest.Server) {
		a, b := open(t, srv), open(t, srv)
		require.NoError(t, srv.Create("/l", nil))
		fault := srv.Inject(zktest.Hold().Op(zktest.OpCreate).Session(b.ID()))
		got := make(chan error, 1)
		go func() {
			_, err := recipe.Try(context.Background(), b, queue())
			got <- err
		}()
		synctest.Wait() // it has seen an empty line, and its create is held
		holder := enter(t, queue(), a)
		fault.Remove()
		require.ErrorIs(t, <-got, recipe.ErrBusy)
		require.NoError(t, holder.Wait(within(t, soon)))
		require.Len(t, srv.Children("/l"), 1)
	})
}

func TestADirectoryOfAnotherKindIsAConflict(t *testing.T) {
	bubble(t, func(t *testing.T, srv *zktest.Server) {
		s := open(t, srv)
		require.NoError(t, srv.Create("/l", nil))
		_, err := s.Create(within(t, soon), "/l/_c_x-__READ__0000000000", nil, session.Ephemeral, session.WorldACL())
		require.NoError(t, err)
		for name, call := range map[string]func() error{
			"enter": func() error { _, err := recipe.Enter(within(t, soon), s, queue()); return err },
			"try":   func() error { _, err := recipe.Try(within(t, soon), s, queue()); return err },
		} {
			err := call()
			require.ErrorIs(t, err, recipe.ErrConflict, name)
			require.ErrorContains(t, err, "/l is the directory of a read lock (_c_x-__READ__0000000000), not of a mutex", name)
			synctest.Wait()
			require.Len(t, srv.Children("/l"), 1, "nothing is left behind")
		}
	})
}

func TestAnEphemeralDirectoryIsAConflict(t *testing.T) {
	bubble(t, func(t *testing.T, srv *zktest.Server) {
		s := open(t, srv)
		_, err := s.Create(within(t, soon), "/l", nil, session.Ephemeral, session.WorldACL())
		require.NoError(t, err)
		_, err = recipe.Enter(within(t, soon), s, queue())
		require.ErrorIs(t, err, recipe.ErrConflict)
		require.ErrorIs(t, err, zk.ErrNoChildrenForEphemerals)
		deeper := queue()
		deeper.Dir = "/l/deeper"
		_, err = recipe.Enter(within(t, soon), s, deeper)
		require.ErrorIs(t, err, recipe.ErrConflict)
	})
}

func TestGuardIsSilentAfterLeaveAndAboutOtherZnodes(t *testing.T) {
	bubble(t, func(t *testing.T, srv *zktest.Server) {
		s := open(t, srv)
		ticket := enter(t, queue(), s)
		require.NoError(t, ticket.Wait(within(t, soon)))
		ticket.Guard(func(error) { t.Error("told") })
		time.Sleep(time.Second)
		ticket.Missing("/l/another")
		require.NoError(t, ticket.Leave(within(t, soon)))
		ticket.Missing(ticket.Nodes()[0])
		time.Sleep(time.Second)
		require.Zero(t, srv.WatchCount())
	})
}

// A neighbour must not be able to block a lock for ever with one create: a contender of another kind is a conflict for later ones
// only while a session owns it.
func TestALeftoverOfAnotherKindIsIgnored(t *testing.T) {
	for _, name := range []string{"_c_x-__READ__0000000000", "_c_x-lease-1-0000000000"} {
		bubble(t, func(t *testing.T, srv *zktest.Server) {
			s := open(t, srv)
			require.NoError(t, srv.Create("/l", nil))
			require.NoError(t, srv.Create("/l/"+name, nil))
			first := enter(t, queue(), s)
			require.NoError(t, first.Wait(within(t, soon)))
			require.NoError(t, first.Leave(within(t, soon)))
			tried, err := recipe.Try(within(t, soon), s, queue())
			require.NoError(t, err)
			require.NoError(t, tried.Leave(within(t, soon)))
			require.Len(t, srv.Children("/l"), 1)
		})
	}
}

func TestAContenderOfAnotherKindThatCameLaterRefusesNoContender(t *testing.T) {
	bubble(t, func(t *testing.T, srv *zktest.Server) {
		a, b := open(t, srv), open(t, srv)
		require.NoError(t, srv.Create("/l", nil))
		made := srv.Inject(zktest.HoldReply().Op(zktest.OpCreate).Session(b.ID()).Once())
		lists := srv.Inject(zktest.Hold().Op(zktest.OpGetChildren2).Session(b.ID()).Once())
		entered := make(chan error, 1)
		go func() {
			ticket, err := recipe.Enter(context.Background(), b, queue())
			if err == nil {
				err = ticket.Wait(context.Background())
			}
			entered <- err
		}()
		<-made.Hit()
		synctest.Wait() // the create has been carried out
		_, err := a.Create(within(t, soon), "/l/_c_x-__READ__0000000000", nil, session.Ephemeral, session.WorldACL())
		require.NoError(t, err)
		lists.Remove()
		made.Remove()
		require.NoError(t, <-entered)
	})
}

func TestLeaveGoesOnInTheBackgroundWhenItsContextEnds(t *testing.T) {
	bubble(t, func(t *testing.T, srv *zktest.Server) {
		s := open(t, srv)
		ticket := enter(t, queue(), s)
		srv.Leader().Down()
		synctest.Wait()
		err := ticket.Leave(within(t, time.Second))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		srv.Leader().Up()
		time.Sleep(3 * time.Second)
		require.Empty(t, srv.Children("/l"))
		require.NoError(t, s.Err())
	})
}

// Every Lock allocates a ticket.
func TestATicketTakesOnePieceOfTheHeap(t *testing.T) {
	var ticket *recipe.Ticket
	q := queue()
	require.InDelta(t, 1, testing.AllocsPerRun(100, func() { ticket = recipe.NewTicket(q) }), 0)
	require.NotNil(t, ticket)
}
