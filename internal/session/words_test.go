package session_test

import (
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/internal/session"
	"github.com/zklock/locker/zktest"
	"github.com/zklock/locker/zktest/fault"
)

// Up to ZooKeeper 3.8 events have no zxid, so after one the session does not know how far its
// server was. The next server may be behind it without refusing the session: so a sync precedes the
// first reads there.
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
				// the holder before us writes,
				require.NoError(t, srv.SetData("/data", []byte("new")))
				require.NoError(t, srv.Delete("/lock")) // and releases
				eventually(t, session.Fired(w), "the event")
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
				require.Equal(t, syncs+1, srv.Requests()[fault.OpSync],
					"a reply has told the zxid: no other sync")
			}, zktest.WithVersion(version))
		})
	}
}
