package queue

import (
	"context"
	"fmt"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/locker/internal/session"
	"github.com/zklock/locker/internal/text"
	"github.com/zklock/locker/recipe"
)

// checkDirectories returns ErrConflict if a directory is in use by another kind of lock, and
// discards the ticket's znodes on any error.
func (t *Ticket) checkDirectories(ctx context.Context) error {
	for _, e := range t.entries {
		if err := e.checkDirectory(ctx); err != nil {
			discard(t.entries...)
			return err
		}
	}
	return nil
}

// checkDirectory returns ErrConflict if the directory is in use by another kind of lock. A
// candidate that has stepped aside was accepted when it first entered. A contender that came later
// can't change that. The verdict is kept with the list, and Wait's first decision uses it.
func (e *entry) checkDirectory(ctx context.Context) error {
	if e.q.Since > 0 {
		return nil
	}
	entered := e.entryList
	verdict := recipe.Decide(entered.list.Listing, e.name(), e.size, nil)
	entered.decision = decision{verdict, e.size}
	entered.list.decided = &entered.decision
	return e.q.conflict(ctx, e.t.s, verdict.OtherKinds, e.t.czxid)
}

// conflict returns ErrConflict if one of others, contenders of other kinds in the directory,
// belongs to a lock in use: it is ephemeral, and older than our own znode, whose czxid is ownCzxid
// (MaxInt64 if there is none yet). A persistent znode was left over or forged, and so may one be
// that we can't read. Both are ignored, so that no client can block a lock forever with one znode.
func (q *Queue) conflict(
	ctx context.Context, s *session.Session, others []string, ownCzxid int64,
) error {
	if len(others) == 0 {
		return nil
	}
	nodes, err := s.StatsBelow(ctx, q.Dir, others)
	if err != nil {
		return err
	}
	for i, n := range nodes {
		if n.Err != nil || !ephemeral(n.Stat) || n.Stat.Czxid >= ownCzxid {
			continue
		}
		name, _ := recipe.Parse(others[i])
		return neighbourError{fmt.Errorf("%w: %s is the directory of a %s (%s), not of a %s",
			ErrConflict, q.Dir, name.Kind, text.Foreign(others[i]), q.Kind)}
	}
	return nil
}

// ephemeral reports whether a session owns the znode. The owner field of a container, or of a znode
// with a time to live, is not zero either.
func ephemeral(stat zk.Stat) bool {
	const container, timeToLive = -1 << 63, 0xff
	owner := stat.EphemeralOwner
	return owner != 0 && owner != container && uint64(owner)>>56 != timeToLive
}
