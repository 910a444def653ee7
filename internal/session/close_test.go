package session_test

import (
	"context"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/internal/session"
	"github.com/zklock/locker/zktest"
	"github.com/zklock/locker/zktest/fault"
)

// These tests run in synctest bubbles, which fail when a goroutine is left behind.

// closeBound is the bound in the contract of Close, and a little more.
const closeBound = 2200 * time.Millisecond

func requireCloses(t *testing.T, s *session.Session) {
	t.Helper()
	start := time.Now()
	require.NoError(t, s.Close())
	require.LessOrEqual(t, time.Since(start), closeBound)
	require.Equal(t, session.Over, s.State())
	require.Error(t, s.Err())
	start = time.Now()
	require.NoError(t, s.Close(), "again")
	require.Zero(t, time.Since(start))
}

// closingStates are the states in which a session may be closed.
var closingStates = map[string]func(t *testing.T, srv *zktest.Server) *session.Session{
	"refused": func(t *testing.T, srv *zktest.Server) *session.Session {
		srv.Inject(fault.Refuse())
		return start(t, srv.Dial)
	},
	"just begun": func(t *testing.T, srv *zktest.Server) *session.Session {
		return start(t, srv.Dial)
	},
	"handshaking with a silent server": func(t *testing.T, srv *zktest.Server) *session.Session {
		srv.Inject(fault.DropRequest().Op(fault.OpConnect))
		s := start(t, srv.Dial)
		synctest.Wait()
		require.Equal(t, session.Connecting, s.State())
		return s
	},
	"handshaking over a frozen link": func(t *testing.T, srv *zktest.Server) *session.Session {
		srv.Inject(fault.Freeze())
		s := start(t, srv.Dial)
		synctest.Wait()
		return s
	},
	"disconnected": func(t *testing.T, srv *zktest.Server) *session.Session {
		s := open(t, srv)
		srv.Leader().Down()
		synctest.Wait()
		require.Equal(t, session.Disconnected, s.State())
		return s
	},
	"in the pause before a dial": func(t *testing.T, srv *zktest.Server) *session.Session {
		srv.Inject(fault.Refuse())
		s := start(t, srv.Dial)
		time.Sleep(3333 * time.Millisecond)
		return s
	},
	"re-attaching to a silent server": func(t *testing.T, srv *zktest.Server) *session.Session {
		s := open(t, srv)
		srv.Inject(fault.DropRequest().Op(fault.OpConnect))
		srv.DropConnections()
		time.Sleep(100 * time.Millisecond)
		return s
	},
	"frozen": func(t *testing.T, srv *zktest.Server) *session.Session {
		s := open(t, srv)
		srv.Inject(fault.Freeze())
		return s
	},
	"no replies": func(t *testing.T, srv *zktest.Server) *session.Session {
		s := open(t, srv)
		srv.Inject(fault.FreezeReplies())
		return s
	},
	"no requests": func(t *testing.T, srv *zktest.Server) *session.Session {
		s := open(t, srv)
		srv.Inject(fault.FreezeRequests())
		return s
	},
	"with requests that are never answered": func(t *testing.T,
		srv *zktest.Server) *session.Session {
		s := open(t, srv)
		srv.Inject(fault.Hold().Op(fault.OpSetData))
		for range 3000 { // more than the driver's queues hold
			s.Go(func(ctx context.Context) { _, _ = s.Set(ctx, "/", nil, -1) })
		}
		synctest.Wait()
		return s
	},
	"expired": func(t *testing.T, srv *zktest.Server) *session.Session {
		s := open(t, srv)
		require.NoError(t, srv.Expire(s.ID()))
		srv.DropConnections()
		<-s.Done()
		return s
	},
	"refused credentials": func(t *testing.T, srv *zktest.Server) *session.Session {
		s, err := session.Start(srv.Addr(),
			session.Config{Dial: srv.Dial, Auth: []session.Auth{{Scheme: "nonesuch"}}})
		require.NoError(t, err)
		<-s.Done()
		return s
	},
}

func TestCloseIsBoundedInEveryState(t *testing.T) {
	for name, begin := range closingStates {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, srv *zktest.Server) {
				s := begin(t, srv)
				requireCloses(t, s)
				srv.Leader().Up() // if it was down: without a leader sessions last
				time.Sleep(time.Minute)
				require.Empty(t, srv.Sessions(), "no session is kept alive by anything")
				require.Zero(t, srv.Requests()[fault.OpSetData], "what was held is void")
			})
		})
	}
}

