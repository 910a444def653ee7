package recipe

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/locker/internal/text"
	"github.com/zklock/locker/internal/trusted"
	"github.com/zklock/locker/session"
)

// Queue is a directory, and what a contender wants in it.
type Queue struct {
	Dir       string   // the directory: the lock's path
	Kind      Kind     // what is wanted
	Permits   int      // how many, for the kind Permits
	ACL       []zk.ACL // of the directory, of missing parents, and of the tickets
	VerifyACL bool     // refuse a directory that has another ACL
	Container bool     // make the directory a container, which goes when it is empty
	Data      []byte   // of the ticket: who we are
	DirData   []byte   // of the directory, when it is made
	Heads     *Heads   // knows who heads the line, for messages; nil knows nobody
	// Queued is told of the place in line, once it has been taken and whenever it, or who holds, is known to have
	// changed. It may be nil.
	Queued func(Line)
	// Retried is told that an attempt to take a place failed and is made again. It may be nil.
	Retried func(error)
}

// Ticket is a place in the queue: one znode of one session's.
type Ticket struct {
	q     Queue
	s     *session.Session
	id    string // what its name begins with
	node  string // its path
	czxid int64

	names    []string // the directory, as last listed; nil once it has been read
	counter  int32    // its counter then; 0 is unknown, and the own number does
	line     Line
	head     string         // the holder's znode
	own      *session.Watch // on its own znode, from the first that it waits; may be nil
	followed *followed      // by OnGone
	delayed  bool           // the directory's data name it as holder: see Claim
	looked   int            // names that were taken for strays
	twin     *Ticket        // what a Downgrade whose outcome is unknown may have put in its place

	// Of Wait.
	mates  []*Ticket     // all tickets of the call, this one among them; nil: it alone
	alarm  chan struct{} // sent to when the watch on the znode of one of them has fired; capacity 1
	timer  *time.Timer   // for settle
	before string        // the contender that is waited for; "" for none in particular
	untold bool          // we would not be told of its end
	pause  time.Duration // then: between two looks
}

// Node returns the znode's path.
func (t *Ticket) Node() string { return t.node }

// Czxid returns the zxid of the znode's create: it grows from holder to holder of one directory, also when the
// directory was deleted and made again, and is never used twice.
func (t *Ticket) Czxid() int64 { return t.czxid }

// Nodes returns the path of the znode, as the only element.
func (t *Ticket) Nodes() []string { return []string{t.node} }

// Line returns the place in line as last seen.
func (t *Ticket) Line() Line { return t.line }

// Session returns the session that owns the ticket.
func (t *Ticket) Session() *session.Session { return t.s }

// Enter takes a place in the queue, at its end, and makes the directory when it is missing. It does not wait for its
// turn: see Wait. It blocks for one round trip, when the directory is there, and longer as the connection needs.
//
// When it returns an error there is no ticket, and nothing is left behind: should the znode have been made, it is
// deleted as soon as the ensemble can be reached, or goes with the session. ErrConflict: the directory belongs to
// another kind of lock, or can't have such children.
func (q Queue) Enter(ctx context.Context, s *session.Session) (*Ticket, error) {
	t := q.ticket(s)
	for {
		made, names, err := s.CreateAndList(ctx, q.Dir+"/"+t.id, q.Data, session.EphemeralSequential, q.ACL)
		if made.Path != "" { // whatever became of the list
			t.node, t.czxid, t.names = made.Path, made.Czxid, names
		}
		switch {
		case err == nil:
			return t.checked(ctx)
		case t.node != "":
			t.discard()
			if errors.Is(err, zk.ErrNoNode) {
				return nil, ErrGone // the directory was deleted after the create, and our znode before it
			}
			return nil, err
		case errors.Is(err, zk.ErrNoNode):
			if err := q.makeDir(ctx, s); err != nil {
				return nil, q.refused(err)
			}
		case errors.Is(err, session.ErrUnknownOutcome):
			found, findErr := t.find(ctx)
			if findErr != nil {
				t.sweep()
				if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
					return nil, err // it says for itself what it waited for
				}
				return nil, findErr
			}
			if found {
				return t.checked(ctx)
			}
			q.retried(err)
		default:
			if !refusal(err) {
				t.sweep()
			}
			return nil, q.refused(err)
		}
	}
}

// refusal reports whether the error of a create says that nothing was made: it was never sent, or the server's answer
// says so. Any other code, of a server in trouble or of no ZooKeeper at all, says nothing about that. (When it was never
// sent, err may hold a server's answer to something else: the reason why ctx has ended.)
func refusal(err error) bool {
	if errors.Is(err, session.ErrNotSent) {
		return true
	}
	for _, no := range []error{zk.ErrNoAuth, zk.ErrInvalidACL, zk.ErrNoChildrenForEphemerals, zk.ErrNodeExists,
		zk.ErrBadArguments, zk.ErrBadVersion, session.ErrExpired, session.ErrClosed, session.ErrPath} {
		if errors.Is(err, no) {
			return true
		}
	}
	return false
}

