package ensemble

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"testing"
)

const loopback = "127.0.0.1"

// The pool lies below the range from which Linux takes the local ports of outgoing connections
// (32768 and up), so the port of a killed server is still free when it restarts.
const (
	firstPort = 10000
	lastPort  = 29999
)

// A claim reserves one TCP port of the loopback address against every other user of this package,
// in any process, without listening on it: the claim is a UDP socket bound to the same number,
// which the kernel frees when the process dies.
type claim struct {
	port string
	held net.PacketConn
}

func claimPort() (*claim, error) {
	var last error
	for range 200 {
		port := strconv.Itoa(firstPort + rand.IntN(lastPort-firstPort+1))
		addr := net.JoinHostPort(loopback, port)
		held, err := net.ListenPacket("udp", addr)
		if err != nil {
			last = err
			continue
		}
		probe, err := net.Listen("tcp", addr)
		if err == nil {
			err = probe.Close()
		}
		if err != nil { // another program has it
			last = errors.Join(err, held.Close())
			continue
		}
		return &claim{port: port, held: held}, nil
	}
	return nil,
		fmt.Errorf("ensemble: no free port between %d and %d: %w", firstPort, lastPort, last)
}

func (c *claim) addr() string { return net.JoinHostPort(loopback, c.port) }

func (c *claim) release() error { return c.held.Close() }

// Port reserves a TCP port of 127.0.0.1 until the test ends, on which nothing listens.
func Port(tb testing.TB) string {
	tb.Helper()
	c, err := claimPort()
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := c.release(); err != nil {
			tb.Error(err)
		}
	})
	return c.port
}
