// Package recipe is the queue under every lock: who stands in line, who holds, whom to watch, how to enter and leave.
//
// When Wait returns nil, the ticket's znode stands, as far as this session has been told, and no contender's znode that
// was made before it does: in one directory at most one ticket is in that state, until it leaves or its session ends.
//
// What is not guaranteed here: that the session lasts. The caller watches over that (session.Session.Retain) and over
// the znode being deleted by somebody else (Ticket.OnGone).
//
// # Algorithm
//
// ZooKeeper's lock recipe without the herd effect. A contender
//
//  1. creates an ephemeral sequential znode in the directory, and lists the directory, in one round trip;
//  2. holds, if no contender's number is lower than its own;
//  3. otherwise watches its own znode and the contender immediately before it, in one request, waits until that one is
//     gone, and goes on with 2.
//
// Where this page says number, read "order of creation": what tells it is the number, and near the end of the counter
// the czxid, and nothing that a neighbour can make up. See order.go. How a counter is kept from coming to its end is in
// renew.go.
//
// Safety. The server numbers the children of a directory in the order in which it creates them, and a session sees its
// own create before the list that follows it. So the list shows every contender with a lower number that still stands,
// and nobody can enter below us later: numbers below ours can only disappear, as long as the directory lives, and it
// can't be deleted while our znode is in it. Hence step 3 may skip the list when the watched contender was the only one
// before us, and our own znode is known to have stood when that one was deleted: see wait.go. And hence two tickets never
// hold at once: of two znodes that stand, the later one's list showed the earlier one.
//
// Liveness. Each znode goes with its session, or is deleted by its owner; its immediate follower, and nobody else, is
// told. A release wakes one contender, however many wait.
//
// Source: "ZooKeeper Recipes and Solutions: Locks", zookeeper.apache.org; the names are Apache Curator's.
//
// # Other kinds
//
// A read/write lock is the same queue, in which readers do not stand in each other's way: a reader waits for the
// nearest writer before it, a writer for whoever is immediately before it. See Kind. A semaphore is a queue whose first
// contenders hold together: see semaphore.go. Several locks at once are places in several queues, made in one
// transaction: see Group. An election is a mutex whose holder has something to say.
//
// # Was the znode made?
//
// A create whose reply was lost may have been carried out. The znode's name begins with an id of ours; so, when there
// is a connection again: sync, list, and look for the id. It is adopted if this session owns it, and made again if it
// is not there: ZooKeeper refuses what an older connection of a session has not got through to the leader before the
// newer one was accepted, so after the sync the answer is final.
package recipe
