// Package queue is the queue under every lock: how to enter and leave, whom a waiter watches, how a loss is noticed. Package recipe
// decides who holds.
//
// When Wait returns nil, the ticket holds: as far as this session has been told, its znodes exist, and no contender that
// was made before and is in its way does; and the session's lease is confirmed. In one directory at most one ticket is in
// that state (of a semaphore as many as have room, of a read/write lock any number of readers), until it leaves or its
// session ends.
//
// This package does not guarantee that the session lasts, or that no other client deletes the znodes. Guard reports both.
//
// # Algorithm
//
// ZooKeeper's lock recipe without the herd effect ("ZooKeeper Recipes and Solutions: Locks", zookeeper.apache.org), with
// Apache Curator's names. A contender
//
//  1. creates an ephemeral sequential znode in the directory and lists the directory, in one round trip;
//  2. holds, if no contender has a lower number;
//  3. otherwise watches, in one request, its own znode, the contender immediately before it (its predecessor) and, where
//     that helps, the predecessor's release mark; waits until the predecessor is gone; then holds, if that is certain
//     without a list, or lists again and goes on with 2;
//  4. deletes its znode to leave. A mutex's holder or a writer that had to wait says in the same transaction that it has
//     held: see leave.go.
//
// Below, "number" means order of creation: the sequence number, or the czxid once the counter is near its limit. Another
// client can change neither for contenders that the server numbered: see recipe/order.go. How the counter is kept from reaching
// the limit: directory.go.
//
// Safety. The server numbers the children of a directory in the order in which it creates them, and a session sees its
// own create before the list that follows it. So the list shows every contender with a lower number that still exists.
// None can enter below us later: lower numbers can only disappear as long as the directory lives, and it can't be deleted
// while our znode is in it. Hence two tickets never hold at once: of two existing znodes, the owner of the later one has
// seen the earlier one, and holds only when that has gone. And hence step 3 may skip the list when the predecessor was the
// only contender in our way (not enough for a writer: recipe.Kind.Overtaken) or has held, and our own znode is known to have
// existed when the predecessor was deleted: see wait.go.
//
// Liveness. Each znode is deleted by its owner, or by the ensemble with its session, and those that watch it are notified.
// A mutex's release wakes one contender, the next, however many wait. A writer's release wakes all readers queued behind
// it. A semaphore's release wakes two at most: see semaphore.go. Should a notification be lost, the waiter looks again: see
// NextLook.
//
// Permissions. All who use a lock may READ, CREATE and DELETE in its directory; those of a semaphore also WRITE.
//
// # Other kinds
//
// A read/write lock is the same queue, in which readers are not in each other's way: a reader waits for the nearest
// writer before it, a writer for the contender immediately before it. A semaphore is a queue whose first contenders hold
// together: see semaphore.go. Several locks at once are places in several queues, made in one transaction: see Ticket. An
// election is a mutex whose holder publishes a value, and whose candidates may step aside: see recipe/mutex.go.
//
// Locks of different kinds must not share a directory. A contender is refused (ErrConflict) when an ephemeral contender of
// another kind was in the directory before it, since a lock is then in use there. Other znodes with such names are
// ignored: persistent ones are never contenders, later ones are refused themselves, and unreadable ones tell nothing. So a
// client that may create znodes can't block a lock for ever with one of them, only while its session lasts, as it can by
// queueing.
//
// # Was the znode made?
//
// A create whose reply was lost may have been carried out. The znode's name begins with an id of ours; so, when there is a
// connection again, the session syncs, lists, and looks for the id. The znode is adopted if this session owns it, and made
// again if it is not there. No create is carried out after the look: once ZooKeeper accepts a session's newer connection,
// it refuses whatever of the older one has not reached the leader. But the list may miss a create that was carried out
// before, since a leader's own answer to a sync may come too early (session.Session.Sync). So the list behind the next
// create is a second look, and if the call ends before that, or that reply is lost too, the sweeper looks again.
package queue
