package main

import (
	"errors"
	"net"
	"sync"
	"time"
)

// network is one worker's way to the ensemble, with a switch: after cut, all its connections are gone and it gets no
// new ones. For the ensemble that is what a crash looks like: the client falls silent without having closed its
// session, so that its ephemeral znodes, its place in the lock's line among them, stand until the session expires.
type network struct {
	mu    sync.Mutex // guards what follows
	down  bool
	conns []net.Conn
}

var errCut = errors.New("network is cut")

// dial is a zklock.Dialer.
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
		if e := conn.Close(); !errors.Is(e, net.ErrClosed) { // an earlier connection may be gone already
			err = errors.Join(err, e)
		}
	}
	return err
}
