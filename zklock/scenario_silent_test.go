package zklock_test

import (
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/tests/locktest"
	"github.com/zklock/locker/zklock"
	"github.com/zklock/locker/zktest"
)

// Scenario 85: the holder's server falls silent, and so does another one, or two of five. The
// ensemble, and the rest of its servers, are well. The hold survives, whichever server the client
// tries first, and at whatever moment of its heartbeats the servers fall silent.
func TestScenario85_AHoldSurvivesServersThatFallSilent(t *testing.T) {
	const phases = 100
	ways := map[string]silence{"silent": swallowsSYNs, "refusing": refuses,
		"accepting without an answer": answersNothing}
	for _, timeout := range []time.Duration{10 * time.Second, 15 * time.Second} {
		for _, servers := range []int{3, 5} {
			for name, way := range ways {
				t.Run(fmt.Sprintf("%v, two of %d %s", timeout, servers, name), func(t *testing.T) {
					lost := 0
					for phase := range phases {
						locktest.Bubble(t, func(t *testing.T, srv *zktest.Server) {
							n := &fallingSilent{srv: srv, way: way}
							if !survivesSilence(t, n, servers, timeout, phase) {
								lost++
							}
						})
					}
					require.Zero(t, lost, "of %d holds", phases)
				})
			}
		}
	}
}

// Scenario 85: the server that is well is far away, so the silent one, which accepts and does not
// answer, is reached first.
func TestScenario85_AHoldSurvivesWhereTheServerThatIsWellIsFar(t *testing.T) {
	const phases = 50
	for _, far := range []time.Duration{150 * time.Millisecond, 250 * time.Millisecond,
		350 * time.Millisecond} {
		t.Run(far.String(), func(t *testing.T) {
			lost := 0
			for phase := range phases {
				locktest.Bubble(t, func(t *testing.T, srv *zktest.Server) {
					n := &fallingSilent{srv: srv, way: answersNothing, far: far}
					if !survivesSilence(t, n, 3, 10*time.Second, phase*100/phases) {
						lost++
					}
				})
			}
			require.Zero(t, lost, "of %d holds", phases)
		})
	}
}

// Scenario 85: one of three hosts is dead, and the two others are restarted, which takes a second.
// Meanwhile they refuse.
func TestScenario85_AHoldSurvivesARestartBesideADeadHost(t *testing.T) {
	const phases = 50
	lost := 0
	for phase := range phases {
		locktest.Bubble(t, func(t *testing.T, srv *zktest.Server) {
			var restarting atomic.Bool
			dial := func(network, name string, limit time.Duration) (net.Conn, error) {
				switch {
				case name == "s0:1":
					time.Sleep(limit)
					return nil, os.ErrDeadlineExceeded
				case restarting.Load():
					return nil, syscall.ECONNREFUSED
				}
				return srv.Dial(network, name, limit)
			}
			c, err := zklock.Dial(locktest.Soon(t), "s0:1,s1:1,s2:1", zklock.WithoutLog(),
				zklock.WithDialer(dial))
			require.NoError(t, err)
			h := locktest.Lock(t, c.Mutex("/locks/a"))
			time.Sleep(time.Minute + time.Duration(phase)*200*time.Millisecond)
			restarting.Store(true)
			srv.DropConnections()
			time.Sleep(time.Second)
			restarting.Store(false)
			time.Sleep(20 * time.Second)
			if h.Err() != nil {
				lost++
			}
			require.NoError(t, c.Close())
			time.Sleep(time.Minute) // the dialer's calls that were given up have returned
		})
	}
	require.Zero(t, lost, "of %d holds", phases)
}

// survivesSilence takes a lock at one of the servers, which then falls silent together with another
// one, and reports whether the hold survives.
func survivesSilence(
	t *testing.T, n *fallingSilent, servers int, timeout time.Duration, phase int,
) bool {
	for i := range servers {
		n.names = append(n.names, fmt.Sprintf("s%d:1", i))
	}
	c, err := zklock.Dial(locktest.Soon(t), n.connect(), zklock.WithDialer(n.dial),
		zklock.WithSessionTimeout(timeout), zklock.WithoutLog())
	require.NoError(t, err)
	h := locktest.Lock(t, c.Mutex("/locks/a"))
	time.Sleep(time.Minute + time.Duration(phase)*timeout/100)
	n.fallSilent()
	time.Sleep(2 * timeout)
	survived := h.Err() == nil
	require.NoError(t, c.Close())
	time.Sleep(time.Minute) // the dialer's calls that were given up have returned
	return survived
}

// silence is how a server that has fallen silent treats a new connection.
type silence int

const (
	swallowsSYNs   silence = iota // it does not answer
	refuses                       // nothing listens
	answersNothing                // it accepts, and then does not answer
)

// fallingSilent is a network of several names of one server. Some of them fall silent.
type fallingSilent struct {
	srv   *zktest.Server
	way   silence
	names []string
	far   time.Duration // how long it takes to connect to a server that is well

	mu     sync.Mutex // guards what follows
	silent []string   // names; the first is the one that the client was connected to
	latest *mutableConn
}

func (n *fallingSilent) connect() string {
	all := ""
	for i, name := range n.names {
		if i > 0 {
			all += ","
		}
		all += name
	}
	return all
}

// fallSilent lets the client's server fall silent, and the next one in the list.
func (n *fallingSilent) fallSilent() {
	n.mu.Lock()
	defer n.mu.Unlock()
	i := slices.Index(n.names, n.latest.name)
	n.silent = []string{n.names[i], n.names[(i+1)%len(n.names)]}
	n.latest.mute()
}

func (n *fallingSilent) dial(network, name string, limit time.Duration) (net.Conn, error) {
	n.mu.Lock()
	isSilent := slices.Contains(n.silent, name)
	n.mu.Unlock()
	switch {
	case isSilent && n.way == swallowsSYNs:
		time.Sleep(limit)
		return nil, os.ErrDeadlineExceeded
	case isSilent && n.way == refuses:
		return nil, syscall.ECONNREFUSED
	}
	if !isSilent {
		time.Sleep(n.far)
	}
	inner, err := n.srv.Dial(network, name, limit)
	if err != nil {
		return nil, err
	}
	c := &mutableConn{Conn: inner, name: name, muted: make(chan struct{}),
		closed: make(chan struct{})}
	if isSilent {
		c.mute()
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.latest = c
	return c, nil
}

// mutableConn is a connection whose server may fall silent: then it takes everything, and answers
// nothing.
type mutableConn struct {
	net.Conn
	name string

	muted     chan struct{}
	closed    chan struct{}
	muteOnce  sync.Once
	closeOnce sync.Once
}

func (c *mutableConn) mute() { c.muteOnce.Do(func() { close(c.muted) }) }

func (c *mutableConn) isMuted() bool {
	select {
	case <-c.muted:
		return true
	default:
		return false
	}
}

func (c *mutableConn) Write(b []byte) (int, error) {
	if c.isMuted() {
		return len(b), nil
	}
	return c.Conn.Write(b)
}

// Read returns nothing that arrives later than the silence, but the end of a deadline.
func (c *mutableConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if !c.isMuted() || errors.Is(err, os.ErrDeadlineExceeded) {
		return n, err
	}
	<-c.closed
	return 0, net.ErrClosed
}

func (c *mutableConn) Close() error {
	c.closeOnce.Do(func() { close(c.closed) })
	return c.Conn.Close()
}
