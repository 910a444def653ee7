// Package zktest is a ZooKeeper server that runs inside a test: in process, in memory, up within a
// millisecond.
//
// It gives its clients what a standalone ZooKeeper 3.8 or 3.9 gives them (WithVersion), field by
// field on the wire: the same results and error codes, stats, zxids, sequence numbers, watches and
// session rules. Its own tests run the same scripts on it and on real servers, and compare its
// followers with those of a real ensemble. Any client of the real protocol can use it, over TCP
// (Addr) or in memory (Dial), including inside a testing/synctest bubble, where an hour of session
// costs milliseconds.
//
// It does not guarantee what production needs: nothing survives the process, and there is one copy
// of everything. It is for tests and experiments; production needs an ensemble.
//
// # Use
//
//	srv := zktest.Run(t)                       // in a bubble: zktest.Run(t, zktest.WithoutListener())
//	client, err := zklock.Dial(ctx, srv.Addr())  // in a bubble: …, zklock.WithDialer(srv.Dial)
//
// What happens on a real server only by accident, this one does on demand:
//
//	srv.Inject(fault.CloseAfter().Op(fault.OpCreate).Path("/locks/*").Nth(3)) // lose exactly the third reply
//	in := srv.Inject(fault.Hold().Op(fault.OpDelete).Once())                  // stop a request …
//	<-in.Hit()                                                                  // … know that it has arrived …
//	in.Release()                                                                // … and let it go
//	srv.Inject(fault.FreezeReplies().Session(id))                              // one direction only
//	srv.Expire(id)                                                              // the session is over now
//	srv.Delete("/locks/a/_c_1-lock-0000000004")                                 // what an administrator might do
//	srv.SetSequence("/locks/a", 2147483646)                                     // just before the counter's end
//	m, err := srv.Follower(); m.Lag(3); m.CutOff(); m.Depose(); m.Heal()        // one of several servers
//
// The test can inspect the server's state and history: Sessions, Watches, Nodes, Requests,
// Notifications, Connections. Await waits for any condition on these without sleeping.
//
// # Differences from a real server
//
// This server reproduces the quirks of each version of ZooKeeper. In both, a client gets no events
// of znodes that it may not read (as in 3.8.4, Debian's 3.8.0, and 3.9.2), and a sequence counter
// that has reached 2147483647 stays there unless creates overlap. The versions differ in this:
//
//	                                   3.8                       3.9
//	exists of a znode                  needs no permission       needs READ
//	zxid of an event                   -1                        of the change
//	checkWatches                       finds other clients' too  finds one's own
//	plain and persistent watch         the later one stays       both stay
//	a check outside of a multi         no answer if it succeeds  unimplemented
//	create2 in a multi                 answers as create does    answers as create2 does
//	deleteContainer by a client        refused                   carried out, without asking for a permission
//	zxid of a write that can't be read a new one                 none
//
// These are the known differences from real servers:
//
//   - TTL nodes work at once; the real server wants zookeeper.extendedTypesEnabled.
//   - There are no quotas, no reconfig, no SASL mechanism but DIGEST-MD5, no super user, no
//     read-only mode, no local sessions and no throttling. createSession sent as a request is
//     unimplemented.
//   - FIPS 140-only mode (GODEBUG=fips140=only) forbids MD5 and SHA-1. Start then returns an
//     error for WithSASLUsers, and digests in access lists are SHA-256: the scheme auth works as
//     ever, but an entry with an SHA-1 digest matches nobody. The log (WithLogger) has a line for
//     each client that presents such credentials. In a synctest bubble, Go 1.26's crypto/rand
//     panics in any FIPS mode, since it measures time: test outside of one.
//   - Children and ephemerals are listed in order, and the ephemerals of a session that ends are
//     deleted in order; the real server promises none. Containers that are due are all deleted at
//     once, not 10,000 a minute.
//   - Requests are carried out one at a time. So an answer to auth never overtakes an earlier one,
//     and creates overlap, so that there are sequence numbers beyond 2147483647, only within a
//     multi and where Overlap says so.
//   - createTTL with a mode that has no TTL and a TTL below zero is a bad argument; a real server
//     dies of it.
//   - Characters beyond U+FFFF, which no znode's name can have, come back as UTF-8 where a path is
//     echoed; 3.8 writes two surrogates.
//   - A follower forwards its clients' signs of life to the leader at once, not every half tick. A
//     follower that is cut off stays so until Heal, while a real one leaves the ensemble after
//     syncLimit ticks and drops its clients (Down does that). There are no elections.
//   - A request that a fault holds back is carried out when it is released, unless its client has
//     reconnected meanwhile; a real server answers the requests of the old connection before it
//     accepts the new one.
//   - The four-letter words show latencies of zero, and mntr has the lines that tools ask for, not
//     all 300.
//   - A session that ends with too many ephemerals takes the whole ensemble down at once and for
//     good (Server.Failure). In a real ensemble, the followers fail when they read the transaction,
//     and a server that has it in its log does not start.
//   - A client that is connected by Dial has the address 127.0.0.1.
package zktest
