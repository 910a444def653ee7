package queue_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/internal/queue"
	"github.com/zklock/locker/internal/session"
	"github.com/zklock/locker/zktest"
	"github.com/zklock/locker/zktest/fault"
)

// How a waiter treats marks that it must not, or cannot, believe.

// Another client makes the mark of a contender that does not hold, and that contender then gives
// up.
func TestAMarkThatAnotherTransactionMadeIsNotBelieved(t *testing.T) {
	all := session.WorldACL()
	owner := zk.ACL{Perms: zk.PermAll, Scheme: "digest", ID: "x:y"}
	mayCreate := []zk.ACL{owner,
		{Perms: zk.PermAll &^ zk.PermDelete, Scheme: "world", ID: "anyone"}}
	for name, c := range map[string]struct {
		version  zktest.Version
		acl      []zk.ACL
		believed bool
	}{
		"a server that tells transactions": {zktest.Version39, all, false},
		// who may do that may also delete the holder's znode
		"one that does not, where all who create also delete": {zktest.Version38, all, true},
		"one that does not, where some only create":           {zktest.Version38, mayCreate, false},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, srv *zktest.Server) {
				first := open(t, srv)
				_, err := first.Create(within(t, soon), "/l", nil, session.Persistent,
					session.WorldACL())
				require.NoError(t, err)
				all := line(t, srv, 3, func(int) queue.Queue {
					q := aMutex()
					q.ACL = c.acl
					return q
				})
				require.NoError(t, srv.Create(all[1].node+"-released", nil))
				pending(t, all[2].done) // the mark alone proves nothing
				require.NoError(t, srv.Delete(all[1].node))
				synctest.Wait()
				if c.believed {
					require.NoError(t, <-all[2].done)
					return
				}
				pending(t, all[2].done)
				require.NoError(t, srv.Delete(all[0].node))
				require.NoError(t, <-all[2].done)
			}, zktest.WithVersion(c.version))
		})
	}
}

// Everybody may create in a lock's directory, and only its owner may delete. A neighbour makes the
// mark of a waiter that gives up: the contender behind that waiter must not hold beside the holder.
func TestAMarkIsNotBelievedWhereAClientMayCreateAndNotDelete(t *testing.T) {
	user := session.Auth{Scheme: "digest", Credential: []byte("owner:secret")}
	owner := zk.DigestACL(zk.PermAll, "owner", "secret")
	for name, acl := range map[string][]zk.ACL{
		"everybody":              append(zk.WorldACL(zk.PermRead|zk.PermCreate), owner...),
		"the entry that is last": append(owner[:1:1], zk.WorldACL(zk.PermRead|zk.PermCreate)...),
		"somebody with a password": append(owner[:1:1],
			zk.DigestACL(zk.PermAll&^zk.PermDelete, "neighbour", "secret")...),
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, srv *zktest.Server) {
				admin := open(t, srv, user)
				_, err := admin.Create(within(t, soon), "/l", nil, session.Persistent, acl)
				require.NoError(t, err)
				all := line(t, srv, 5, func(int) queue.Queue {
					q := aMutex()
					q.ACL = acl
					return q
				}, user)
				neighbour := open(t, srv,
					session.Auth{Scheme: "digest", Credential: []byte("neighbour:secret")})
				for i := range 2 {
					giver, behind := all[2*i+1], all[2*i+2]
					before := lists(srv)
					_, err = neighbour.Create(within(t, soon), giver.node+"-released", nil,
						session.Ephemeral, zk.WorldACL(zk.PermRead))
					require.NoError(t, err)
					require.ErrorIs(t, neighbour.Delete(within(t, soon), giver.node, -1),
						zk.ErrNoAuth)
					require.NoError(t, giver.Leave(within(t, soon)))
					pending(t, behind.done)
					require.Equal(t, 1, lists(srv)-before, "the list decides")
				}
				require.NoError(t, all[0].Leave(within(t, soon)))
				require.NoError(t, <-all[2].done)
				pending(t, all[4].done)
			}, zktest.WithVersion(zktest.Version38))
		})
	}
}

// A mark beside a holder that stays wakes no waiter, and no waiter sets a watch on it again.
func TestAMarkOfAHolderThatStaysIsNoRelease(t *testing.T) {
	bubble(t, func(t *testing.T, srv *zktest.Server) {
		all := line(t, srv, 3, mutex)
		before := lists(srv)
		for range 3 {
			require.NoError(t, srv.Create(all[1].node+"-released", nil))
			require.NoError(t, srv.Delete(all[1].node+"-released"))
			pending(t, all[2].done)
		}
		require.Equal(t, before, lists(srv))
		require.NoError(t, all[0].Leave(within(t, soon)))
		require.NoError(t, <-all[1].done)
		// because of a mark that is no longer watched
		require.NoError(t, all[1].Leave(within(t, soon)))
		holdsAtOnce(t, srv, all[2], before, 1)
	})
}

