// Package recipe is the queue under every lock: which contenders are in line, which hold, which one a waiter watches, how to
// enter and leave.
//
// When Wait returns nil, the ticket holds: its znodes exist, as far as this session has been told, and no contender's
// znode that is in its way and was made before does; and the session's lease is confirmed. In one directory at most one
// ticket (of a semaphore as many as have room, of a read/write lock any number of readers) is in that state, until it
// leaves or its session ends.
//
// What is not guaranteed here: that the session lasts, and that no other client deletes the znodes. Guard reports both.
//
// # Algorithm
//
// ZooKeeper's lock recipe without the herd effect ("ZooKeeper Recipes and Solutions: Locks", zookeeper.apache.org); the names
// are Apache Curator's. A contender
//
//  1. creates an ephemeral sequential znode in the directory, and lists the directory, in one round trip;
//  2. holds, if no contender's number is lower than its own;
//  3. otherwise watches its own znode, the contender immediately before it and, where that helps, that one's release mark, in
//     one request; waits until that contender is gone; and goes on with 2, unless it knows without a list that it holds;
//  4. deletes its znode to leave. A mutex's holder, or a writer, that had to wait says in the same transaction that it has
//     held: see predecessor.go.
//
// Below, "number" means order of creation: the sequence number, or the czxid once the counter is near its limit. Another
// client can change neither for contenders that the server numbered. See order.go; directory.go says how it is kept
// from reaching the limit.
//
// Safety. The server numbers the children of a directory in the order in which it creates them, and a session sees its
// own create before the list that follows it. So the list shows every contender with a lower number that still exists,
// and no contender can enter below us later: numbers below ours can only disappear, as long as the directory lives, and it
// can't be deleted while our znode is in it. Hence step 3 may skip the list when the watched contender was the only one
// in our way (for a writer that is not enough: Kind.wayOnlyShrinks), or has held, and our own znode is known to have existed
// when that contender was deleted: see predecessor.go. And hence two tickets never hold at once: of two znodes that exist, the
// owner of the later one has found out that the earlier one is there, and holds only when that has gone.
//
// Liveness. Each znode is deleted by its owner, or by the ensemble with its session, and those that watch it are notified:
// of a mutex its immediate follower, so that a release wakes one contender, however many wait. All readers queued behind a
// writer watch that writer, and its release wakes them all. A semaphore's release wakes two at most, or all waiters
// where the ACL denies WRITE: see semaphore.go.
//
// # Other kinds
//
// A read/write lock is the same queue, in which readers are not in each other's way: a reader waits for the nearest
// writer before it, a writer for the contender immediately before it. A semaphore is a queue whose first contenders hold
// together: see semaphore.go. Several locks at once are places in several queues, made in one transaction: see Ticket. An
// election is a mutex whose holder publishes a value.
//
// Locks of different kinds must not share a directory, and this package finds the mistake: a contender is refused
// (ErrConflict) when one of another kind was in the directory before it, and is ephemeral, and so in use. Anything else
// with such a name is ignored: persistent znodes are never contenders, later ones are themselves refused, and nothing can
// be learned from unreadable ones. So another client that may create znodes can't block a lock for ever with one of them,
// only for as long as its session lasts, as it can by queueing.
//
// # Was the znode made?
//
// A create whose reply was lost may have been carried out. The znode's name begins with an id of ours; so, when there is
// a connection again: sync, list, and look for the id. It is adopted if this session owns it, and made again if it is not
// there: when it accepts a newer connection of a session, ZooKeeper refuses from then on whatever of the older one has
// not reached the leader, so no create is carried out later. But the list may miss one that was carried out, since a leader's
// own answer to a sync may come too early (session.Session.Sync). So the list behind the next create is a second look, and if
// the call ends before that, the sweeper looks again.
package recipe
