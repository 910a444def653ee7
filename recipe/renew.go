package recipe

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/locker/internal/text"
	"github.com/zklock/locker/session"
)

// A directory's counter comes to its end after 2³¹ creates (see order.go), and begins anew only with a new directory. So
// a directory is renewed, deleted and made again with the same data, ACL and kind in one transaction, when
//
//   - a contender with a number past renewFrom, half of the way, has left and nobody is left in it; and when
//   - a contender that would have to wait gets a number past lateFrom, three quarters of the way. By then the directory
//     has not been empty for half a billion creates, since whoever has to wait does it inside. So this one leaves,
//     waits outside until those before it have gone, and then renews the directory, if that is empty by then, and takes
//     a new place. It does so a few times at most: where the directory is kept busy, by other clients or by those who
//     need not wait, it queues inside all the same.
//
// An ordinary directory costs no request: the number in the own name says how far the counter is.
//
// Safety. The server deletes only a directory that has no child, whatever else has been seen of it; so nobody who stands
// in line is affected, and a create is made before, and keeps the directory from being deleted, or after, in the new
// one. What the numbers promise holds within one life of the directory. The delete carries the version of the data that
// are written back: a write in between is not lost. (One of the ACL is, since its version can't be asked for. And a
// writer of the data that has read version v before the renewal can't tell it from version v of the new directory.)
// Tokens are czxids, which grow all the same. A watch on the directory tells of a deletion.
//
// Who stands in line outside has no place there, so those who come in together when the line has drained are not in
// order of arrival: once in half of the counter's life.

// renewFrom is half of the counter's way.
const renewFrom = 1 << 30

// errNotRenewed says that a directory can't be renewed by us, now or ever.
var errNotRenewed = errors.New("recipe: directory is not renewed")

// renew replaces the directory, if it is empty, by one that is the same but for its counter. An error that matches
// zk.ErrNotEmpty says that somebody stands in it and that it could be renewed otherwise.
func (q Queue) renew(ctx context.Context, s *session.Session) error {
	data, stat, err := s.Get(ctx, q.Dir)
	if err != nil {
		return err
	}
	if NewListing(nil, stat).Counter < renewFrom {
		return errNotRenewed // somebody else has just done it
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
	// No request tells whether a directory is a container. Where we would make one, it is taken for one, unless somebody
	// else keeps data there, which must not go with it.
	if _, ours := parseState(data); q.Container && ours {
		// The ensemble leaves a container alone that never had a child; so this one gets one.
		dir.Flags = int32(session.Container)
		first := q.Dir + "/" + newID()
		ops = append(ops, &zk.CreateRequest{Path: first, Acl: q.ACL, Flags: int32(session.Persistent)},
			&zk.DeleteRequest{Path: first, Version: -1})
	}
	_, err = s.Multi(ctx, ops...)
	return err
}

// renewed renews the directory in the background when a znode of ours has gone from it, if it is time to and nobody is
// left. Nobody is told when that fails: the next one who leaves tries again.
func (t *Ticket) renewed() {
	if n, _ := Parse(path.Base(t.node)); n.Number >= 0 && n.Number < renewFrom {
		return
	}
	q := t.q
	t.s.Go(func(ctx context.Context) {
		stat, err := t.s.Exists(ctx, q.Dir)
		if err == nil && stat.NumChildren == 0 && NewListing(nil, stat).Counter >= renewFrom {
			_ = q.renew(ctx, t.s)
		}
	})
}

// asideTimes is how often one waits outside before it stays in line.
const asideTimes = 3

// standAside gives the place up if it is so near the counter's end that it had better wait outside, does that, and takes
// a new place. An error other than ErrGone is of ctx, the session or the ensemble.
func (t *Ticket) standAside(ctx context.Context) error {
	for range asideTimes {
		v, err := t.asideFor(ctx)
		if err != nil || v.Watch == "" {
			return err
		}
		if err := t.Leave(ctx); err != nil {
			return err
		}
		if err := t.outside(ctx, v.Watch); err != nil {
			return err
		}
		fresh, err := t.q.Enter(ctx, t.s)
		if err != nil {
			return err
		}
		*t = *fresh
	}
	return nil
}

// asideFor returns the verdict for a ticket that had better wait outside; none for any other. A semaphore's contender
// stays in line: those before it may go in any order, and none of them tells when it is its turn.
func (t *Ticket) asideFor(ctx context.Context) (Verdict, error) {
	if n, _ := Parse(path.Base(t.node)); !Late(n.Number) || n.Kind == Permits {
		return Verdict{}, nil
	}
	names := t.names
	v, err := t.decide(ctx)
	t.names = names
	if err != nil || !v.Present || v.Holds() {
		return Verdict{}, err
	}
	if err := t.q.renew(ctx, t.s); !errors.Is(err, zk.ErrNotEmpty) {
		return Verdict{}, ctx.Err() // it can't be renewed by us: there is nothing to wait for outside
	}
	t.line = Line{Ahead: v.Ahead, Holder: t.q.Dir + "/" + kept(v.Head),
		Who: text.Foreign(v.Head) + " (outside until the line has drained: the directory's counter is near its end)"}
	if t.q.Queued != nil {
		t.q.Queued(t.line)
	}
	return v, nil
}

// lookOutside is how often one who waits outside looks for himself: whoever may not read a znode may not hear of its end.
const lookOutside = 10 * time.Second

// outside waits until before has gone, and then renews the directory if it can.
func (t *Ticket) outside(ctx context.Context, before string) error {
	look := time.NewTicker(lookOutside)
	defer look.Stop()
	for {
		w, err := t.s.Watch(ctx, t.q.Dir+"/"+before)
		if errors.Is(err, zk.ErrNoAuth) {
			return nil
		}
		if err != nil {
			return err
		}
		if !w.Exists {
			w.Close()
			_ = t.q.renew(ctx, t.s) // if somebody has come in since, we queue behind him
			return nil
		}
		select {
		case <-w.Fired():
		case <-look.C:
		case <-t.s.Done():
			err = t.s.Err()
		case <-ctx.Done():
			err = ctx.Err()
		}
		w.Close()
		if err != nil {
			return err
		}
	}
}

// standAside is Ticket.standAside for a group, which gives up all its places if one of them is to wait outside.
func (g *Group) standAside(ctx context.Context) error {
	for range asideTimes {
		var aside *Ticket
		var before string
		for _, t := range g.tickets {
			v, err := t.asideFor(ctx)
			if err != nil {
				return err
			}
			if v.Watch != "" {
				aside, before = t, v.Watch
				break
			}
		}
		if aside == nil {
			return nil
		}
		if err := g.Leave(ctx); err != nil {
			return err
		}
		if err := aside.outside(ctx, before); err != nil {
			return aside.waited(ctx, err)
		}
		queues := make([]Queue, len(g.tickets))
		for i, t := range g.tickets {
			queues[i] = t.q
		}
		fresh, err := EnterAll(ctx, g.Session(), queues)
		if err != nil {
			return err
		}
		*g = *fresh
	}
	return nil
}