// On a new connection notifications may come in another order: the list decides.
func TestAfterAReconnectionTheListDecidesWhateverTheMarkSaid(t *testing.T) {
	for name, opts := range map[string][]zktest.Option{
		"3.8": {zktest.WithVersion(zktest.Version38)},
		"3.9": {zktest.WithVersion(zktest.Version39)},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, srv *zktest.Server) {
				all := line(t, srv, 3, mutex)
				require.NoError(t, all[0].Leave(within(t, soon)))
				require.NoError(t, <-all[1].done)
				before := lists(srv)
				cut := srv.Inject(fault.Refuse().Session(all[2].s.ID()))
				away := srv.Inject(fault.FreezeReplies().Session(all[2].s.ID()))
				// mark and deletion are lost together with the connection
				require.NoError(t, all[1].Leave(within(t, soon)))
				synctest.Wait()
				cut.Remove()
				away.Remove()
				srv.DropConnections()
				require.NoError(t, <-all[2].done)
				require.LessOrEqual(t, lists(srv)-before, 1)
				require.NoError(t, all[2].Leave(within(t, soon)))
				requireLeft(t, srv, all)
			}, opts...)
		})
	}
}

// The waiter's own znode is deleted before its predecessor's, or both at once. It must not hold
// without a znode.
func TestAWordDoesNotHelpAWaiterWhoseOwnZnodeIsGone(t *testing.T) {
	for name, c := range map[string]func(t *testing.T, srv *zktest.Server, all []placed){
		"while it is connected": func(t *testing.T, srv *zktest.Server, all []placed) {
			held := srv.Inject(fault.Delay(time.Second).Op(fault.OpNotify).Session(all[2].s.ID()))
			defer held.Remove()
			require.NoError(t, srv.Delete(all[2].node))
			require.NoError(t, all[1].Leave(within(t, soon)))
		},
		"while it is not": func(t *testing.T, srv *zktest.Server, all []placed) {
			srv.Leader().Down()
			synctest.Wait()
			require.NoError(t, srv.Delete(all[2].node))
			require.NoError(t, srv.Delete(all[1].node))
			srv.Leader().Up()
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, srv *zktest.Server) {
				all := line(t, srv, 3, mutex)
				require.NoError(t, all[0].Leave(within(t, soon)))
				require.NoError(t, <-all[1].done)
				c(t, srv, all)
				require.ErrorIs(t, <-all[2].done, queue.ErrGone)
			})
		})
	}
}

// The request for the watches is answered late, and its predecessor leaves before the reply.
func TestAReleaseThatComesBeforeTheWatchesAreSetCostsAList(t *testing.T) {
	bubble(t, func(t *testing.T, srv *zktest.Server) {
		all := line(t, srv, 2, mutex)
		s := open(t, srv)
		held := srv.Inject(fault.Hold().Op(fault.OpSetWatches).Session(s.ID()))
		third := enter(t, aMutex(), s)
		done := wait(third, within(t, time.Hour))
		pending(t, done)
		require.NoError(t, all[0].Leave(within(t, soon)))
		require.NoError(t, <-all[1].done)
		require.NoError(t, all[1].Leave(within(t, soon)))
		before := lists(srv)
		pending(t, done)
		held.Release()
		require.NoError(t, <-done)
		require.Equal(t, 1, lists(srv)-before)
		require.NoError(t, third.Leave(within(t, soon)))
		requireLeft(t, srv, all)
	})
}

// The waiter's create lost its reply, and the waiter has adopted the znode. Its predecessor leaves
// by a mark, on a server whose notifications have no zxid.
func TestAWaiterThatWasFoundAgainHearsAMark(t *testing.T) {
	bubble(t, func(t *testing.T, srv *zktest.Server) {
		kind := mutex
		all := line(t, srv, 2, kind)
		s := open(t, srv)
		srv.Inject(fault.CloseAfter().Op(fault.OpCreate).Session(s.ID()).Once())
		third := enter(t, kind(2), s)
		done := wait(third, within(t, time.Hour))
		pending(t, done)
		require.NoError(t, all[0].Leave(within(t, soon)))
		require.NoError(t, <-all[1].done)
		require.NoError(t, all[1].Leave(within(t, soon)))
		require.NoError(t, <-done)
	}, zktest.WithVersion(zktest.Version38))
}
