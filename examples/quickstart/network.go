package main

import (
	"errors"
	"net"
	"sync"
	"time"
)

// network is one worker's access to the ensemble, with a switch: after cut, all its connections are
// closed and it gets no new ones. To the ensemble that looks like a crash: the client falls silent
// without having closed its session, so its ephemeral znodes, its contender among them, exist until
// the session expires.
type network struct {
	mu    sync.Mutex // guards the fields below
	down  bool
	conns []net.Conn
}

var errCut = errors.New("network is cut")

// dial is a session.Dialer.
func (n *network) dial(proto, addr string, timeout time.Duration) (net.Conn, error) {
	conn, err := net.DialTimeout(proto, addr, timeout)
	if err != nil {
		return nil, err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.down {
		return nil, errors.Join(errCut, conn.Close())
	}
	n.conns = append(n.conns, conn)
	return conn, nil
}

// cut ends all connections, for good. It may be called only once.
func (n *network) cut() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.down = true
	var err error
	for _, conn := range n.conns {
		if e := conn.Close(); !errors.Is(e, net.ErrClosed) {
			// an earlier connection may be gone already
			err = errors.Join(err, e)
		}
	}
	return err
}
