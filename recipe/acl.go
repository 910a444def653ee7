package recipe

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/locker/internal/text"
)

// verify refuses a directory whose ACL is not the one that the queue's has, or would have if it were made: somebody else
// has made it, or has changed it. Who may delete in it may delete any contender, whatever the contender's own ACL. It is
// asked of the directory that the own znode stands in, which can't be another one before the znode has gone, and compared
// with the ACL of the own znode: for both the server has put the identities in place of the scheme "auth".
func (t *Ticket) verify(ctx context.Context) error {
	if !t.q.VerifyACL {
		return nil
	}
	acls, err := t.s.ACLs(ctx, t.node, t.q.Dir)
	switch {
	case errors.Is(err, zk.ErrNoNode):
		return ErrGone
	case err != nil:
		return fmt.Errorf("verifying the ACL of %s: %w", t.q.Dir, err)
	}
	if diff := compareACL(acls[0], acls[1]); diff != "" {
		return fmt.Errorf("%w: the ACL of %s differs from the lock's: it %s", ErrConflict, t.q.Dir, diff)
	}
	return nil
}

// compareACL says in words what have grants beyond want, and does not grant of it; "" when they are the same.
func compareACL(want, have []zk.ACL) string {
	w, h := grants(want), grants(have)
	var diff []string
	for who, perms := range h {
		if more := perms &^ w[who]; more != 0 {
			diff = append(diff, "grants "+letters(more)+" to "+text.Foreign(who))
		}
	}
	for who, perms := range w {
		if less := perms &^ h[who]; less != 0 {
			diff = append(diff, "does not grant "+letters(less)+" to "+text.Foreign(who))
		}
	}
	slices.Sort(diff)
	return strings.Join(diff, ", ")
}

func grants(acl []zk.ACL) map[string]int32 {
	m := map[string]int32{}
	for _, a := range acl {
		m[a.Scheme+":"+a.ID] |= a.Perms & zk.PermAll
	}
	return m
}

// letters writes permissions as ZooKeeper's own tools do.
func letters(perms int32) string {
	var b strings.Builder
	for _, p := range []struct {
		perm   int32
		letter byte
	}{{zk.PermCreate, 'c'}, {zk.PermDelete, 'd'}, {zk.PermRead, 'r'}, {zk.PermWrite, 'w'}, {zk.PermAdmin, 'a'}} {
		if perms&p.perm != 0 {
			b.WriteByte(p.letter)
		}
	}
	return b.String()
}
