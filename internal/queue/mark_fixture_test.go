package queue_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/internal/queue"
	"github.com/zklock/locker/internal/session"
	"github.com/zklock/locker/zktest"
	"github.com/zklock/locker/zktest/fault"
)

// placed is a ticket in line, with its own session, and its call of Wait.
type placed struct {
	*queue.Ticket
	node string
	done <-chan error
	s    *session.Session
}

// line enters n tickets, one behind the other. The first holds; the others wait.
func line(t *testing.T, srv *zktest.Server, n int, kind func(i int) queue.Queue, auth ...session.Auth) []placed {
	t.Helper()
	return lineIn(t, n, kind, func() *session.Session { return open(t, srv, auth...) })
}

// lineIn is line, with sessions that in returns.
func lineIn(t *testing.T, n int, kind func(i int) queue.Queue, in func() *session.Session) []placed {
	t.Helper()
	var all []placed
	for i := range n {
		s := in()
		ticket := enter(t, kind(i), s)
		p := placed{ticket, ticket.Nodes()[0], wait(ticket, within(t, time.Hour)), s}
		if i == 0 {
			require.NoError(t, <-p.done)
		} else {
			pending(t, p.done)
		}
		all = append(all, p)
	}
	return all
}

func mutex(int) queue.Queue { return aMutex() }

func lists(srv *zktest.Server) int { return srv.Requests()[fault.OpGetChildren2] }

// holdsAtOnce requires that p holds before any time passes, after the given number of further lists.
func holdsAtOnce(t *testing.T, srv *zktest.Server, p placed, before, more int) {
	t.Helper()
	at := time.Now()
	require.NoError(t, <-p.done)
	require.Equal(t, at, time.Now())
	require.Equal(t, more, lists(srv)-before, "lists")
}

func requireLeft(t *testing.T, srv *zktest.Server, all []placed) {
	t.Helper()
	synctest.Wait()
	require.Empty(t, srv.Children("/l"))
	require.Zero(t, srv.WatchCount(), "%v", srv.Watches())
	for _, p := range all {
		if p.s.Err() == nil {
			require.Zero(t, p.s.EphemeralBytes())
		}
	}
}

// marksWatched counts the watches on marks.
func marksWatched(srv *zktest.Server) (n int) {
	for _, w := range srv.Watches() {
		if strings.HasSuffix(w.Path, "-released") {
			n++
		}
	}
	return n
}
