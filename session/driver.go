package session

import (
	"net"
	"time"

	"github.com/go-zookeeper/zk"
)

// driverBuffer is the size of the driver's two buffers. All that goes through them are handshakes and headers.
const driverBuffer = 4 << 10

// connectDriver starts the driver: one zk.Conn for this one session.
func (s *Session) connectDriver() error {
	s.mu.Lock() // the driver dials at once; dial waits until conn is set
	defer s.mu.Unlock()
	conn, events, err := zk.Connect([]string{"ensemble"}, s.cfg.timeout,
		zk.WithDialer(s.dial), zk.WithHostProvider(provider{s}), zk.WithLogger(quiet{}), zk.WithLogInfo(false),
		zk.WithMaxBufferSize(driverBuffer), zk.WithMaxConnBufferSize(driverBuffer))
	if err != nil {
		return err
	}
	s.conn = conn
	go func() { // the driver closes events when its loop has ended; shutdown waits for it
		defer close(s.drained)
		for range events { //nolint:revive // what they say, the links say better
		}
	}()
	return nil
}

// dial is the driver's dialer: hosts chooses the server, and the driver gets it inside a link.
func (s *Session) dial(string, string, time.Duration) (net.Conn, error) {
	conn, server, limit, err := s.hosts.dial()
	if err != nil {
		return nil, err
	}
	l := newLink(s, conn, server, limit)
	s.mu.Lock()
	over := s.Err() != nil
	if !over {
		s.dialled = l
	}
	s.mu.Unlock()
	if over { // nobody would cut short the handshake any more
		l.fail(errStopped)
		return nil, errStopped
	}
	return l, nil
}

// provider is the driver's host list: a single name, since hosts knows better. The driver looks whether it was closed
// only when its list begins anew, so from the end of the session on every call says so.
type provider struct{ s *Session }

func (p provider) Init([]string) error { return nil }
func (p provider) Len() int            { return 1 }
func (p provider) Connected()          {}
func (p provider) Next() (server string, retryStart bool) {
	return "ensemble:2181", p.s.Err() != nil
}

// quiet is the driver's logger. What it would say, the session knows and says better.
type quiet struct{}

func (quiet) Printf(string, ...any) {}
