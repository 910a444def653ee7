// Package session keeps one ZooKeeper session, and computes the instant until which the session certainly exists.
//
// A Session survives broken connections and servers that die; it ends once, for good, and then says why. Before the
// ensemble can have ended it, Done is closed: when the ensemble's answer says so, or, when no answer arrives
// any more, by the session's own lease clock. SafeUntil is the instant before which the ensemble can't have ended it.
//
// What is not guaranteed: the lease clock holds for clocks whose speeds differ by at most two per cent and for a
// process that runs. A process that was stopped learns of the end when it runs again: at once when it asks Alive, by Done
// when a timer has run. The end of a session that another client closes by force is noticed only when the network has
// reported it. What else is assumed of the servers is listed, with the tests that watch it, in lease.go.
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
// A session has one conn at a time, on which its requests travel: with a context, in a known order, and with every reply
// checked before it is used (request.go, connwrite.go, connread.go); creates and deletes of several locks share a transaction
// (group.go), and their lists a request (grouplist.go). When a conn fails, the library github.com/go-zookeeper/zk makes the
// next one, behind driver.go. The lease and its safety argument are in lease.go, its end in deadline.go, its heartbeats in
// heartbeat.go and, while a lock is held, retain.go; the watches in watchtable.go.
//
// A connected session has four goroutines, and with a Logger or OnState a fifth. Close joins them and what Session.Go has
// started, but not a user's dialer that has not returned: a connection that it still opens is closed.
//
// # Mutexes
//
// From the outside in; no mutex is held across I/O, a channel that may block, or work that grows with the number of znodes,
// but for what one request is about:
//
//	Session.mu   → conn.mu → replySizes.mu
//	Session.mu   → graces.mu
//	watches.mu   → Session.mu
//	watches.mu   → conn.mu → replySizes.mu
//	watches.mu   → ephemerals.mu
//
// dialer.mu is held alone. The end of a lease needs none of them.
package session
