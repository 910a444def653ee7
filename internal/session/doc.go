// Package session keeps one ZooKeeper session, and computes the instant until which the session
// certainly exists.
//
// A Session survives broken connections and servers that die. It ends once, for good, and Err then
// says why. Done is closed when an answer of the ensemble says that the session has ended or, when
// no answer arrives, by the session's own lease clock, before the ensemble can have ended it.
// SafeUntil is the instant before which the ensemble can't have ended it.
//
// Not guaranteed: the lease clock assumes that the speeds of clocks differ by at most two per cent
// and that the process runs. A process that was stopped learns of the end when it runs again: from
// Alive at once, from Done when a timer has run. The end of a session that another client closes by
// force is noticed only when the network has reported it. internal/lease/lease.go lists what else
// is assumed of the servers, with the tests that watch it.
//
// # Operations
//
// Create, Delete, Get, Set, List, Exists, Watch, Sync, Multi and the others take a context and
// return promptly when it ends. Without a connection they wait for one. The error of a write whose
// reply was lost matches ErrUnknownOutcome. Paths are below the chroot of the connect string.
//
//	s, err := session.Open(ctx, "zk1:2181,zk2:2181,zk3:2181/app", session.Config{})
//	…
//	defer s.Close()
//	_, err = s.Create(ctx, "/jobs/job-", data, session.EphemeralSequential, session.WorldACL())
//
// The public package session, at the module's top, has the names that programs use, and the
// interface that Client.Session returns. That interface can't end the session that the locks rely
// on.
//
// # How
//
// A session has one connection at a time. It is put together from these packages, each of which
// knows only those that stand above it here:
//
//	wire       the protocol: how requests are written and replies are read
//	failure    the errors
//	clock      the time, with the machine's sleep
//	lease      until when the session certainly exists; when that has to be confirmed; the end
//	probe      a short session of its own: finds out the servers' tick, unless Config gives it
//	dial       which server is next, and when
//	pipeline   the requests of one connection: which is written next, what its reply means; groups
//	link       one connection: the socket around a pipeline, its two loops, the credentials
//	driver     the library github.com/go-zookeeper/zk, which makes the next connection
//	           when one has failed
//	watch      the watches, and what a new server has to be asked for
//	ephemeral  the room for ephemeral znodes
//
// Here they are put together: session.go has the life, changes.go who is told of it,
// connevents.go what a connection reports (link.Owner), deliver.go what is sent again,
// heartbeat.go what keeps the lease, givenup.go what closes a session that was lost, and ops.go,
// multi.go, batch.go, below.go and watching.go the operations. result.go makes a call of a
// request, config.go checks what Open is told, and probing.go asks one server outside the
// session.
//
// A connected session has four goroutines; a Logger or OnState adds a fifth. Close joins them and
// those of Session.Go, but not a call of the user's dialer that has not returned: a connection that
// it still opens is closed.
//
// # Mutexes
//
// A function whose name ends in Locked is called with the mutex held that guards what it uses, and
// returns with it held: that of its type or, for a connection, Session.mu.
//
// From the outside in. No mutex is held across I/O, across a channel operation that may block, or
// across work that grows with the number of znodes, except the znodes of one request:
//
//	link.Conn.handling → all others
//	Session.mu         → link.Conn.mu
//	watch.Table.mu     → Session.mu
//	watch.Table.mu     → link.Conn.mu
//	watch.Table.mu     → ephemeral.Count.mu
//
// dial.Dialer.mu is held alone. The end of a lease needs none of them.
package session
