package recipe

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/locker/internal/text"
	"github.com/zklock/locker/internal/trusted"
	"github.com/zklock/locker/session"
)

// Queue is a directory, and what a contender wants in it.
type Queue struct {
	Dir     string // the directory: the lock's path
	Kind    Kind   // what is wanted
	Permits int    // how many, for the kind Permits
	Size    *Size  // the semaphore's size, for the kind Permits
	Held    int    // permits of the same semaphore that the caller has, and does not release before it has these

	ACL       []zk.ACL // of the directory, of missing parents, and of the contenders' znodes
	VerifyACL bool     // refuse a directory that has another ACL
	Container bool     // make the directory a container, which the ensemble removes when it is empty
	Data      []byte   // of the contender's znode: who we are

	Delays bool          // this lock's holders have lock delays; all contenders of a directory have them, or none
	Delay  time.Duration // ours: see delay.go

	// Describe makes a name for messages of the data of a contender's znode, "" of data without one; nil: none is made, and
	// nothing is read for it.
	Describe func(data []byte) string
	// Queued, if not nil, is called with the place in line once it has been taken, and again whenever it, or the holder,
	// is known to have changed.
	Queued func(Line)
	// Retried, if not nil, is called when an attempt to take a place has failed and is made again.
	Retried func(error)
}

// newPrefix returns what the name of a new contender begins with, up to the number.
func (q *Queue) newPrefix() string {
	prefix := newID() + q.Kind.label()
	if q.Kind == Permits {
		prefix += strconv.Itoa(q.Permits) + "-"
	}
	return prefix
}

// makeDir makes the directory, with data, and its missing parents.
func (q *Queue) makeDir(ctx context.Context, s *session.Session, data []byte) error {
	mode := session.Persistent
	if q.Container {
		mode = session.Container
	}
	return q.refused(s.CreateAllGrouped(ctx, trusted.Caller{}, q.Dir, data, mode, q.ACL))
}

// refused explains a directory that can't have children: it is a contender's znode, or another ephemeral one.
func (q *Queue) refused(err error) error {
	if errors.Is(err, zk.ErrNoChildrenForEphemerals) {
		return fmt.Errorf("%w: %s, or a parent of it, is ephemeral and can't be a lock's directory: %w", ErrConflict, q.Dir, err)
	}
	return err
}

func (q *Queue) retried(err error) {
	if q.Retried != nil {
		q.Retried(err)
	}
}

func (q *Queue) queued(l Line) {
	if q.Queued != nil {
		q.Queued(l)
	}
}

// conflict returns ErrConflict when one of others, contenders of other kinds in the directory, belongs to a lock in use: it
// is ephemeral, and was made before the zxid before. A znode that is not ephemeral is no client's contender but a leftover or
// made up, and one that may not be read cannot be told from that: both are ignored, so that no client can close a lock for ever
// by one znode.
func (q *Queue) conflict(ctx context.Context, s *session.Session, others []string, before int64) error {
	if len(others) == 0 {
		return nil
	}
	nodes, err := s.StatsBelow(ctx, q.Dir, others)
	if err != nil {
		return err
	}
	for i, n := range nodes {
		if n.Err != nil || !ephemeral(n.Stat) || n.Stat.Czxid >= before {
			continue
		}
		name, _ := Parse(others[i])
		return neighbourError{fmt.Errorf("%w: %s is the directory of a %s (%s), not of a %s", ErrConflict, q.Dir, name.Kind,
			text.Foreign(others[i]), q.Kind)}
	}
	return nil
}

// ephemeral reports whether a znode goes with a session. The owner of a container, and of a znode with a time to live, is
// a mark in the highest bit or byte.
func ephemeral(stat zk.Stat) bool {
	const container, timeToLive = -1 << 63, 0xff
	owner := stat.EphemeralOwner
	return owner != 0 && owner != container && uint64(owner)>>56 != timeToLive
}