// start starts a session without waiting for its connection. The cleanup of the test closes it.
func start(t *testing.T, dial session.Dialer) *session.Session {
	t.Helper()
	s, err := session.Start("a:1", session.Config{Dial: dial})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

func TestCloseReachesAServerWhoseRepliesDoNotArrive(t *testing.T) {
	bubble(t, func(t *testing.T, srv *zktest.Server) {
		s := open(t, srv)
		_, err := s.Create(within(t, soon), "/e", nil, session.Ephemeral, session.WorldACL())
		require.NoError(t, err)
		srv.Inject(fault.FreezeReplies())
		requireCloses(t, s)
		require.Empty(t, srv.Sessions(),
			"the request to end it has arrived, so that nobody has to wait for the timeout")
	})
}

func TestCloseFromManyGoroutinesAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, srv *zktest.Server) {
		for range 20 {
			s := open(t, srv)
			var wg sync.WaitGroup
			for range 10 {
				wg.Go(func() { require.NoError(t, s.Close()) })
				wg.Go(func() {
					_, _ = s.Create(context.Background(), "/e", nil, session.Ephemeral,
						session.WorldACL())
				})
				wg.Go(func() { _, _ = s.Watch(context.Background(), "/e") })
			}
			wg.Wait()
			require.Equal(t, session.ErrClosed, s.Err())
		}
		require.Empty(t, srv.Sessions())
	})
}

func TestCloseDoesNotWaitForADialerThatTakesItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := session.Start("a:1",
			session.Config{Timeout: time.Minute,
				Dial: func(_, _ string, timeout time.Duration) (net.Conn, error) {
					time.Sleep(timeout) // a server that drops what is sent to it
					return nil, context.DeadlineExceeded
				}})
		require.NoError(t, err)
		time.Sleep(10 * time.Millisecond)
		requireCloses(t, s)
		time.Sleep(time.Minute) // the dialer cannot be stopped, and returns later
	})
}

// A session that was never granted has no key. To ask a server for it would open one.
func TestNoSessionIsOpenedToCloseNone(t *testing.T) {
	err := session.CloseByKey(t.Context(), "a:1", session.Config{}, session.Key{}, "")
	require.ErrorIs(t, err, session.ErrConfig)
}

// The driver's loop ends when its connection does, whether or not a server has answered its close.
func TestASessionWhoseCloseGotLostIsClosedAgain(t *testing.T) {
	bubble(t, func(t *testing.T, srv *zktest.Server) {
		s := open(t, srv)
		ephemeral(t, s)
		srv.Inject(fault.CloseBefore().Op(fault.OpCloseSession).Times(1))
		requireCloses(t, s)
		require.NoError(t, s.CloseGivenUp(within(t, soon), ""))
		require.Empty(t, srv.Sessions(), "so that nobody has to wait for the timeout")
	})
}

func TestAServersAnswerToTheCloseIsNotAskedForAgain(t *testing.T) {
	bubble(t, func(t *testing.T, srv *zktest.Server) {
		s := open(t, srv)
		ephemeral(t, s)
		requireCloses(t, s)
		srv.Inject(fault.Refuse())
		require.NoError(t, s.CloseGivenUp(within(t, soon), ""))
	})
}

// A server that opens a new session instead of resuming one says nothing about the old one.
func TestASessionIsNotOverBecauseAServerAnswersWithAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPeer(t, func(c *peerConn) {
			if c.hello() {
				c.welcome(10*time.Second, 0x4e)
				c.silence()
			}
		})
		err := session.CloseByKey(within(t, 3*time.Second), "a:1", session.Config{Dial: p.dial},
			session.Key{ID: 0x4d}, "")
		require.ErrorContains(t, err, "session 0x4e in place of 0x4d")
	})
}

func TestASessionThatTheEnsembleDoesNotKnowIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPeer(t, func(c *peerConn) {
			if c.hello() {
				c.welcome(0, 0)
				c.silence()
			}
		})
		key := session.Key{ID: 0x4d}
		require.NoError(t,
			session.CloseByKey(within(t, soon), "a:1", session.Config{Dial: p.dial}, key, ""))
		require.Equal(t, 1, p.count())
	})
}
