package zklock_test

import (
	"context"
	"testing"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/internal/locktest"
	"github.com/zklock/locker/session"
	"github.com/zklock/locker/zklock"
)

// verifiedACL is the access list of two users who share a lock.
func verifiedACL() []zk.ACL {
	return append(zk.DigestACL(zk.PermAll, "alice", "a"), zk.DigestACL(zk.PermAll, "bob", "b")...)
}

func TestAVerifiedLockIsRefusedInADirectoryThatANeighbourMade(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		dir, c := s.Dir("/locks/a"), s.Client(zklock.WithAuth("digest", []byte("alice:a")))
		acl := zklock.WithACL(verifiedACL()...)
		for name, lock := range map[string]func(context.Context) (*zklock.Hold, error){
			"mutex":   c.Mutex(dir, acl, zklock.WithVerifiedACL()).Lock,
			"try":     c.Mutex(dir, acl, zklock.WithVerifiedACL()).TryLock,
			"handoff": c.Mutex(dir, acl, zklock.WithVerifiedACL(), zklock.WithHandoffs(3)).Lock,
			"read":    c.RWMutex(dir, acl, zklock.WithVerifiedACL()).RLock,
			"semaphore": func(ctx context.Context) (*zklock.Hold, error) {
				return c.Semaphore(dir, 2, acl, zklock.WithVerifiedACL()).Acquire(ctx, 1)
			},
			"multi": c.MultiLock([]string{"/locks/ours", dir}, acl, zklock.WithVerifiedACL()).Lock,
		} {
			_, err := lock(s.Context())
			require.ErrorIs(s, err, zklock.ErrConflict, name)
			require.ErrorContains(s, err, "the ACL of "+dir+" differs from the lock's: it does not grant cdrwa to digest:alice:", name)
			require.ErrorContains(s, err, ", grants cdrwa to world:anyone", name)
			s.Empty(0, dir)
			s.Empty(0, "/locks/ours")
		}

		// Why the access list is verified: without that, the neighbour may delete the holder's znode.
		h := s.Lock(c.Mutex(dir, acl))
		neighbour := s.Stranger()
		require.NoError(s, neighbour.Delete(s.Context(), h.Node(), -1))
		<-h.Context().Done()
		require.ErrorIs(s, h.Err(), zklock.ErrNodeDeleted)
	})
}

func TestWithVerifiedACLNeedsWithACL(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		_, err := s.Client().Mutex("/l", zklock.WithVerifiedACL()).Lock(s.Context())
		require.ErrorIs(s, err, zklock.ErrOption)
		require.ErrorContains(s, err, "WithVerifiedACL: needs WithACL")
	})
}

func TestAVerifiedLockIsTakenInADirectoryThatItsUsersMade(t *testing.T) {
	locktest.Simulate(t, func(s *locktest.Sim) {
		dir := s.Dir("/locks") + "/a"
		alice := s.Client(zklock.WithAuth("digest", []byte("alice:a")))
		bob := s.Client(zklock.WithAuth("digest", []byte("bob:b")))
		ours := []zklock.LockOption{zklock.WithACL(verifiedACL()...), zklock.WithVerifiedACL()}
		for _, c := range []*locktest.Client{alice, bob, alice} {
			s.Unlock(s.Lock(c.Mutex(dir, ours...)))
		}
		own := alice.Mutex(dir+"2", zklock.WithACL(zk.ACL{Perms: zk.PermAll, Scheme: "auth"}), zklock.WithVerifiedACL())
		s.Unlock(s.Lock(own))
		s.Unlock(s.Lock(own))
		s.Unlock(s.Lock(bob.Mutex(dir+"3", zklock.WithACL(session.WorldACL()...), zklock.WithVerifiedACL())))

		// Bob gives everybody all permissions on the directory.
		sess := bob.Current()
		_, err := sess.SetACL(s.Context(), dir, append(verifiedACL(), zk.ACL{Perms: zk.PermDelete, Scheme: "world", ID: "anyone"}), -1)
		require.NoError(s, err)
		_, err = alice.Mutex(dir, ours...).Lock(s.Context())
		require.ErrorIs(s, err, zklock.ErrConflict)
		require.ErrorContains(s, err, "it grants d to world:anyone")
		require.NotContains(s, err.Error(), "does not")
		s.Empty(0, dir)
	})
}
