package recipe

import (
	"container/list"
	"context"
	"errors"
	"math"
	"path"
	"slices"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/locker/internal/trusted"
	"github.com/zklock/locker/session"
)

// Ticket is a contender: its place in one queue, or in several at once. It has one znode in each, all made in one
// transaction. So all contenders are in the same order in every directory that they share: the order of the transactions.
// Each waiter waits for contenders that entered before it, in every directory; no cycle of waits, and so no deadlock, can
// form, whatever order the directories are named in.
//
// Enter or Try makes it; Wait returns when it holds; Guard reports its loss; Leave ends it. After Enter, Wait comes
// first, and then Guard; each of them is called once. The other methods may be called concurrently.
type Ticket struct {
	s       *session.Session
	entries []*entry // one for each queue; which they are never changes after Wait
	try     bool     // nothing is waited for: ErrBusy
	czxid   int64

	mu     sync.Mutex            // guards what follows, and the entries after Wait; sessions' mutexes are taken inside it
	life   life                  //
	held   bool                  // Wait has returned nil
	keep   trusted.Retention     // of the session's lease, while it holds
	lost   func(error)           // Guard's
	set    func([]byte, zk.Stat) // OnSet's; may be nil
	unhook func() bool           // stops the callback for the session's end; nil before Guard

	change chan struct{} // closed at the end of the Leave or Downgrade that is under way; nil: none is
	missed bool          // during that Downgrade Missing was called
	twin   *entry        // the reader's znode that a Downgrade with an unknown outcome may have made

	delayStays bool  // KeepDelay was called
	leaveErr   error // the result of the last Leave, for the one that is under way; nil or ErrGone: the znodes are gone

	inToWatch *list.Element // the ticket's place in toWatch; nil: it is not there
	dueAt     time.Time     // when its znodes are to be watched
}

// life is the state of a ticket. It only moves forward: see Guard, lose and Leave.
type life int

const (
	entered life = iota // Enter, Wait
	guarded             // Guard was called: a loss will be reported
	lost                // a loss was reported, or Lose was called
	left                // Leave was called: losses are not reported any more
)

// Session returns the session that owns the znodes.
func (t *Ticket) Session() *session.Session { return t.s }

// Czxid returns the zxid of the transaction that made the znodes: it grows from holder to holder of one directory, also
// when the directory was deleted and made again, and is never used twice. A Downgrade does not change it.
func (t *Ticket) Czxid() int64 { return t.czxid }

// Nodes returns the znodes' paths, in the order of the queues. A Downgrade changes them.
func (t *Ticket) Nodes() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	nodes := make([]string, len(t.entries))
	for i, e := range t.entries {
		nodes[i] = e.node
	}
	return nodes
}

func newTicket(s *session.Session, queues []Queue) *Ticket {
	one := &struct { // most tickets have one
		t       Ticket
		e       entry
		q       Queue
		entries [1]*entry
	}{}
	t := &one.t
	t.s, t.leaveErr = s, errNoLeave
	if len(queues) == 1 {
		one.q = queues[0]
		one.e = entry{t: t, q: &one.q}
		one.entries[0] = &one.e
		t.entries = one.entries[:]
		return t
	}
	queues = slices.Clone(queues)
	for i := range queues {
		t.entries = append(t.entries, &entry{t: t, q: &queues[i]})
	}
	return t
}

// Enter takes a place at the end of each of the queues, all or none, and makes the directories that are missing. It does
// not wait for its turn: see Wait. It takes one round trip when the directories are there, and longer as the connection
// needs. Several queues are of different directories, of one kind and one ACL. A semaphore's size is found out first: see
// Size.
//
// When it returns an error there is no ticket, and nothing is left behind: should znodes have been made, they are deleted
// as soon as the ensemble can be reached, or go with the session. ErrConflict: a directory belongs to another kind of
// lock, or can't have such children; a semaphore has another size. session.ErrConfig, ErrDeadlock: see Size.
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

