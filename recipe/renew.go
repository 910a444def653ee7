package recipe

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/locker/internal/text"
	"github.com/zklock/locker/session"
)

// A directory's counter comes to its end after 2³¹ creates (see order.go), and starts again only with a new directory. So
// a directory is renewed, deleted and made again with the same data, ACL and kind in one transaction, when
//
//   - a contender with a number past renewFrom, half of the way, has left, and no contender is left in it; and when
//   - a contender that would have to wait gets a number past lateFrom, three quarters of the way. That
//     happens only if the directory has stayed non-empty for half a billion creates, because its waiters keep it so. So
//     this one leaves, waits outside until those before it have gone, then renews the directory if it is empty, and takes
//     a new place. It does so a few times at most: where the directory is kept busy, by other clients or by contenders
//     that need not wait, it queues inside all the same.
//
// An ordinary directory costs no request: the number in our own name says how far the counter is.
//
// Safety. The server deletes only a directory that has no child, whatever else has been seen of it; so no contender in line is
// affected, and a create is made before, and keeps the directory from being deleted, or after, in the new one. What the
// numbers promise holds within one life of the directory. The delete carries the version of the data that are written
// back: a write in between is not lost. (One of the ACL is, since its version can't be asked for. And a writer of the
// data that has read version v before the renewal can't tell it from version v of the new directory.) Tokens are czxids,
// which grow all the same. A watch on the directory reports a deletion.
//
// A contender that waits outside has no place in line, so those that come in together when the line has drained are not in
// order of arrival: once in half of the counter's life.

// renewFrom is half of the counter's way.
const renewFrom = 1 << 30

// errNotRenewed says that a directory can't be renewed by us, now or ever.
var errNotRenewed = errors.New("recipe: directory is not renewed")

// renew replaces the directory, if it is empty, by one that is the same but for its counter. An error that matches
// zk.ErrNotEmpty says that the directory has a child, and that nothing else keeps it from being renewed.
func (q *Queue) renew(ctx context.Context, s *session.Session) error {
	data, stat, err := s.Get(ctx, q.Dir)
	if err != nil {
		return err
	}
	if NewListing(nil, stat).Counter < renewFrom {
		return errNotRenewed // another call has just renewed it
	}
	acl, _, err := s.ACL(ctx, q.Dir)
	if err != nil {
		return err
	}
	for _, a := range acl {
		if a.Scheme == "digest" && strings.HasSuffix(a.ID, ":x") {
			return fmt.Errorf("%w: the digests of its ACL are not shown to us", errNotRenewed)
		}
	}
	dir := &zk.CreateRequest{Path: q.Dir, Data: data, Acl: acl, Flags: int32(session.Persistent)}
	ops := []any{&zk.DeleteRequest{Path: q.Dir, Version: stat.Version}, dir}
	// No request tells whether a directory is a container. Where we would make one, it is taken for one, unless another
	// program keeps data there, which must not go with it.
	if _, ours := parseData(data); q.Container && ours {
		// The ensemble leaves a container alone that never had a child; so this one gets one.
		dir.Flags = int32(session.Container)
		first := q.Dir + "/" + newID()
		ops = append(ops, &zk.CreateRequest{Path: first, Acl: q.ACL, Flags: int32(session.Persistent)},
			&zk.DeleteRequest{Path: first, Version: -1})
	}
	_, err = s.Multi(ctx, ops...)
	return err
}

// renewed renews the directory in the background when a znode of ours has gone from it, if it is time to and no child is
// left. A failure needs no report: the next one that leaves tries again.
func (e *entry) renewed() {
	if n, _ := Parse(e.name()); n.Number >= 0 && n.Number < renewFrom {
		return
	}
	s, q := e.t.s, e.q
	s.Go(func(ctx context.Context) {
		stat, err := s.Exists(ctx, q.Dir)
		if err == nil && stat.NumChildren == 0 && NewListing(nil, stat).Counter >= renewFrom {
			_ = q.renew(ctx, s)
		}
	})
}

// asideTimes is how often one waits outside before it stays in line.
const asideTimes = 3

// If any place is near the counter's end, standAside leaves all queues, waits until the contenders before it have gone, and
// enters again.
func (t *Ticket) standAside(ctx context.Context) error {
	for range asideTimes {
		var aside *entry
		var before string
		for _, e := range t.entries {
			var err error
			if before, err = e.asideFor(ctx); err != nil {
				return (&waiter{t: t, e: e}).explain(ctx, err)
			}
			if before != "" {
				aside = e
				break
			}
		}
		if aside == nil {
			return nil
		}
		err := t.leaveQueues(ctx)
		if err == nil {
			err = AwaitGone(ctx, t.s, aside.q.Dir, before)
		}
		if err == nil {
			_ = aside.q.renew(ctx, t.s) // if others have come in since, we queue behind them
			err = t.enter(ctx)
		}
		if err != nil {
			return (&waiter{t: t, e: aside}).explain(ctx, err)
		}
	}
	return nil
}

// asideFor returns the contender that an entry had better wait for outside; "" for one that had better stay. A
// semaphore's contender stays in line: those before it may go in any order, and none of them tells when it is its turn.
func (e *entry) asideFor(ctx context.Context) (before string, err error) {
	if n, _ := Parse(e.name()); !Late(n.Number) || n.Kind == Permits {
		return "", nil
	}
	names := e.names
	v, err := e.decide(ctx)
	e.names = names
	if err != nil || !v.Present || v.Holds {
		return "", err
	}
	if err := e.q.renew(ctx, e.t.s); !errors.Is(err, zk.ErrNotEmpty) {
		return "", ctx.Err() // it can't be renewed by us: there is nothing to wait for outside
	}
	e.line = Line{Ahead: v.Ahead, Holder: e.q.Dir + "/" + kept(v.First),
		Who: text.Foreign(v.First) + " (outside until the line has drained: the directory's counter is near its end)"}
	e.q.queued(e.line)
	return v.Watch, nil
}
