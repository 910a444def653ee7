package queue

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/locker/internal/session"
	"github.com/zklock/locker/internal/text"
	"github.com/zklock/locker/recipe"
)

// Enter takes a place at the end of each of the queues, all or none, and makes missing directories. It does not wait for
// its turn: see Wait. It takes one round trip if the directories exist, and waits for a connection until ctx ends. The
// queues are of different directories, one kind and one ACL. A semaphore's size is found out first.
//
// When it returns an error there is no ticket, and nothing is left behind: znodes that may have been made are deleted as
// soon as the ensemble can be reached, or go with the session. ErrConflict: a directory belongs to another kind of lock, or
// can't have such children; or a semaphore's directory has foreign data. session.ErrConfig: a call asks
// for less than one permit, or more than there are. ErrDeadlock: it waits for permits that its caller holds.
func Enter(ctx context.Context, s *session.Session, queues ...Queue) (*Ticket, error) {
	t := newTicket(s, queues)
	if err := t.readSizes(ctx); err != nil {
		return nil, err
	}
	if err := t.enter(ctx); err != nil {
		return nil, err
	}
	return t, nil
}

// Try returns a ticket that holds, as after Wait, or an error that matches ErrBusy and names the holder. It never waits for
// another contender. While one is in the way in any of the queues, it costs a list of each directory and, unless the
// holder's name is known already, two more reads, for which it waits for WatchAfter at most.
//
// Other errors are those of Enter and Wait. After any error nothing is left behind.
func Try(ctx context.Context, s *session.Session, queues ...Queue) (*Ticket, error) {
	t := newTicket(s, queues)
	t.try = true
	err := t.tryToHold(ctx)
	if err == nil {
		return t, nil
	}
	if busy := (*busyError)(nil); errors.As(err, &busy) && busy.line.Who == "" { // our own place is given up
		ctx, cancel := context.WithTimeout(ctx, WatchAfter)
		defer cancel()
		busy.line.Who = sharedIn(s).descriptions.who(ctx, t.entries[0].q.Describe, busy.line.Holder)
	}
	return nil, err
}

func newTicket(s *session.Session, queues []Queue) *Ticket {
	t := &Ticket{s: s}
	for _, q := range queues {
		t.entries = append(t.entries, &entry{t: t, q: &q})
	}
	return t
}

// newPrefix returns the name of a new contender up to the number.
func (q *Queue) newPrefix() string {
	return newID() + recipe.Name{Kind: q.Kind, Permits: q.Permits, Rank: q.Rank, Since: q.Since}.Label()
}

// newID returns a fresh id for one znode: "_c_" and a random UUID (version 4, lower case).
func newID() string {
	var b [16]byte
	rand.Read(b[:]) // never fails: crypto/rand ends the program instead
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	u := hex.EncodeToString(b[:])
	return "_c_" + u[:8] + "-" + u[8:12] + "-" + u[12:16] + "-" + u[16:20] + "-" + u[20:]
}

// listed notes a list of the directory. A zero Stat says that it is not known.
func (e *entry) listed(l session.Children) {
	e.names, e.counter, e.pzxid = l.Names, recipe.NewListing(nil, l.Stat).Counter, l.Stat.Pzxid
}

// tryToHold is Try without the holder's name.
func (t *Ticket) tryToHold(ctx context.Context) error {
	for _, step := range []func(context.Context) error{t.readSizes, t.lookBeforeEntering, t.enter} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	err := t.Wait(ctx)
	if err == nil {
		return nil
	}
	// Another contender entered between the list and the create. Our place must not keep others waiting.
	_ = t.Leave(ctx) // if ctx ends, the deletion goes on in the background
	return err
}

func (t *Ticket) readSizes(ctx context.Context) error {
	for _, e := range t.entries {
		if !e.q.Kind.Sized() {
			continue
		}
		var err error
		if e.size, err = e.q.Size.agree(ctx, t.s, e.q, t.try); err != nil {
			return err
		}
	}
	return nil
}

