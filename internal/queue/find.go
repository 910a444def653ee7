package queue

import (
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/locker/internal/session"
)

// find searches for the znodes of creates whose reply was lost. If there is a complete set, it
// adopts the oldest one and returns true. A set is complete if it has a znode in each queue, all
// made by one transaction.
//
// find never adopts znodes of two transactions. Such a ticket could be ahead of another ticket in
// one queue and behind it in the next, and both would wait for each other.
//
// There may be two sets if an earlier search has missed one: findLost has the sweeper delete the
// other. If there are znodes but no complete set, another client has deleted some, or this search
// has missed one. They would stand in line before our next znodes, so the sweeper deletes them. The
// entries get new ids, so that no later search adopts what is about to be deleted.
func (t *Ticket) find(ctx context.Context) (bool, error) {
	found := make([]foundZnodes, len(t.entries))
	none := true
	for i, e := range t.entries {
		var err error
		if found[i], err = e.find(ctx); err != nil {
			return false, err
		}
		none = none && len(found[i].byCzxid) == 0
	}
	if none {
		return false, nil
	}
	czxid, ok := oldestComplete(found)
	if !ok {
		t.sweepOthers()
		t.newPrefixes()
		return false, nil
	}
	t.czxid = czxid
	for i, e := range t.entries {
		e.placed(found[i].byCzxid[czxid], found[i].list)
	}
	return true, nil
}

// foundZnodes are this session's znodes of one entry's id.
type foundZnodes struct {
	byCzxid map[int64]string // their paths
	list    listing          // that shows them
}

// oldestComplete returns the lowest czxid for which each of found has a znode.
func oldestComplete(found []foundZnodes) (czxid int64, ok bool) {
	for _, czxid := range slices.Sorted(maps.Keys(found[0].byCzxid)) {
		missing := func(f foundZnodes) bool { return f.byCzxid[czxid] == "" }
		if !slices.ContainsFunc(found, missing) {
			return czxid, true
		}
	}
	return 0, false
}

// find searches for this session's znodes of our id. It also tells the session's count of ephemeral
// znodes what it has found.
func (e *entry) find(ctx context.Context) (foundZnodes, error) {
	s := e.t.s
	if err := s.Sync(ctx, e.q.Dir); err != nil {
		return foundZnodes{}, err
	}
	own, children, err := listOwn(ctx, s, e.q.Dir, e.prefix)
	if err != nil {
		return foundZnodes{}, err
	}
	s.Found(e.createPath, "", 0) // a znode that a create made and this search does not find is gone
	found := foundZnodes{map[int64]string{}, newListing(children.Names, children.Stat)}
	for _, znode := range own {
		found.byCzxid[znode.Czxid] = znode.Path
		s.Found(e.createPath, znode.Path, znode.Czxid)
	}
	return found, nil
}

// sweepOthers schedules the deletion of all znodes of the entries' present ids that this ticket
// created, or may have created, and did not adopt.
func (t *Ticket) sweepOthers() {
	for _, e := range t.entries {
		create := doubtfulCreate{dir: e.q.Dir, prefix: e.prefix, adopted: e.node}
		sharedIn(t.s).sweeper.sweep(leftovers{creates: []doubtfulCreate{create}})
	}
}

// listOwn lists dir, and returns those of its children that are this session's and were made with
// one of prefixes. A missing directory has none.
func listOwn(
	ctx context.Context, s *session.Session, dir string, prefixes ...string,
) (own []session.Created, all session.Children, err error) {
	all.Names, all.Stat, err = s.List(ctx, dir)
	if errors.Is(err, zk.ErrNoNode) {
		return nil, all, nil
	}
	if err != nil {
		return nil, all, err
	}
	var candidates []string
	for _, name := range all.Names {
		ours := func(prefix string) bool { return madeWith(prefix, name) }
		if slices.ContainsFunc(prefixes, ours) {
			candidates = append(candidates, name)
		}
	}
	own, err = ownBelow(ctx, s, dir, candidates)
	return own, all, err
}

// ownBelow returns those of names, children of dir with an id of ours, that are this session's. It
// returns an error if a server did not say whose a znode is.
func ownBelow(
	ctx context.Context, s *session.Session, dir string, names []string,
) (own []session.Created, err error) {
	nodes, err := s.StatsBelow(ctx, dir, names)
	for i, n := range nodes {
		switch {
		case n.Err == nil && n.Stat.EphemeralOwner == s.ID():
			own = append(own, session.Created{Path: dir + "/" + names[i], Czxid: n.Stat.Czxid})
		case n.Err == nil, errors.Is(n.Err, zk.ErrNoNode):
			// It is another client's, or gone, or its session is over and the server removes it.
		default:
			err = n.Err
		}
	}
	return own, err
}

// removeStrays deletes the strays among names, a list of the directory: this session's other znodes
// of our id. See "How a ticket enters". Checking the names costs no request.
func (e *entry) removeStrays(names []string) {
	var strays []string
	ownName := e.name()
	for _, name := range names {
		if name != ownName && e.checked < straysMax && madeWith(e.prefix, name) {
			strays = append(strays, name)
			e.checked++
		}
	}
	if len(strays) == 0 {
		return
	}
	s, dir := e.t.s, e.q.Dir
	s.Go(func(ctx context.Context) {
		// Repeated until the server says whose they are: we may be waiting for one of them.
		persist(ctx, func() error {
			own, err := ownBelow(ctx, s, dir, strays)
			for _, stray := range own {
				sharedIn(s).sweeper.sweep(leftovers{znodes: []string{stray.Path}})
			}
			return err
		})
	})
}

// straysMax bounds the names that an entry checks in all its lists: a neighbour may make any number
// with its prefix.
const straysMax = 16