// Try returns a ticket that holds, as after Wait, or an error that matches ErrBusy and names the holder. While a contender
// is in the way in one of the queues, it costs the lists of the directories, and, unless the holder's name is known, two reads
// more, for which it waits for at most WatchAfter. It never waits for another contender.
//
// Errors are those of Enter and Wait; nothing is left behind by any.
func Try(ctx context.Context, s *session.Session, queues ...Queue) (*Ticket, error) {
	t := newTicket(s, queues)
	t.try = true
	err := t.tryToHold(ctx)
	if err == nil {
		return t, nil
	}
	if busy := (*busyError)(nil); errors.As(err, &busy) && busy.line.Who == "" { // no contender waits for us any more
		ctx, cancel := context.WithTimeout(ctx, WatchAfter)
		defer cancel()
		dir, name := path.Split(busy.line.Holder)
		if who, _, err := sharedIn(s).heads.who(ctx, t.entries[0].q.Describe, path.Clean(dir), name); err == nil { // else it shows the znode
			busy.line.Who = who
		}
	}
	return nil, err
}

// tryToHold is Try without the holder's name.
func (t *Ticket) tryToHold(ctx context.Context) error {
	if err := t.readSizes(ctx); err != nil {
		return err
	}
	if err := t.lookBeforeEntering(ctx); err != nil {
		return err
	}
	if err := t.enter(ctx); err != nil {
		return err
	}
	err := t.Wait(ctx)
	if err == nil {
		return nil
	}
	// Another contender entered between the list and the create. Our place must not keep others waiting.
	if leaveErr := t.Leave(ctx); leaveErr != nil && !errors.Is(leaveErr, ErrGone) && ctx.Err() != nil {
		return leaveErr
	}
	return err
}

// readSizes finds out the size of each semaphore.
func (t *Ticket) readSizes(ctx context.Context) error {
	for _, e := range t.entries {
		if e.q.Kind != Permits {
			continue
		}
		var err error
		if e.size, err = e.q.Size.agree(ctx, t.s, e.q, t.try); err != nil {
			return err
		}
	}
	return nil
}

// lookBeforeEntering returns ErrBusy when a contender that entered now would not hold. It costs a list of each directory.
func (t *Ticket) lookBeforeEntering(ctx context.Context) error {
	b := t.s.Grouped(trusted.Caller{})
	lists := t.addLists(b)
	if err := b.Do(ctx); err != nil && !errors.Is(err, zk.ErrNoNode) {
		return err
	}
	for i, e := range t.entries {
		if err := lists[i].Err; err != nil && !errors.Is(err, zk.ErrNoNode) { // one that does not exist has no children
			return err
		}
		v := foresee(lists[i].Value.Names, e.q.Kind, e.q.Permits, e.size)
		if err := e.q.conflict(ctx, t.s, v.OtherKinds, math.MaxInt64); err != nil {
			return err
		}
		if !v.Holds {
			return &busyError{Line{Ahead: v.Ahead, Holder: e.q.Dir + "/" + kept(v.First)}}
		}
	}
	return nil
}

// enter makes the znodes.
func (t *Ticket) enter(ctx context.Context) (err error) {
	// doubt: a create may have been carried out. That one look did not find its znode is no proof: see sweeper.work. If
	// another create succeeds, the list behind it is the second look (removeStrays); if the call ends first, the sweeper looks.
	doubt := false
	defer func() {
		if err != nil && doubt {
			t.sweep()
		}
	}()
	for _, e := range t.entries {
		e.prefix, e.node, e.names = e.q.newPrefix(), "", nil
	}
	for {
		err := t.create(ctx)
		switch {
		case err == nil:
			return t.checkDirectories(ctx)
		case t.entries[0].node != "": // they were made, but the list failed
			discard(t.entries...)
			if errors.Is(err, zk.ErrNoNode) {
				return ErrGone // the directory was deleted after the create, and our znode before it
			}
			return err
		case errors.Is(err, zk.ErrNoNode):
			for _, e := range t.entries {
				if err := e.q.makeDir(ctx, t.s, e.firstData()); err != nil {
					return err
				}
			}
		case errors.Is(err, session.ErrUnknownOutcome):
			found, findErr := t.find(ctx)
			doubt = doubt || !found
			if findErr != nil {
				if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
					return err // it says what it waited for
				}
				return findErr
			}
			if found {
				return t.checkDirectories(ctx)
			}
			t.entries[0].q.retried(err)
		default:
			doubt = doubt || !refusal(err)
			return t.entries[0].q.refused(err)
		}
	}
}