// lookBeforeEntering lists each directory, and returns ErrBusy when a contender that entered now would not hold.
func (t *Ticket) lookBeforeEntering(ctx context.Context) error {
	b := t.s.Grouped()
	lists := t.addLists(b)
	_ = b.Do(ctx) // each list has its own error
	for i, e := range t.entries {
		if err := lists[i].Err; err != nil && !errors.Is(err, zk.ErrNoNode) { // a missing directory has no children
			return err
		}
		v := recipe.Foresee(lists[i].Value.Names, e.q.Kind, e.q.Permits, e.size)
		if err := e.q.conflict(ctx, t.s, v.OtherKinds, math.MaxInt64); err != nil {
			return err
		}
		if !v.Holds {
			return &busyError{Line{Ahead: v.Ahead, Holder: e.q.Dir + "/" + kept(v.First)}}
		}
	}
	return nil
}

func (t *Ticket) enter(ctx context.Context) (err error) {
	// doubt: a create may have been carried out, although one look did not find its znode: see sweeper.work. If another
	// create succeeds, the list behind it is the second look (removeStrays). If the call ends first, or its znodes are found
	// by a look, which may have missed others, the sweeper looks.
	doubt := false
	defer func() {
		if err != nil && doubt {
			t.sweepOthers()
		}
	}()
	for _, e := range t.entries {
		e.prefix = e.q.newPrefix()
	}
	tried := false // a transaction has tried to make the directory too
	for {
		err := t.create(ctx)
		noDir := t.entries[0].node == "" && errors.Is(err, zk.ErrNoNode)
		if noDir && !tried && len(t.entries) == 1 {
			tried = true
			if err = t.createWithDir(ctx, t.entries[0]); errors.Is(err, zk.ErrNodeExists) {
				continue // another client was quicker to make the directory
			}
			noDir = errors.Is(err, zk.ErrNoNode) || refusal(err) // parents are missing, or we may not create in them
		}
		switch {
		case err == nil:
			return t.checkDirectories(ctx)
		case t.entries[0].node != "": // they were made, but the list failed
			discard(t.entries...)
			return asGone(err) // no directory: our znode, and then the directory, were deleted after the create
		case noDir:
			for _, e := range t.entries {
				if err := e.q.makeDir(ctx, t.s, e.size); err != nil {
					return err
				}
			}
		case errors.Is(err, session.ErrNoReply):
			found, findErr := t.find(ctx)
			if found && doubt {
				t.sweepOthers()
			}
			doubt = doubt || !found
			if findErr != nil {
				if isEnd(ctx, t.s, err) {
					return err // it says what it waited for
				}
				return findErr
			}
			if found {
				return t.checkDirectories(ctx)
			}
			t.entries[0].q.Caller.Retried(err)
		default:
			doubt = doubt || !refusal(err)
			return t.entries[0].q.refused(err)
		}
	}
}

// create makes the znodes, sets their paths, and lists the directories, in one round trip. If only a list
// fails, the paths are set.
func (t *Ticket) create(ctx context.Context) error {
	if len(t.entries) == 1 {
		return t.createOne(ctx, t.entries[0])
	}
	b := t.s.Grouped()
	ops := make([]session.Op, len(t.entries))
	for i, e := range t.entries {
		ops[i] = e.request()
	}
	made, lists := b.Multi(ops...), t.addLists(b)
	err := b.Do(ctx)
	if made.Err != nil {
		return err
	}
	t.czxid = made.Value.Zxid
	for i, e := range t.entries {
		e.node = made.Value.Responses[i].String
		e.listed(lists[i].Value)
	}
	return err
}

// request returns the create of the znode, for a transaction.
func (e *entry) request() session.OpCreate {
	return session.OpCreate{Path: e.q.Dir + "/" + e.prefix, Data: e.q.Data, ACL: e.q.ACL, Mode: session.EphemeralSequential}
}

