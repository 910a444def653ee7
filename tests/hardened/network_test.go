package hardened_test

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/tests/locktest"
	"github.com/zklock/locker/zklock"
	"github.com/zklock/locker/zktest"
)

// idleConn is a connection through a balancer that cuts idle connections.
type idleConn struct {
	net.Conn
	patience time.Duration
	cut      *time.Timer
}

func (c *idleConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.cut.Reset(c.patience)
	return n, err
}

func (c *idleConn) Write(b []byte) (int, error) {
	c.cut.Reset(c.patience)
	return c.Conn.Write(b)
}

func (c *idleConn) Close() error {
	c.cut.Stop()
	return c.Conn.Close()
}

func TestHoldsSurviveABalancerThatCutsIdleConnections(t *testing.T) {
	for _, patience := range []time.Duration{time.Second, 300 * time.Millisecond} {
		t.Run(patience.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := zktest.Run(t, zktest.WithoutListener())
				var dials atomic.Int64
				c, err := zklock.Dial(t.Context(), srv.Addr(),
					zklock.WithDialer(func(network, addr string, limit time.Duration) (net.Conn,
						error) {
						conn, err := srv.Dial(network, addr, limit)
						if err != nil {
							return nil, err
						}
						dials.Add(1)
						idle := &idleConn{Conn: conn, patience: patience}
						// the client sees the end of the connection
						idle.cut = time.AfterFunc(patience, func() { _ = conn.Close() })
						return idle, nil
					}))
				require.NoError(t, err)
				defer func() { require.NoError(t, c.Close()) }()
				s, err := c.Session(t.Context())
				require.NoError(t, err)
				_, hold, err := c.Mutex("/locks/a").Lock(t.Context())
				require.NoError(t, err)
				time.Sleep(10 * time.Minute)
				require.NoError(t, hold.Err())
				require.NoError(t, hold.Unlock())

				time.Sleep(10 * time.Minute) // nothing is held: pings are too rare for the balancer
				require.NoError(t, s.Err(), "the session")
				require.Greater(t, dials.Load(), int64(100), "connections that were cut")
				_, hold, err = c.Mutex("/locks/a").Lock(t.Context())
				require.NoError(t, err)
				require.NoError(t, hold.Unlock())
			})
		})
	}
}

// name is a DNS server that answers every query with one address.
type name struct {
	pc net.PacketConn
	ip atomic.Pointer[[4]byte]
}

func newName(t *testing.T) *name {
	t.Helper()
	pc, err := net.ListenPacket("udp", "127.0.0.1:0")
	require.NoError(t, err)
	n := &name{pc: pc}
	var running sync.WaitGroup
	running.Go(func() { // ends with the socket
		for b := make([]byte, 512); ; {
			size, from, err := pc.ReadFrom(b)
			if err != nil {
				return
			}
			if _, err := pc.WriteTo(n.answer(b[:size]), from); err != nil {
				return
			}
		}
	})
	t.Cleanup(func() {
		require.NoError(t, pc.Close())
		running.Wait()
	})
	return n
}

// answer repeats the one question, with the address behind it when it is for one of IPv4.
func (n *name) answer(q []byte) []byte {
	end := 12 // behind the header are the name's labels, a zero, type and class
	for end < len(q) && q[end] != 0 {
		end += 1 + int(q[end])
	}
	end += 5
	b := append([]byte(nil), q[:end]...)
	b[2], b[3] = 0x84, 0 // an authoritative response
	clear(b[6:12])       // no records
	const typeA = 1
	if ip := n.ip.Load(); ip != nil && binary.BigEndian.Uint16(q[end-4:]) == typeA {
		b[7] = 1
		// the name of byte 12, IN, no time to live
		b = append(b, 0xc0, 12, 0, typeA, 0, 1, 0, 0, 0, 0, 0, 4)
		b = append(b, ip[:]...)
	}
	return b
}

// forward takes connections at addr to a server until the returned function has cut them all.
func forward(t *testing.T, addr, to string) (bound string, end func()) {
	t.Helper()
	l, err := net.Listen("tcp", addr)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", to)
			if err != nil {
				_ = in.Close()
				continue
			}
			both := func() { _ = errors.Join(in.Close(), out.Close()) }
			context.AfterFunc(ctx, both)
			for _, p := range [][2]net.Conn{{in, out}, {out, in}} {
				running.Go(func() {
					_, _ = io.Copy(p[0], p[1]) // until either ends
					both()
				})
			}
		}
	})
	end = sync.OnceFunc(func() {
		_ = l.Close()
		cancel()
		running.Wait()
	})
	t.Cleanup(end)
	return l.Addr().String(), end
}

func TestAHoldSurvivesAChangeOfTheServersAddressInDNS(t *testing.T) {
	n := newName(t)
	before := net.DefaultResolver
	t.Cleanup(func() { net.DefaultResolver = before })
	net.DefaultResolver = &net.Resolver{PreferGo: true,
		Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "udp", n.pc.LocalAddr().String())
		}}
	srv := zktest.Run(t)
	old, endOld := forward(t, "127.0.0.2:0", srv.Addr())
	_, port, err := net.SplitHostPort(old)
	require.NoError(t, err)
	n.ip.Store(&[4]byte{127, 0, 0, 2})

	c := dial(t, net.JoinHostPort("zk.test", port), zklock.WithSessionTimeout(20*time.Second))
	_, hold, err := c.Mutex("/locks/a").Lock(locktest.Within(t, soon))
	require.NoError(t, err)
	_, endNew := forward(t, net.JoinHostPort("127.0.0.3", port), srv.Addr())
	defer endNew()
	n.ip.Store(&[4]byte{127, 0, 0, 3})
	endOld()
	require.NoError(t, hold.Check(locktest.Within(t, soon)), "at the new address")
	require.NoError(t, hold.Unlock())
}
