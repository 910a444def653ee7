package session_test

import (
	"context"
	"errors"
	"net"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/internal/session"
	"github.com/zklock/locker/zktest"
	"github.com/zklock/locker/zktest/fault"
)

// writes are the requests that a follower passes on to its leader.
var writes = []fault.Op{fault.OpCreate, fault.OpDelete, fault.OpSetData, fault.OpMulti,
	fault.OpSync}

// Scenario 56: a handshake that takes longer than a sixth of the timeout, on every server, as after
// an ensemble's restart.
func TestAServerWhoseHandshakesAreSlowIsWaitedFor(t *testing.T) {
	for _, slow := range []time.Duration{2 * time.Second, 4 * time.Second} {
		t.Run(slow.String(), func(t *testing.T) {
			bubble(t, func(t *testing.T, srv *zktest.Server) {
				srv.Inject(fault.DelayReply(slow).Op(fault.OpConnect))
				began := time.Now()
				s := openAt(t, "a:1,b:1,c:1", func(c *session.Config) { c.Dial = srv.Dial })
				t.Logf("connected after %v, %d attempts", time.Since(began),
					srv.Requests()[fault.OpConnect])
				require.Less(t, srv.Requests()[fault.OpConnect], 11,
					"attempts, each of which may leave a session behind")
				_, err := s.Create(within(t, soon), "/x", nil, session.Ephemeral, everybody)
				require.NoError(t, err)
			})
		})
	}
}

func TestASlowNameLookUpOrDialIsWaitedFor(t *testing.T) {
	bubble(t, func(t *testing.T, srv *zktest.Server) {
		attempts := 0
		s := open(t, srv, func(c *session.Config) {
			c.Dial = func(network, addr string, timeout time.Duration) (net.Conn, error) {
				attempts++
				const takes = 3 * time.Second
				time.Sleep(min(takes, timeout))
				if timeout < takes {
					return nil, os.ErrDeadlineExceeded
				}
				return srv.Dial(network, addr, timeout)
			}
		})
		require.NoError(t, s.Err())
		require.Equal(t, 2, attempts)
	})
}

// A holder whose connection breaks reconnects although handshakes are slow. But it tries all
// servers: in the first round each of them has a sixth of the timeout.
func TestAHolderGetsBackThroughASlowHandshake(t *testing.T) {
	bubble(t, func(t *testing.T, srv *zktest.Server) {
		s := open(t, srv)
		ctx := within(t, time.Hour)
		defer retain(t, s, ephemeral(t, s)).Release()
		time.Sleep(5 * time.Second)
		srv.Inject(fault.DelayReply(2 * time.Second).Op(fault.OpConnect))
		srv.Inject(fault.CloseBefore().Op(fault.OpExists).Once())
		_, err := s.Exists(ctx, "/")
		require.NoError(t, err)
		time.Sleep(30 * time.Second)
		require.NoError(t, s.Err())
	})
}

// Scenario 56: writes take longer than a quarter of the timeout, on every server. Changing the
// server does not help; the session waits for the writes, and its holds survive.
func TestWritesThatAreSlowEverywhereAreWaitedFor(t *testing.T) {
	bubble(t, func(t *testing.T, srv *zktest.Server) {
		s := openAt(t, "a:1,b:1,c:1", func(c *session.Config) { c.Dial = srv.Dial })
		ctx := within(t, time.Hour)
		defer retain(t, s, ephemeral(t, s)).Release()
		time.Sleep(3 * time.Second)
		srv.Inject(fault.DelayReply(3 * time.Second).Op(writes...))
		time.Sleep(5 * time.Minute)
		require.NoError(t, s.Err(), "the hold lasts")
		t.Logf("%d connections in five minutes", srv.Requests()[fault.OpConnect])

		began := time.Now()
		_, err := s.Create(ctx, "/x", nil, session.Ephemeral, everybody)
		require.True(t, err == nil || errors.Is(err, session.ErrUnknownOutcome), "%v", err)
		require.Less(t, time.Since(began), 10*time.Second)
	})
}

// A session without a hold waits as well; when its writes are fast again, its patience is soon as
// short as before.
func TestPatienceGrowsWithSilenceAndEndsWithAPromptAnswer(t *testing.T) {
	bubble(t, func(t *testing.T, srv *zktest.Server) {
		s := open(t, srv)
		ctx := within(t, time.Hour)
		slow := srv.Inject(fault.DelayReply(4 * time.Second).Op(writes...))
		var unknown int
		for {
			err := s.Delete(ctx, "/x", -1)
			if !errors.Is(err, session.ErrUnknownOutcome) {
				require.ErrorContains(t, err, "node does not exist")
				break
			}
			unknown++
		}
		require.Equal(t, 1, unknown, "given up once")
		slow.Remove()
		require.ErrorContains(t, s.Delete(ctx, "/x", -1), "node does not exist")

		freeze := srv.Inject(fault.FreezeReplies())
		began := time.Now()
		require.ErrorIs(t, s.Delete(ctx, "/x", -1), session.ErrUnknownOutcome)
		require.InDelta(t, float64(session.Patience(10*time.Second)), float64(time.Since(began)),
			float64(200*time.Millisecond))
		freeze.Remove()
	})
}

// A cancelled call returns context.Canceled: the deadline of the attempt at a server is not the
// caller's.
func TestACancelledCallIsNotLate(t *testing.T) {
	for name, dial := range map[string]session.Dialer{
		"dialer": func(string, string, time.Duration) (net.Conn, error) {
			return nil, context.DeadlineExceeded
		},
		"driver": nil, // 192.0.2.1 never answers
	} {
		t.Run(name, func(t *testing.T) {
			s, err := session.Start("192.0.2.1:2181",
				session.Config{Timeout: time.Second, Dial: dial})
			require.NoError(t, err)
			defer s.Close()
			ctx, cancel := context.WithCancel(context.Background())
			time.AfterFunc(400*time.Millisecond, cancel)
			_, err = s.Exists(ctx, "/")
			require.ErrorIs(t, err, context.Canceled)
			require.NotErrorIs(t, err, context.DeadlineExceeded)
		})
	}
}

// A server that reads nothing any more is given up within one patience, also when a request blocks
// meanwhile, since it finds buffers full.
func TestAWriteThatBlocksDoesNotProlongTheWaitForASilentServer(t *testing.T) {
	bubble(t, func(t *testing.T, srv *zktest.Server) {
		gone := make(chan time.Time, 10)
		s := open(t, srv, func(c *session.Config) {
			c.Timeout = 20 * time.Second // pings go every second, and are answered within five
			c.OnState = func(ch session.Change) {
				if ch.State != session.Connected {
					gone <- time.Now()
				}
			}
		})
		node := ephemeral(t, s)
		retain(t, s, node)
		time.Sleep(time.Minute)
		srv.Inject(fault.Freeze())
		frozen := time.Now()
		for range 20 {
			// the first has no answer when the one that finds the connection's buffer full blocks
			time.Sleep(200 * time.Millisecond)
			s.Go(func(ctx context.Context) { _, _ = s.Set(ctx, node, make([]byte, 15<<10), -1) })
		}
		require.Less(t, (<-gone).Sub(frozen), 7*time.Second)
		require.NoError(t, s.Err())
		srv.DropConnections()
	})
}
