package session_test

import (
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/internal/session"
	"github.com/zklock/locker/zktest"
	"github.com/zklock/locker/zktest/fault"
)

func TestEveryCodeOfAServersIsSaidInWords(t *testing.T) {
	bubble(t, func(t *testing.T, srv *zktest.Server) {
		s := open(t, srv)
		for _, code := range []fault.Code{-1, -2, -3, -4, -5, -6, -7, -8, -12, -13, -14, -100, -101, -102, -103, -108, -110,
			-111, -113, -114, -119, -120, -121, -122, -123, -125, -127} {
			srv.Inject(fault.Answer(code).Op(fault.OpExists).Once())
			_, err := s.Exists(within(t, soon), "/x")
			require.Error(t, err)
			require.NotContains(t, err.Error(), "code", "%d", code)
		}
		srv.Inject(fault.Answer(-125).Op(fault.OpCreate).Once())
		_, err := s.Create(within(t, soon), "/x", nil, session.Persistent, everybody)
		require.ErrorContains(t, err, "quota exceeded")
		srv.Inject(fault.Answer(-999).Op(fault.OpExists).Once())
		_, err = s.Exists(within(t, soon), "/x")
		require.ErrorContains(t, err, "server's error code -999")
	})
}

// A server that enforces authentication answers the handshake, refuses the first request, and closes the connection.
func TestEnforcedAuthenticationIsTheEndOfTheSessionAndSaid(t *testing.T) {
	bubble(t, func(t *testing.T, srv *zktest.Server) {
		s := open(t, srv)
		srv.Inject(fault.Answer(-124))
		_, err := s.Exists(within(t, soon), "/x")
		require.ErrorIs(t, err, session.ErrAuth)
		require.ErrorContains(t, err, "enforces authentication")
		require.ErrorIs(t, s.Err(), session.ErrAuth)
	})
}

func TestAServerThatClosesTheConnectionIsToldApart(t *testing.T) {
	for name, c := range map[string]struct {
		script func(c *peerConn)
		want   string
	}{
		"at once":              {func(*peerConn) {}, "without an answer to the handshake: no quorum, too many clients, or a port that wants TLS?"},
		"behind the handshake": {func(c *peerConn) { c.hello(); c.welcome(8*time.Second, 77); c.read() }, "closed the connection right after the handshake, before any answer: is authentication enforced?"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPeer(t, c.script)
				s, err := session.Start("a:1", session.Config{Timeout: 8 * time.Second, Dial: p.dial})
				require.NoError(t, err)
				defer s.Close()
				_, err = s.Exists(within(t, 3*time.Second), "/x")
				require.ErrorContains(t, err, c.want)
			})
		})
	}
}

// Up to ZooKeeper 3.8 events have no zxid, so after one the session does not know how far its server was. The next server may be
// behind it without refusing the session: so a sync precedes the first reads there.
func TestReadsBehindAReconnectAreNotOlderThanAnEvent(t *testing.T) {
	for _, version := range []zktest.Version{zktest.Version38, zktest.Version39} {
		t.Run(string(version), func(t *testing.T) {
			bubble(t, func(t *testing.T, srv *zktest.Server) {
				lagging, err := srv.Follower()
				require.NoError(t, err)
				var behind bool
				s := open(t, srv, func(c *session.Config) {
					c.Dial = func(network, addr string, d time.Duration) (net.Conn, error) {
						if behind {
							return lagging.Dial(network, addr, d)
						}
						return srv.Dial(network, addr, d)
					}
				})
				ctx := within(t, soon)
				_, err = s.Create(ctx, "/data", []byte("old"), session.Persistent, everybody)
				require.NoError(t, err)
				_, err = s.Create(ctx, "/lock", nil, session.Persistent, everybody)
				require.NoError(t, err)
				w, err := s.Watch(ctx, "/lock")
				require.NoError(t, err)

				lagging.Lag(5)
				require.NoError(t, srv.SetData("/data", []byte("new"))) // the holder before us writes,
				require.NoError(t, srv.Delete("/lock"))                 // and releases
				eventually(t, w.Fired(), "the event")
				syncs := srv.Requests()[fault.OpSync]
				behind = true
				srv.Leader().DropConnections()
				data, _, err := s.Get(ctx, "/data")
				if err != nil && version == zktest.Version39 {
					return // the lagging server refuses the session, as it should
				}
				require.NoError(t, err)
				require.Equal(t, "new", string(data))
				require.Equal(t, syncs+1, srv.Requests()[fault.OpSync])

				srv.DropConnections()
				_, _, err = s.Get(ctx, "/data")
				require.NoError(t, err)
				require.Equal(t, syncs+1, srv.Requests()[fault.OpSync], "a reply has told the zxid: no other sync")
			}, zktest.WithVersion(version))
		})
	}
}
