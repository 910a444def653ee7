package recipe

import (
	"context"
	"errors"
	"path"
	"slices"
	"strings"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/locker/internal/trusted"
	"github.com/zklock/locker/session"
)

// entry is a ticket's place in one queue: one znode.
type entry struct {
	t      *Ticket
	q      *Queue
	size   int    // of the semaphore, as it was before the znode was made
	prefix string // what the znode's name begins with, up to the number
	node   string // its path; "" before it was made

	names   []string   // the directory as last listed; nil once it has been read
	counter int32      // counter at that time; 0 if unknown (then our own number is used)
	dir     dirVersion // of the directory, then
	strays  int        // how many names were looked at as possible strays
	line    Line       // the place in line as last seen
	first   string     // the name of the first in line then, or what is kept of it
	queued  bool       // others were in its way when it entered

	// The watch on our own znode; nil: there is none yet. Guarded by Ticket.mu after Wait.
	ownWatch *session.Watch
	// Another client has set the znode's data while the ticket waited, and of which version they are known. Guarded by
	// Ticket.mu after Wait.
	set     bool
	version int32
	// The directory's data have this holder's lock delay: see delay.go. Guarded by Ticket.mu after Wait.
	delayNoted bool
}

// name returns the znode's name.
func (e *entry) name() string { return path.Base(e.node) }

func (e *entry) listing() Listing { return Listing{e.names, e.counter} }

// firstData returns the data that the directory gets when it is made.
func (e *entry) firstData() []byte {
	if e.q.Kind == Permits {
		return dirData{Size: e.size}.encode()
	}
	return nil
}

// list reads the directory anew.
func (e *entry) list(ctx context.Context) error {
	names, stat, err := e.t.s.List(ctx, e.q.Dir)
	if errors.Is(err, zk.ErrNoNode) {
		return ErrGone
	}
	if err != nil {
		return err
	}
	e.listed(session.Children{Names: names, Stat: stat})
	e.removeStrays()
	return nil
}

// listed notes a list of the directory. Its Stat may be zero, which is not known then.
func (e *entry) listed(l session.Children) {
	e.names, e.counter, e.dir = l.Names, NewListing(nil, l.Stat).Counter, dirVersion{l.Stat.Czxid, l.Stat.Aversion}
	sharedIn(e.t.s).permitted.seen(e.q.Dir, e.dir)
}

// decide decides by e.names, and by the czxids that the order depends on, which it reads. It drops the list: a thousand
// waiters would otherwise keep a thousand names each.
func (e *entry) decide(ctx context.Context) (Verdict, error) {
	own := e.name()
	for {
		l := e.listing()
		e.names = nil
		v := Decide(l, own, e.size, nil)
		if len(v.Unknown) == 0 {
			return v, nil
		}
		czxids, err := e.czxidsFor(ctx, own, v.Unknown)
		if err != nil {
			return v, err
		}
		gone := slices.ContainsFunc(v.Unknown, func(name string) bool { return czxids[name] == 0 })
		if !gone || e.q.Kind.wayOnlyShrinks() {
			return Decide(l, own, e.size, czxids), nil
		}
		// A writer that was downgraded after the list has a reader in its place, which the list does not show.
		if err := e.list(ctx); err != nil {
			return v, err
		}
	}
}

// find looks for the znode after a create whose reply was lost, and adopts it if it exists and belongs to this session.
// It returns its czxid; 0: it was not found, and most likely was not made, or its czxid may not be read; then e.node is its
// path. A single look may miss it: see Ticket.enter.
func (e *entry) find(ctx context.Context) (czxid int64, err error) {
	defer func() { // either way the session's count of ephemerals is right again
		if err == nil {
			made := session.Created{}
			if czxid != 0 {
				made = session.Created{Path: e.node, Czxid: czxid}
			}
			e.t.s.ForLocks(trusted.Caller{}).Found(e.q.Dir+"/"+e.prefix, made.Path, made.Czxid)
		}
	}()
	if err := e.t.s.Sync(ctx, e.q.Dir); err != nil {
		return 0, err
	}
	names, stat, err := e.t.s.List(ctx, e.q.Dir)
	if errors.Is(err, zk.ErrNoNode) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	own, err := ownBelow(ctx, e.t.s, e.q.Dir, slices.DeleteFunc(slices.Clone(names), func(name string) bool { return !madeWith(e.prefix, name) }))
	if err != nil {
		return 0, err
	}
	for _, made := range own {
		if made.Czxid != 0 {
			e.node = made.Path
			e.listed(session.Children{Names: names, Stat: stat})
			return made.Czxid, nil
		}
	}
	if len(own) > 0 {
		e.node = own[0].Path // to be deleted: without its czxid there is no token
	}
	return 0, nil
}

// ownBelow returns those of names, children of dir with an id of ours, that are this session's. Servers since 3.9 refuse the
// Stat of a znode that may not be read: such a one counts as ours, with the czxid zero, since a neighbour has no use for our
// id, and ours would be in the way of all. An error: a server in trouble did not say whose one of them is.
func ownBelow(ctx context.Context, s *session.Session, dir string, names []string) (own []session.Created, err error) {
	nodes, err := s.StatsBelow(ctx, dir, names)
	for i, n := range nodes {
		switch {
		case n.Err == nil && n.Stat.EphemeralOwner == s.ID(), errors.Is(n.Err, zk.ErrNoAuth):
			own = append(own, session.Created{Path: dir + "/" + names[i], Czxid: n.Stat.Czxid})
		case n.Err != nil && !errors.Is(n.Err, zk.ErrNoNode):
			err = n.Err
		} // else it is gone; or of a session that is over: the server removes it; or of another client
	}
	return own, err
}

// removeStrays deletes other znodes of this session's with our prefix. Such a znode is that of a create whose reply was lost,
// and which find missed although it had been carried out, since a sync may be answered too early (session.Session.Sync); the
// create was then made again. (A create that is carried out only after find has looked is excluded by the
// server's rules.) The check costs no request, since the list was read anyway.
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
		persist(ctx, func() error { // a server in trouble does not say whose they are: we may be waiting for one of them
			own, err := ownBelow(ctx, s, dir, names)
			for _, stray := range own {
				sharedIn(s).sweeper.sweep(leftovers{znodes: []string{stray.Path}})
			}
			return err
		})
	})
}

// straysMax bounds the names that an entry checks in all its lists: a neighbour who has read its name can make any number
// of znodes with its prefix.
const straysMax = 16

// madeWith reports whether a sequential create of prefix may have made the znode name.
func madeWith(prefix, name string) bool {
	number, ok := strings.CutPrefix(name, prefix)
	if ok {
		_, ok = numberOf(number)
	}
	return ok
}

// transient reports whether the operation may be tried again: the connection broke, and the session lives.
func transient(err error) bool {
	return errors.Is(err, session.ErrUnknownOutcome) || errors.Is(err, session.ErrConnection)
}
