// Command storm measures how a thousand clients come back after an outage of all servers: how
// long it takes until each has all its locks again, over how many connections and with how many
// requests. The clients are in this process, and each has a session of its own.
//
//	go run ./storm                                # the installed ZooKeeper, three servers
//	go run ./storm -connections 60 -clients 50    # servers that accept 60 connections from one address
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/zklock/locker/tests/ensemble"
	"github.com/zklock/locker/zklock"
)

func main() {
	clients := flag.Int("clients", 1000, "how many clients there are")
	locks := flag.Int("locks", 10, "how many locks each client holds")
	outage := flag.Duration("outage", 20*time.Second, "for how long the servers are away")
	connections := flag.Int("connections", 0,
		"maxClientCnxns: how many connections a server accepts from one address; 0: any number")
	flag.Parse()
	s := &storm{clients: *clients, locks: *locks, outage: *outage}
	if err := s.run(*connections); err != nil {
		fmt.Fprintln(os.Stderr, "storm:", err)
		os.Exit(1)
	}
}

// storm is one run.
type storm struct {
	clients, locks int
	outage         time.Duration

	dials atomic.Int64
	held  atomic.Int64
	all   sync.WaitGroup
}

func (s *storm) run(connections int) (err error) {
	e, err := ensemble.Open(3, ensemble.WithTick(2*time.Second),
		ensemble.WithConfig(fmt.Sprint("maxClientCnxns=", connections)))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, e.Close()) }()
	ctx, stop := context.WithCancel(context.Background())
	defer s.all.Wait()
	defer stop()
	for i := range s.clients {
		s.all.Go(func() { s.client(ctx, e, i) })
	}
	if err := s.await(2 * time.Minute); err != nil {
		return err
	}
	time.Sleep(10 * time.Second)
	for _, n := range e.Nodes {
		if err := n.Kill(); err != nil {
			return err
		}
	}
	time.Sleep(s.outage)
	if held := s.held.Load(); held > 0 {
		return fmt.Errorf("%d locks are held without servers", held)
	}
	s.dials.Store(0)
	if err := e.Revive(time.Minute); err != nil {
		return err
	}
	back := time.Now()
	if err := s.await(5 * time.Minute); err != nil {
		return err
	}
	took := time.Since(back)
	var requests int64
	for _, n := range e.Nodes {
		r, err := n.Mntr("zk_packets_received")
		if err != nil {
			return err
		}
		requests += r
	}
	fmt.Printf("%d clients, %d locks each, an outage of %v: all held again %.1f s after the servers were back; %d attempts to connect, %d requests\n",
		s.clients, s.locks, s.outage, took.Seconds(), s.dials.Load(), requests)
	return nil
}

// client holds its locks, until ctx ends, and takes each again when it was lost.
func (s *storm) client(ctx context.Context, e *ensemble.Ensemble, i int) {
	addrs := ""
	for k, n := range e.Nodes {
		if k > 0 {
			addrs += ","
		}
		addrs += n.Addr()
	}
	c, err := zklock.Open(addrs, zklock.WithoutLog(), zklock.WithTickTime(2*time.Second),
		zklock.WithDialer(s.dial))
	if err != nil {
		fmt.Fprintln(os.Stderr, "storm:", err)
		return
	}
	var locks sync.WaitGroup
	for k := range s.locks {
		locks.Go(func() {
			for ctx.Err() == nil {
				_, h, err := c.Mutex(fmt.Sprintf("/storm/%d-%d", i, k)).Lock(ctx)
				if err != nil {
					continue // ctx has ended, or the next attempt says why
				}
				s.held.Add(1)
				select {
				case <-h.Context().Done():
				case <-ctx.Done():
				}
				s.held.Add(-1)
				_ = h.Unlock() // lost, or the storm is over
			}
		})
	}
	locks.Wait()
	_ = c.Close() // always nil
}

func (s *storm) dial(network, addr string, limit time.Duration) (net.Conn, error) {
	s.dials.Add(1)
	return net.DialTimeout(network, addr, limit)
}

// await returns when all locks are held.
func (s *storm) await(atMost time.Duration) error {
	for end := time.Now().Add(atMost); s.held.Load() < int64(s.clients*s.locks); {
		if time.Now().After(end) {
			return fmt.Errorf("%d of %d locks are held after %v", s.held.Load(), s.clients*s.locks,
				atMost)
		}
		time.Sleep(10 * time.Millisecond)
	}
	return nil
}
