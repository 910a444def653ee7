package locktest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/zklock/locker/zktest"
	"github.com/zklock/locker/zktest/fault"
)

// Seeds runs a test on servers of both versions with that many seeds each, or with 300 where the variants that take
// minutes are to run. The first seed that fails ends it.
func Seeds(t *testing.T, seeds uint64, fn func(t *testing.T, srv *zktest.Server, seed uint64)) {
	t.Helper()
	if Long() {
		seeds = 300
	}
	for _, version := range []zktest.Version{zktest.Version38, zktest.Version39} {
		if !t.Run(string(version), func(t *testing.T) {
			EachSeed(t, seeds, func(t *testing.T, seed uint64) {
				BubbleAlone(t, func(t *testing.T, srv *zktest.Server) { fn(t, srv, seed) }, zktest.WithVersion(version))
			})
		}) {
			return
		}
	}
}

// EachSeed runs fn for so many seeds, each in a subtest, until one fails.
func EachSeed(t *testing.T, seeds uint64, fn func(t *testing.T, seed uint64)) {
	t.Helper()
	for seed := range seeds {
		if !t.Run(fmt.Sprint(seed), func(t *testing.T) {
			SayHowToRepeat(t, "-run '^"+strings.ReplaceAll(t.Name(), "/", "$/^")+"$'")
			fn(t, seed)
		}) {
			return
		}
	}
}

// SayHowToRepeat has a failure of a random test say how its seed is run again, and what that does not repeat.
func SayHowToRepeat(t *testing.T, how string) {
	t.Helper()
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("%s draws the same random numbers again. The order in which goroutines run that one event wakes is not the seed's: repeat it, with -cpu 1 and -count", how)
		}
	})
}

// SlowDial dials a server over connections that take a moment for everything, so that requests come together. The moments
// follow from the seed.
func SlowDial(srv *zktest.Server, seed uint64) func(network, addr string, timeout time.Duration) (net.Conn, error) {
	var dials atomic.Uint64
	return func(network, addr string, timeout time.Duration) (net.Conn, error) {
		conn, err := srv.Dial(network, addr, timeout)
		n := dials.Add(1)
		return slowConn{conn, rand.New(rand.NewPCG(seed, 1<<34+n)), rand.New(rand.NewPCG(seed, 1<<35+n))}, err
	}
}

type slowConn struct {
	net.Conn
	writes, reads *rand.Rand // each is one goroutine's
}

func (c slowConn) Write(b []byte) (int, error) {
	time.Sleep(time.Duration(c.writes.Int64N(int64(time.Millisecond))))
	return c.Conn.Write(b)
}

func (c slowConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	time.Sleep(time.Duration(c.reads.Int64N(int64(2 * time.Millisecond))))
	return n, err
}

// Load is callers of a server, and trouble for them: all of it follows from the seed.
type Load struct {
	Server         *zktest.Server
	Seed           uint64
	Callers, Turns int // turns of each caller

	Faults []fault.Fault
	Skip   int           // a fault may strike so many requests later, less one
	Every  time.Duration // longest time for which a fault is there
	Drop   int           // after one fault of so many, all connections end as well
}

// Run returns when every caller has had its turns, and no fault is left.
func (l Load) Run(turn func(rnd *rand.Rand, caller, turn int)) {
	var callers, trouble sync.WaitGroup
	for i := range l.Callers {
		callers.Go(func() {
			rnd := rand.New(rand.NewPCG(l.Seed, uint64(i)))
			for n := range l.Turns {
				time.Sleep(time.Duration(rnd.IntN(3)) * time.Millisecond)
				turn(rnd, i, n)
			}
		})
	}
	quiet := make(chan struct{})
	trouble.Go(func() { l.trouble(quiet) })
	callers.Wait()
	close(quiet)
	trouble.Wait()
}

// trouble injects faults and breaks connections until quiet is closed.
func (l Load) trouble(quiet <-chan struct{}) {
	rnd := rand.New(rand.NewPCG(l.Seed, 1<<32))
	for {
		in := l.Server.Inject(l.Faults[rnd.IntN(len(l.Faults))].After(rnd.IntN(l.Skip)).Once())
		select {
		case <-quiet:
			in.Remove()
			return
		case <-time.After(time.Duration(rnd.Int64N(int64(l.Every)))):
		}
		in.Remove()
		if rnd.IntN(l.Drop) == 0 {
			l.Server.DropConnections()
		}
	}
}

// Perhaps returns a context that may end by itself, within less than most milliseconds.
func Perhaps(rnd *rand.Rand, most int) (context.Context, func()) {
	ctx, cancel := context.WithCancel(context.Background())
	if rnd.IntN(3) > 0 {
		return ctx, cancel
	}
	stop := time.AfterFunc(time.Duration(rnd.IntN(most))*time.Millisecond, cancel)
	return ctx, func() { stop.Stop(); cancel() }
}
