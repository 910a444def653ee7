package session_test

import (
	"errors"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/internal/session"
	"github.com/zklock/locker/zktest"
)

// lateConn is a connection on which a write fails after the reader has received bytes and before it has looked at them.
type lateConn struct {
	net.Conn
	late *atomic.Bool
	gate chan struct{}
}

func (c *lateConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if c.late.Load() {
		<-c.gate
	}
	return n, err
}

func (c *lateConn) Write(b []byte) (int, error) {
	if c.late.Load() {
		return 0, errors.New("broken pipe")
	}
	return c.Conn.Write(b)
}

// A notification that is read from a connection which has failed meanwhile fires no watch. So the next connection has to report
// the change, whether the notification has a zxid (3.9) or not.
func TestAnEventThatIsReadFromABrokenConnectionIsToldByTheNext(t *testing.T) {
	for name, version := range map[string]zktest.Version{"3.8": zktest.Version38, "3.9": zktest.Version39} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, srv *zktest.Server) {
				require.NoError(t, srv.Create("/dir", nil))
				late, gate := new(atomic.Bool), make(chan struct{})
				s := open(t, srv, func(c *session.Config) {
					c.Dial = func(network, addr string, timeout time.Duration) (net.Conn, error) {
						conn, err := srv.Dial(network, addr, timeout)
						if err != nil || late.Load() {
							return conn, err
						}
						return &lateConn{conn, late, gate}, nil
					}
				})
				children, _, _, err := s.WatchChildren(t.Context(), "/dir")
				require.NoError(t, err)
				data, err := s.Watch(t.Context(), "/dir")
				require.NoError(t, err)
				synctest.Wait()
				late.Store(true)
				require.NoError(t, srv.Create("/dir/child", nil))
				require.NoError(t, srv.SetData("/dir", []byte("set")))
				synctest.Wait() // the reader has both
				asked := make(chan error, 1)
				go func() {
					_, err := s.Exists(t.Context(), "/dir")
					asked <- err
				}()
				synctest.Wait()
				require.Equal(t, session.Disconnected, s.State())
				require.False(t, fired(children))
				close(gate)
				require.NoError(t, <-asked)
				time.Sleep(time.Minute)
				require.True(t, fired(children), "nobody tells of the child")
				require.Equal(t, zk.EventNodeChildrenChanged, children.Event())
				require.True(t, fired(data), "nobody tells of the data")
				require.Equal(t, zk.EventNodeDataChanged, data.Event())
				requireNoWatches(t, srv, s)
			}, zktest.WithVersion(version))
		})
	}
}