func (t *Ticket) createOne(ctx context.Context, e *entry) error {
	b := t.s.Grouped()
	made := b.Create(e.q.Dir+"/"+e.prefix, e.q.Data, session.EphemeralSequential, e.q.ACL)
	list := b.List(e.q.Dir)
	err := b.Do(ctx)
	if made.Err != nil {
		return err
	}
	e.node, t.czxid = made.Value.Path, made.Value.Czxid
	e.listed(list.Value)
	return err
}

// createWithDir makes the directory and the znode in one transaction: the znode is its only child, and no list is needed.
func (t *Ticket) createWithDir(ctx context.Context, e *entry) error {
	b := t.s.Grouped()
	made := b.Multi(e.q.request(e.size), e.request())
	if err := b.Do(ctx); err != nil {
		return err
	}
	e.node, t.czxid = made.Value.Responses[1].String, made.Value.Zxid
	e.listed(session.Children{Names: []string{e.name()}})
	return nil
}

func (t *Ticket) addLists(b *session.Batch) []*session.Result[session.Children] {
	lists := make([]*session.Result[session.Children], len(t.entries))
	for i, e := range t.entries {
		lists[i] = b.List(e.q.Dir)
	}
	return lists
}

// refusal reports whether the error of a create proves that nothing was made: the request was never sent, or the server
// refused it. Any other code, from a server in trouble or from something that is not ZooKeeper, proves nothing.
func refusal(err error) bool {
	return session.IsOne(err, session.ErrNotSent, zk.ErrNoAuth, zk.ErrInvalidACL, zk.ErrNoChildrenForEphemerals, zk.ErrNodeExists,
		zk.ErrBadArguments, session.ErrExpired, session.ErrClosed, session.ErrPath)
}

// checkDirectories refuses a directory of another kind, and has strays removed.
func (t *Ticket) checkDirectories(ctx context.Context) error {
	for _, e := range t.entries {
		err := e.q.conflict(ctx, t.s, recipe.Decide(e.listing(), e.name(), e.size, nil).OtherKinds, t.czxid)
		if err != nil {
			discard(t.entries...)
			return err
		}
		e.removeStrays()
	}
	return nil
}

// conflict returns ErrConflict when one of others, contenders of other kinds in the directory, belongs to a lock in use: it
// is ephemeral, and was made before the zxid before. A persistent znode is a leftover or made up, and an unreadable one may
// be: both are ignored, so that no client can close a lock for ever with one znode.
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
		name, _ := recipe.Parse(others[i])
		return neighbourError{fmt.Errorf("%w: %s is the directory of a %s (%s), not of a %s", ErrConflict, q.Dir, name.Kind,
			text.Foreign(others[i]), q.Kind)}
	}
	return nil
}

// ephemeral reports whether a znode's owner is a session. That of a container, or of one with a time to live, is not.
func ephemeral(stat zk.Stat) bool {
	const container, timeToLive = -1 << 63, 0xff
	owner := stat.EphemeralOwner
	return owner != 0 && owner != container && uint64(owner)>>56 != timeToLive
}

// find looks for the znodes after a create whose reply was lost, and adopts those of one transaction: the places of two may
// be in another order to other tickets in each queue, and two tickets would wait for each other. There may be two if an
// earlier look has missed some: the first one that has a znode in each queue is adopted. If none has, other clients have
// deleted znodes. What is left would block our next attempt: the sweeper deletes it, and the attempt gets another id, so
// that no later look adopts what is about to be deleted.
func (t *Ticket) find(ctx context.Context) (bool, error) {
	own := make([]map[int64]string, len(t.entries)) // of each entry, the znodes by their czxids
	none := true
	for i, e := range t.entries {
		var err error
		if own[i], err = e.find(ctx); err != nil {
			return false, err
		}
		none = none && len(own[i]) == 0
	}
	if none { // most likely not made, but one look may miss it: see Ticket.enter
		return false, nil
	}
	for _, czxid := range slices.Sorted(maps.Keys(own[0])) {
		missing := func(znodes map[int64]string) bool { return znodes[czxid] == "" }
		if !slices.ContainsFunc(own, missing) {
			t.czxid = czxid
			for i, e := range t.entries {
				e.node = own[i][czxid]
			}
			return true, nil
		}
	}
	t.sweepOthers()
	for _, e := range t.entries {
		e.prefix = e.q.newPrefix()
	}
	return false, nil
}