// refused explains a directory that can't have children: somebody's place in line, or another ephemeral znode.
func (q Queue) refused(err error) error {
	if errors.Is(err, zk.ErrNoChildrenForEphemerals) {
		return fmt.Errorf("%w: %s, or a parent of it, is ephemeral and can't be a lock's directory: %w", ErrConflict, q.Dir, err)
	}
	return err
}

func (q Queue) retried(err error) {
	if q.Retried != nil {
		q.Retried(err)
	}
}

func (q Queue) makeDir(ctx context.Context, s *session.Session) error {
	mode := session.Persistent
	if q.Container {
		mode = session.Container
	}
	return s.CreateAll(ctx, q.Dir, q.DirData, mode, q.ACL)
}

// ticket returns a ticket without a znode.
func (q Queue) ticket(s *session.Session) *Ticket {
	id := newID() + q.Kind.mark()
	if q.Kind == Permits {
		id += strconv.Itoa(q.Permits) + "-"
	}
	return &Ticket{q: q, s: s, id: id, followed: &followed{}}
}

// checked refuses a directory of another kind, or with another ACL, before anybody waits in it.
func (t *Ticket) checked(ctx context.Context) (*Ticket, error) {
	if v := Decide(t.listing(), path.Base(t.node), nil); v.Foreign != "" {
		t.discard()
		return nil, t.q.conflict(v.Foreign)
	}
	if err := t.verify(ctx); err != nil {
		t.discard()
		return nil, err
	}
	t.strays()
	return t, nil
}

func (t *Ticket) listing() Listing { return Listing{t.names, t.counter} }

// conflict says whose directory it is instead.
func (q Queue) conflict(foreign string) error {
	n, _ := Parse(foreign)
	return neighbourError{fmt.Errorf("%w: %s is the directory of a %s (%s), not of a %s", ErrConflict, q.Dir, n.Kind,
		text.Foreign(foreign), q.Kind)}
}

// find looks for the znode after a create whose reply was lost, and adopts it when it is there and this session's.
// False: it was not made, and will not be.
func (t *Ticket) find(ctx context.Context) (found bool, err error) {
	defer func() { // either way the session knows what it has room for
		switch create := t.q.Dir + "/" + t.id; {
		case found:
			t.s.Found(trusted.Caller{}, create, session.Created{Path: t.node, Czxid: t.czxid})
		case err == nil:
			t.s.Found(trusted.Caller{}, create, session.Created{})
		}
	}()
	if err := t.s.Sync(ctx, t.q.Dir); err != nil {
		return false, err
	}
	names, _, err := t.s.List(ctx, t.q.Dir)
	if errors.Is(err, zk.ErrNoNode) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	var made []string
	for _, name := range names {
		if t.made(name) {
			made = append(made, name)
		}
	}
	nodes, err := t.s.StatsBelow(ctx, t.q.Dir, made)
	if err != nil {
		return false, err
	}
	var closed error // it may be ours
	for i, n := range nodes {
		switch {
		case n.Err != nil && !errors.Is(n.Err, zk.ErrNoNode):
			closed = n.Err
			continue
		case n.Err != nil || n.Stat.EphemeralOwner != t.s.ID():
			continue // of a session that is over, which the server will remove; or of a neighbour's
		}
		t.node, t.czxid, t.names = t.q.Dir+"/"+made[i], n.Stat.Czxid, names
		return true, nil
	}
	return false, closed
}

// strays deletes what else of this session's in the directory begins with our id: a create that was found missing and
// made again must not have been carried out late. The server's rules exclude it; a list that we read anyway shows it
// for nothing.
func (t *Ticket) strays() {
	own := path.Base(t.node)
	var names []string
	for _, name := range t.names {
		if name != own && t.looked < straysMax && t.made(name) {
			names = append(names, name)
			t.looked++
		}
	}
	if len(names) == 0 {
		return
	}
	s, q, id := t.s, t.q, t.id
	s.Go(func(ctx context.Context) {
		nodes, err := s.StatsBelow(ctx, q.Dir, names)
		for i := range nodes {
			if err == nil && nodes[i].Err == nil && nodes[i].Stat.EphemeralOwner == s.ID() {
				(&Ticket{q: q, s: s, id: id, node: q.Dir + "/" + names[i]}).discard()
			}
		}
	})
}

// straysMax is how many names a ticket looks at, in all its lists, for strays: whoever can read its name can make as many
// as he likes that begin with its id.
const straysMax = 16

// made reports whether a server may have made name of the ticket's create.
func (t *Ticket) made(name string) bool {
	number, ok := strings.CutPrefix(name, t.id)
	if ok {
		_, ok = numberOf(number)
	}
	return ok
}

// transient reports whether the operation may be tried again: the connection broke, and the session lives.
func transient(err error) bool {
	return errors.Is(err, session.ErrUnknownOutcome) || errors.Is(err, session.ErrConnection)
}
