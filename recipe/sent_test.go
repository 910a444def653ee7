package recipe_test

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/recipe"
	"github.com/zklock/locker/session"
	"github.com/zklock/locker/zktest"
)

// wire records what a session writes.
type wire struct {
	mu  sync.Mutex
	all bytes.Buffer
}

func (w *wire) has(text string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return bytes.Contains(w.all.Bytes(), []byte(text))
}

func (w *wire) forget() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.all.Reset()
}

type recordedConn struct {
	net.Conn
	w *wire
}

func (c recordedConn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	c.w.all.Write(b[:n])
	return n, err
}

func openRecorded(t *testing.T, srv *zktest.Server) (*session.Session, *wire) {
	t.Helper()
	w := &wire{}
	s, err := session.Open(within(t, soon), srv.Addr(), session.Config{Dial: func(network, addr string, timeout time.Duration) (net.Conn, error) {
		c, err := srv.Dial(network, addr, timeout)
		return recordedConn{c, w}, err
	}})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s, w
}

// A program whose call gives up, and which then exits at once, leaves no contender behind until its session ends.
func TestTheDeletionOfACallThatGivesUpIsWrittenBeforeItReturns(t *testing.T) {
	other := queue()
	other.Dir = "/m"
	many := []recipe.Queue{queue()}
	for i := range 100 { // more than one write of the connection contains
		q := queue()
		q.Dir = fmt.Sprintf("/m%d%s", i, strings.Repeat("-", 10*(100-i))) // the last ones may be written before longer ones
		many = append(many, q)
	}
	for name, queues := range map[string][]recipe.Queue{"one": {queue()}, "several": {queue(), other}, "many": many} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, srv *zktest.Server) {
				enter(t, queue(), open(t, srv))
				for range 20 {
					s, w := openRecorded(t, srv)
					ticket, err := recipe.Enter(within(t, soon), s, queues...)
					require.NoError(t, err)
					ctx, cancel := context.WithTimeout(context.Background(), time.Second)
					require.ErrorIs(t, ticket.Wait(ctx), context.DeadlineExceeded)
					cancel()
					synctest.Wait()
					w.forget()
					require.ErrorIs(t, ticket.Leave(ctx), context.DeadlineExceeded)
					for _, node := range ticket.Nodes() {
						require.True(t, w.has(node), "the deletion of %s", node)
					}
				}
				synctest.Wait()
				require.Len(t, srv.Children("/l"), 1)
			})
		})
	}
}

// clog freezes the server and gives s more reads than a connection has outstanding. free ends both.
func clog(t *testing.T, srv *zktest.Server, s *session.Session) (free func()) {
	t.Helper()
	frozen := srv.Inject(zktest.Freeze())
	ctx, cancel := context.WithCancel(context.Background())
	var reads sync.WaitGroup
	for range 300 {
		reads.Go(func() {
			_, err := s.Exists(ctx, "/l")
			require.Error(t, err)
		})
	}
	synctest.Wait()
	return func() {
		cancel()
		reads.Wait()
		frozen.Remove()
	}
}

// A call that gives up does not wait for a silent server's answers to other calls.
func TestACallThatGivesUpDoesNotWaitForTheAnswersToOthers(t *testing.T) {
	bubble(t, func(t *testing.T, srv *zktest.Server) {
		s := open(t, srv)
		ticket := enter(t, queue(), s)
		free := clog(t, srv, s)
		gone, give := context.WithCancel(context.Background())
		give()
		began := time.Now()
		require.ErrorIs(t, ticket.Leave(gone), context.Canceled)
		require.LessOrEqual(t, time.Since(began), 100*time.Millisecond)
		free()
		require.NoError(t, srv.Await(within(t, soon), func() bool { return len(srv.Children("/l")) == 0 }))
	})
}

// A connection that takes no bytes is waited for once, however many calls give up.
func TestAConnectionThatHasNotTakenADeletionIsNotWaitedForAgain(t *testing.T) {
	bubble(t, func(t *testing.T, srv *zktest.Server) {
		s := open(t, srv)
		other := queue()
		other.Dir = "/m"
		first, second := enter(t, queue(), s), enter(t, other, s)
		free := clog(t, srv, s)
		gone, give := context.WithCancel(context.Background())
		give()
		require.ErrorIs(t, first.Leave(gone), context.Canceled)
		began := time.Now()
		require.ErrorIs(t, second.Leave(gone), context.Canceled)
		require.Zero(t, time.Since(began))
		free()
		require.NoError(t, srv.Await(within(t, soon), func() bool { return len(srv.Children("/l"))+len(srv.Children("/m")) == 0 }))
	})
}

// When the session ends, its znodes are deleted with it: no deletion has to be sent.
func TestACallThatGivesUpDoesNotWaitForASessionThatIsClosed(t *testing.T) {
	bubble(t, func(t *testing.T, srv *zktest.Server) {
		s := open(t, srv)
		ticket := enter(t, queue(), s)
		free := clog(t, srv, s)
		gone, give := context.WithCancel(context.Background())
		give()
		began := time.Now()
		time.AfterFunc(time.Millisecond, func() { require.NoError(t, s.Close()) })
		require.Error(t, ticket.Leave(gone))
		require.Equal(t, time.Millisecond, time.Since(began))
		free()
	})
}