// sweepOthers has all znodes deleted that creates of this ticket have made or may have made, but for its own.
func (t *Ticket) sweepOthers() {
	for _, e := range t.entries {
		sharedIn(t.s).sweeper.sweep(leftovers{creates: []doubtfulCreate{{e.q.Dir, e.prefix, e.node}}})
	}
}

// find looks for this session's znodes that were made with our prefix, and returns them by their czxids.
func (e *entry) find(ctx context.Context) (map[int64]string, error) {
	if err := e.t.s.Sync(ctx, e.q.Dir); err != nil {
		return nil, err
	}
	own, seen, err := look(ctx, e.t.s, e.q.Dir, e.prefix)
	if err != nil {
		return nil, err
	}
	e.listed(seen)
	create, found := e.q.Dir+"/"+e.prefix, map[int64]string{}
	counts := e.t.s // the session counts its znodes
	counts.Found(create, "", 0)
	for _, znode := range own {
		found[znode.Czxid] = znode.Path
		counts.Found(create, znode.Path, znode.Czxid)
	}
	return found, nil
}

// look lists dir, and returns those of its children that are this session's and were made with one of prefixes.
func look(ctx context.Context, s *session.Session, dir string, prefixes ...string,
) (own []session.Created, seen session.Children, err error) {
	seen.Names, seen.Stat, err = s.List(ctx, dir)
	if errors.Is(err, zk.ErrNoNode) {
		return nil, seen, nil
	}
	if err == nil {
		own, err = ownBelow(ctx, s, dir, slices.DeleteFunc(slices.Clone(seen.Names), func(name string) bool {
			return !slices.ContainsFunc(prefixes, func(prefix string) bool { return madeWith(prefix, name) })
		}))
	}
	return own, seen, err
}

// ownBelow returns those of names, children of dir with an id of ours, that are this session's. An error: a server did not
// say whose a znode is.
func ownBelow(ctx context.Context, s *session.Session, dir string, names []string) (own []session.Created, err error) {
	nodes, err := s.StatsBelow(ctx, dir, names)
	for i, n := range nodes {
		switch {
		case n.Err == nil && n.Stat.EphemeralOwner == s.ID():
			own = append(own, session.Created{Path: dir + "/" + names[i], Czxid: n.Stat.Czxid})
		case n.Err != nil && !errors.Is(n.Err, zk.ErrNoNode):
			err = n.Err
		} // otherwise it is gone, of a session that is over (the server removes it), or of another client
	}
	return own, err
}

// removeStrays deletes this session's other znodes with our prefix: those of creates whose reply was lost and which find
// missed, since a sync may be answered too early (session.Session.Sync); the create was then made again. (None is carried
// out after find has looked: see the package comment.) The check costs no request, since the list was read anyway.
func (e *entry) removeStrays() {
	own := e.name()
	var names []string
	for _, name := range e.names {
		if name != own && e.strays < straysMax && madeWith(e.prefix, name) {
			names = append(names, name)
			e.strays++
		}
	}
	if len(names) == 0 {
		return
	}
	s, dir := e.t.s, e.q.Dir
	s.Go(func(ctx context.Context) {
		persist(ctx, func() error { // until the server says whose they are: we may be waiting for one of them
			own, err := ownBelow(ctx, s, dir, names)
			for _, stray := range own {
				sharedIn(s).sweeper.sweep(leftovers{znodes: []string{stray.Path}})
			}
			return err
		})
	})
}

// straysMax bounds the names that an entry checks in all its lists: a neighbour may make any number with its prefix.
const straysMax = 16
