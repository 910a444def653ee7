package main

import (
	"errors"
	"net"
	"sync"
	"time"
)

// network is one worker's access to the ensemble, with a switch: after cut all its connections are closed, and it gets
// no new ones. To the ensemble that looks like a crash.
type network struct {
	mu    sync.Mutex // guards the fields below
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

func (n *network) cut() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.down = true
	for _, conn := range n.conns {
		_ = conn.Close() // it was closed before, or is now
	}
}
