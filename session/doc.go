// Package session keeps one ZooKeeper session, and knows until when it is safe to believe in it.
//
// A Session survives broken connections and servers that die; it ends once, for good, and then says why. Before the
// ensemble can have ended it, Done is closed: by the ensemble's word when that arrives, and by the session's own lease
// clock when nothing arrives any more. SafeUntil is the instant before which the ensemble can't have ended it.
//
// What is not guaranteed: the lease clock holds for clocks whose speeds differ by at most two per cent and for a
// process that runs. A process that was stopped learns of the end when it runs again: at once when it asks Alive, by Done
// when a timer has run. A session that is closed by force from elsewhere ends at once, and is heard of only as fast as
// the network carries it. What else is assumed of the servers, equal limits of the session timeout and a leader that
// does not stand still for about a timeout, is in lease.go.
//
// # Operations
//
// Create, Delete, Get, Set, List, Exists, Watch, Sync, Multi and the others take a context, return promptly when it
// ends, and wait for a connection while there is none. A write whose reply was lost says so: its error matches
// ErrUnknownOutcome. Paths are below the chroot of the connect string.
//
//	s, err := session.Open(ctx, "zk1:2181,zk2:2181,zk3:2181/app", session.Config{})
//	…
//	defer s.Close()
//	_, err = s.Create(ctx, "/jobs/job-", data, session.EphemeralSequential, session.WorldACL())
//
// A program that uses package zklock gets the session that its locks live in from Client.Session, and needs no second
// connection for znodes of its own.
//
// # How
//
// The driver, github.com/go-zookeeper/zk, keeps the connection: one zk.Conn for one session. It is given a net.Conn of
// ours, the link, on which the operations of this package travel beside the driver's pings, with a context, in a known
// order, and with every reply checked before it is believed. See lease.go for the clock and its safety argument,
// link.go for the link, watch.go for the watches, keeper.go for the heartbeats.
package session
