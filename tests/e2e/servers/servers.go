// Package servers finds three ZooKeeper servers to test on: those of an ensemble that the
// environment names, in containers, or as local processes.
package servers

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"github.com/zklock/locker/tests/ensemble"
)

// Env names a running ensemble to use: "host:port,host:port,host:port".
const Env = "ZKLOCK_TEST_SERVERS"

// Ensemble is some ZooKeeper servers and the power over them.
type Ensemble struct {
	// Kind names the kind of servers, in a few words.
	Kind string
	// Nodes can be asked: four-letter words.
	Nodes []*ensemble.Node
	// Addrs are where they take clients.
	Addrs []string
	// Tick is their tickTime, or more.
	Tick time.Duration
	// Control breaks them; a field is nil where these servers can't be broken so.
	Control Control

	close func() error
}

// Control is what can be done to servers, by their index. A nil field is something that can't.
type Control struct {
	Kill, Start   func(i int) error
	Pause, Resume func(i int) error
	// Isolate takes a server away from the others; Mute and Deafen in one direction only. Heal ends
	// all, and Slow.
	Isolate, Mute, Deafen func(i int) error
	Slow                  func(i int, d time.Duration) error
	Heal                  func() error
	// Revive undoes everything and waits until all serve.
	Revive func(atMost time.Duration) error
}

// Close ends what was started.
func (e *Ensemble) Close() error { return e.close() }

// Connect is the connect string.
func (e *Ensemble) Connect() string { return strings.Join(e.Addrs, ",") }

// Version returns the version of the first server that answers ("3.8.0-…").
func (e *Ensemble) Version() string {
	var errs []error
	for _, n := range e.Nodes {
		answer, err := n.FourLetter("srvr")
		errs = append(errs, err)
		for line := range strings.Lines(answer) {
			if v, ok := strings.CutPrefix(line, "Zookeeper version: "); ok {
				v, _, _ = strings.Cut(v, ",")
				return strings.TrimSpace(v)
			}
		}
	}
	return fmt.Sprintf("unknown (%v)", errors.Join(errs...))
}

// Watches returns how many watches the servers keep for all clients together. A server that does
// not answer in time, as one under load may not, is asked again, until it could have been started
// again.
func (e *Ensemble) Watches() (all int64, err error) {
	for _, n := range e.Nodes {
		var count int64
		for until := time.Now().Add(serveBound); ; {
			count, err = n.WatchCount()
			if late := net.Error(nil); !errors.As(err, &late) || !late.Timeout() ||
				time.Now().After(until) {
				break
			}
		}
		if err != nil {
			return 0, err
		}
		all += count
	}
	return all, nil
}

// Leader returns the index of the server that says that it leads, or -1. Servers that don't answer
// are waited for, 2 s at most.
func (e *Ensemble) Leader() int {
	leader := make(chan int, len(e.Nodes))
	for i, n := range e.Nodes {
		go func() { // ends with the answer, which is awaited below
			if n.Mode() != "leader" {
				i = -1
			}
			leader <- i
		}()
	}
	found := -1
	for range e.Nodes {
		found = max(found, <-leader)
	}
	return found
}

// serveBound is how long servers may take until all serve, on a busy machine.
const serveBound = 90 * time.Second

// await waits until all servers serve.
func (e *Ensemble) await(atMost time.Duration) error {
	var missing error
	for until := time.Now().Add(atMost); time.Now().Before(until); time.Sleep(
		50 * time.Millisecond) {
		missing = nil
		for i, n := range e.Nodes {
			if n.Mode() == "" {
				missing = errors.Join(missing, fmt.Errorf("server %s shows no mode", e.Addrs[i]))
			}
		}
		if missing == nil {
			return nil
		}
	}
	return fmt.Errorf("waited %v until all servers serve: %w", atMost, missing)
}

// Named returns the ensemble that the environment names, if it names one.
func Named() (*Ensemble, bool, error) {
	text := os.Getenv(Env)
	if text == "" {
		return nil, false, nil
	}
	e := &Ensemble{Kind: "an ensemble named by " + Env, Tick: 2 * time.Second, close: func() error {
		return nil
	}}
	for addr := range strings.SplitSeq(text, ",") {
		if _, _, err := net.SplitHostPort(addr); err != nil {
			return nil, true, fmt.Errorf("%s=%q: %w", Env, text, err)
		}
		e.Addrs = append(e.Addrs, addr)
		e.Nodes = append(e.Nodes, ensemble.At(addr))
	}
	if err := e.await(serveBound); err != nil {
		return nil, true, err
	}
	e.Tick = e.tick()
	return e, true, nil
}

// tick asks the servers for their tickTime; where they don't tell, it is ZooKeeper's default.
func (e *Ensemble) tick() time.Duration {
	answer, err := e.Nodes[0].FourLetter("conf")
	if err != nil {
		return 2 * time.Second
	}
	for line := range strings.Lines(answer) {
		if v, ok := strings.CutPrefix(strings.TrimSpace(line), "tickTime="); ok {
			if d, err := time.ParseDuration(v + "ms"); err == nil && d > 0 {
				return d
			}
		}
	}
	return 2 * time.Second
}

// Tick is the tickTime of the servers that are started here: sessions may then last from 0.5 to 5
// s.
const Tick = 250 * time.Millisecond

// Local starts three servers as processes of this machine.
func Local() (*Ensemble, error) {
	own, err := ensemble.Open(3, ensemble.WithTick(Tick), ensemble.WithSyncLimit(4))
	if err != nil {
		return nil, err
	}
	e := &Ensemble{Kind: "local processes", Nodes: own.Nodes, Tick: Tick, close: own.Close}
	for _, n := range own.Nodes {
		e.Addrs = append(e.Addrs, n.Addr())
	}
	on := func(do func(*ensemble.Node)) func(int) error {
		return func(i int) error { do(own.Nodes[i]); return nil }
	}
	e.Control = Control{
		Kill:    func(i int) error { return own.Nodes[i].Kill() },
		Start:   func(i int) error { return own.Nodes[i].Launch() },
		Pause:   func(i int) error { return own.Nodes[i].Pause() },
		Resume:  func(i int) error { return own.Nodes[i].Resume() },
		Isolate: on(own.Isolate), Mute: on(own.Mute), Deafen: on(own.Deafen),
		Slow:   func(i int, d time.Duration) error { own.Slow(own.Nodes[i], d); return nil },
		Heal:   func() error { own.Heal(); return nil },
		Revive: own.Revive,
	}
	return e, nil
}
