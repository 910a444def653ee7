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

// verify refuses a directory whose ACL is not the one that the queue's has, or would have if it were made: another client
// has made it, or has changed it. A client with DELETE on it may delete any contender, whatever the contender's own ACL.
// It is asked of the directory that our own znode is in, which can't be another one before the znode has gone, and
// compared with the ACL of our own znode: for both the server has put the identities in place of the scheme "auth".
func (e *entry) verify(ctx context.Context) error {
	if !e.q.VerifyACL {
		return nil
	}
	b := e.t.s.Batch()
	own, dir := b.ACL(e.node), b.ACL(e.q.Dir)
	err := b.Do(ctx)
	switch {
	case errors.Is(err, zk.ErrNoNode):
		return ErrGone
	case err != nil:
		return fmt.Errorf("verifying the ACL of %s: %w", e.q.Dir, err)
	}
	if diff := compareACL(own.Value.List, dir.Value.List); diff != "" {
		return fmt.Errorf("%w: the ACL of %s differs from the lock's: it %s", ErrConflict, e.q.Dir, diff)
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
