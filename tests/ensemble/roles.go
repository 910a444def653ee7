package ensemble

import (
	"errors"
	"fmt"
	"testing"
)

// WaitServing returns when every node serves clients, except those that were killed, paused or
// isolated. The test fails, with the end of the missing server's log, when that takes longer than a
// minute.
func (e *Ensemble) WaitServing(tb testing.TB) {
	tb.Helper()
	for _, n := range e.Nodes {
		if n.reachable() {
			n.WaitServing(tb)
		}
	}
}

// Leader waits until exactly one of the reachable nodes leads, and returns it; of a single node,
// that node. It fails the test after a minute. An isolated or paused leader does not count, even if
// it has not noticed yet.
func (e *Ensemble) Leader(tb testing.TB) *Node {
	tb.Helper()
	leader, _ := e.roles(tb)
	return leader
}

// Followers waits until one node leads and all others that were not killed, paused or isolated
// follow, and returns those. It fails the test after a minute.
func (e *Ensemble) Followers(tb testing.TB) []*Node {
	tb.Helper()
	_, followers := e.roles(tb)
	return followers
}

func (e *Ensemble) roles(tb testing.TB) (leader *Node, followers []*Node) {
	tb.Helper()
	Until(tb, startBound, "one leader and its followers", func() error {
		leader, followers = nil, nil
		for _, n := range e.Nodes {
			if !n.reachable() {
				continue
			}
			mode, err := n.mode()
			switch {
			case err != nil:
				return err
			case mode == "follower" || mode == "observer":
				followers = append(followers, n)
			case leader != nil:
				return fmt.Errorf("servers %d and %d both say that they lead", leader.ID, n.ID)
			default:
				leader = n
			}
		}
		if leader == nil {
			return errors.New("no node leads")
		}
		return nil
	})
	return leader, followers
}

// Restore undoes what tests did: resumes paused servers, starts killed ones, heals the network
// between them, and waits until all serve. Shared calls it whenever it hands out an ensemble.
func (e *Ensemble) Restore(tb testing.TB) {
	tb.Helper()
	e.Heal()
	for _, n := range e.Nodes {
		if err := n.revive(); err != nil {
			tb.Fatal(err)
		}
	}
	e.WaitServing(tb)
}

// revive restarts or resumes a server of ours without waiting for it.
func (n *Node) revive() error {
	if n.dir == "" {
		return nil
	}
	n.mu.Lock()
	paused := n.paused
	n.mu.Unlock()
	if paused {
		return n.Resume()
	}
	if n.ended() != nil { // killed by a test, or ended by itself: Kill clears what is left
		return errors.Join(n.Kill(), n.Launch())
	}
	return nil
}
