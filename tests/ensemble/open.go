package ensemble

import (
	"errors"
	"fmt"
	"time"
)

// The functions below are for programs that run for hours, which have no testing.TB.

// Open starts an ensemble of one or three servers of our own, whatever ZKLOCK_TEST_SERVERS says,
// and returns when all serve, at most a minute later. Close ends it.
func Open(nodes int, opts ...Option) (*Ensemble, error) {
	c, err := newConfig(nodes, opts)
	if err != nil {
		return nil, err
	}
	return start(c)
}

// Close ends the servers, removes their data and joins all goroutines. It is for an ensemble from
// Open only.
func (e *Ensemble) Close() error { return e.close() }

// At returns a node for a server that was not started here, by its host:port: it answers
// four-letter words, and cannot be signalled.
func At(addr string) *Node { return &Node{addr: addr} }

// OpenProxy is NewProxy without a test.
func OpenProxy(target string) (*Proxy, error) { return openProxy(target, 0) }

// Close closes every connection and the listener, and joins all goroutines. It is for a proxy from
// OpenProxy only.
func (p *Proxy) Close() error { return p.close() }

// Revive undoes what was done to the ensemble, as Restore does, and returns when all its servers
// serve; otherwise, after the given time, the error names the server that does not.
func (e *Ensemble) Revive(atMost time.Duration) error {
	e.Heal()
	var errs []error
	for _, n := range e.Nodes {
		errs = append(errs, n.revive())
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	for _, n := range e.Nodes {
		if err := n.waitServing(atMost); err != nil {
			return err
		}
	}
	return nil
}

// Mute drops a node's messages to the other servers, while it still receives theirs; Heal ends it.
// See Isolate.
func (e *Ensemble) Mute(n *Node) {
	e.oneWay(n, "Mute", (*Proxy).HoldRequests, (*Proxy).HoldReplies)
}

// Deafen drops the other servers' messages to a node, while they still receive its own; Heal ends
// it. See Isolate.
func (e *Ensemble) Deafen(n *Node) {
	e.oneWay(n, "Deafen", (*Proxy).HoldReplies, (*Proxy).HoldRequests)
}

// oneWay breaks one direction between a node and the others, on connections opened by either side.
func (e *Ensemble) oneWay(n *Node, what string, its, theirs func(*Proxy)) {
	if len(e.links) == 0 {
		panic(fmt.Sprintf("ensemble: %s needs three servers started here: call NeedControl first",
			what))
	}
	n.setIsolated(true)
	for _, l := range e.links {
		switch n.ID {
		case l.from:
			its(l.proxy)
		case l.to:
			theirs(l.proxy)
		}
	}
}

// Slow delays every byte between a node and the other servers by d, in both directions: like a long
// wire, or, to the others, like a disk that takes that long for each write. Zero, or Heal, ends it.
func (e *Ensemble) Slow(n *Node, d time.Duration) {
	for _, l := range e.links {
		if l.from == n.ID || l.to == n.ID {
			l.proxy.Delay(d, d)
		}
	}
}