// create makes the znodes and lists the directories, in one round trip, or, in a crowd, in two. When the znodes were made,
// their paths are set, whatever became of the lists.
func (t *Ticket) create(ctx context.Context) error {
	if len(t.entries) == 1 {
		return t.createOne(ctx, t.entries[0])
	}
	b := t.s.Grouped(trusted.Caller{})
	ops := make([]any, len(t.entries))
	for i, e := range t.entries {
		ops[i] = &zk.CreateRequest{Path: e.q.Dir + "/" + e.prefix, Data: e.q.Data, Acl: e.q.ACL, Flags: int32(session.EphemeralSequential)}
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

// createOne is create for one queue.
func (t *Ticket) createOne(ctx context.Context, e *entry) error {
	crowds := &sharedIn(t.s).crowds
	many := crowds.join(e.q.Dir)
	defer crowds.leave(e.q.Dir)
	b := t.s.Grouped(trusted.Caller{})
	made := b.Create(e.q.Dir+"/"+e.prefix, e.q.Data, session.EphemeralSequential, e.q.ACL)
	var lists []*session.Result[session.Children]
	if !many {
		lists = t.addLists(b)
	}
	err := b.Do(ctx)
	if made.Err != nil {
		return err
	}
	var seen session.Children
	if many {
		seen, err = crowds.list(ctx, e.q.Dir)
	} else {
		seen = lists[0].Value
	}
	e.node, t.czxid = made.Value.Path, made.Value.Czxid
	e.listed(seen)
	return err
}

// addLists adds a list of each directory to b.
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
	return isOne(err, session.ErrNotSent, zk.ErrNoAuth, zk.ErrInvalidACL, zk.ErrNoChildrenForEphemerals, zk.ErrNodeExists,
		zk.ErrBadArguments, zk.ErrBadVersion, session.ErrExpired, session.ErrClosed, session.ErrPath)
}

// checkDirectories refuses a directory of another kind, or with another ACL, before the ticket waits in it.
func (t *Ticket) checkDirectories(ctx context.Context) error {
	err := func() error {
		for _, e := range t.entries {
			v := Decide(e.listing(), e.name(), e.size, nil)
			if err := e.q.conflict(ctx, t.s, v.OtherKinds, t.czxid); err != nil {
				return err
			}
		}
		for _, e := range t.entries {
			if err := e.verify(ctx); err != nil {
				return err
			}
		}
		return nil
	}()
	if err != nil {
		discard(t.entries...)
		return err
	}
	for _, e := range t.entries {
		e.removeStrays()
	}
	return nil
}

// find looks for the znodes after a create whose reply was lost, and adopts them. The transaction made all or none; if
// some are missing, another client has deleted those, and the rest is deleted too, since it would block our next attempt. So
// are those whose czxid may not be read: a ticket without it has no token.
func (t *Ticket) find(ctx context.Context) (bool, error) {
	all := true
	for _, e := range t.entries {
		czxid, err := e.find(ctx)
		if err != nil {
			return false, err
		}
		if czxid == 0 {
			all = false
		} else {
			t.czxid = czxid
		}
	}
	if all {
		return true, nil
	}
	for _, e := range t.entries {
		if e.node != "" {
			discard(e)
			e.node, e.names = "", nil
		}
	}
	return false, nil
}

// sweep has the sweeper find out whether a create was carried out, and delete what it made.
func (t *Ticket) sweep() {
	for _, e := range t.entries {
		sharedIn(t.s).sweeper.sweep(leftovers{creates: []doubtfulCreate{{e.q.Dir, e.prefix}}})
	}
}
