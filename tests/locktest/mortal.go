package locktest

import (
	"errors"
	"net"
	"sync"
	"time"

	"github.com/zklock/locker/zktest"
)

// MortalNetwork is the network of a process that crashes: from Cut on, its connections have ended
// without a word, and there are no new ones.
type MortalNetwork struct {
	Server *zktest.Server
	Wrap   func(net.Conn) net.Conn // of each connection; nil leaves it as it is

	mu    sync.Mutex // guards what follows
	isCut bool
	conns []net.Conn
}

// Dial is a session.Dialer.
func (n *MortalNetwork) Dial(network, addr string, timeout time.Duration) (net.Conn, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.isCut {
		return nil, errors.New("the process has crashed")
	}
	conn, err := n.Server.Dial(network, addr, timeout)
	if err != nil {
		return nil, err
	}
	if n.Wrap != nil {
		conn = n.Wrap(conn)
	}
	n.conns = append(n.conns, conn)
	return conn, nil
}

// Cut is the crash.
func (n *MortalNetwork) Cut() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.isCut = true
	for _, conn := range n.conns {
		_ = conn.Close()
	}
}
