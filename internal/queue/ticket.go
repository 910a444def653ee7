package queue

import (
	"container/list"
	"context"
	"errors"
	"path"
	"sync"
	"time"

	"github.com/zklock/locker/internal/session"
	"github.com/zklock/locker/recipe"
)

// Ticket is a contender: its place in one queue, or in several at once, with one znode in each, all made in one
// transaction. So all contenders are in the same order in every directory that they share: the order of the transactions.
// Each waits only for contenders that entered before it, so no cycle of waits, and no deadlock, can form, whatever order
// the directories are named in.
//
// Enter or Try makes it; Wait returns when it holds; Guard reports its loss; Leave ends it. After Enter, call Wait first
// and then Guard, each once. The other methods may be called concurrently.
type Ticket struct {
	s       *session.Session
	entries []*entry // one for each queue
	try     bool     // nothing is waited for: ErrBusy
	czxid   int64

	mu     sync.Mutex // guards what follows, and the entries after Wait; sessions' mutexes are taken inside it
	life   life
	keep   *session.Retention // of the session's lease; nil until Wait has returned nil
	onLoss func(error)        // Guard's
	unhook func() bool        // stops the callback for the session's end; nil before Guard

	inToWatch *list.Element // the ticket's place in toWatch; nil: it is not there
	dueAt     time.Time     // when its znodes are to be watched
}

// life is the state of a ticket. It only moves forward:
//
//	entered → guarded   Guard
//	guarded → lost      reportLoss, Lose
//	any     → left      Leave
type life int

const (
	entered life = iota // Enter, Wait
	guarded             // Guard was called: a loss will be reported
	lost                // a loss was reported, or Lose was called
	left                // Leave was called: losses are not reported any more
)

// Session returns the session that owns the znodes.
func (t *Ticket) Session() *session.Session { return t.s }

// Czxid returns the zxid of the transaction that made the znodes: it grows from holder to holder of one directory, even if
// that was deleted and made again, and is never used twice.
func (t *Ticket) Czxid() int64 { return t.czxid }

// Nodes returns the znodes' paths, in the order of the queues.
func (t *Ticket) Nodes() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	nodes := make([]string, len(t.entries))
	for i, e := range t.entries {
		nodes[i] = e.node
	}
	return nodes
}

// Arrival is when the candidate of an election first entered: see recipe.Name.Arrival.
func (t *Ticket) Arrival() int {
	n, _ := recipe.Parse(t.entries[0].name())
	return n.Arrival()
}

// entry is a ticket's place in one queue: one znode.
type entry struct {
	t      *Ticket
	q      *Queue
	size   int    // of the semaphore, as it was before the znode was made
	prefix string // what the znode's name begins with, up to the number
	node   string // its path; "" before it was made

	names   []string // the directory as last listed; nil once a decision has used it
	counter int32    // the directory's then; 0 if unknown (then our own number is used)
	pzxid   int64    // of the latest change of its children then; 0 if unknown
	strays  int      // how many names were looked at as possible strays
	line    Line     // the place in line as last seen
	queued  bool     // others were in its way when it entered: it leaves by its release mark, unless that was refused

	// Guarded by Ticket.mu after Wait:
	ownWatch *session.Watch // on the znode; nil: there is none yet
}

func (e *entry) name() string { return path.Base(e.node) }

func (e *entry) listing() recipe.Listing { return recipe.Listing{Names: e.names, Counter: e.counter} }

func (e *entry) list(ctx context.Context) error {
	names, stat, err := e.t.s.List(ctx, e.q.Dir)
	if err != nil {
		return asGone(err)
	}
	e.listed(session.Children{Names: names, Stat: stat})
	e.removeStrays()
	return nil
}

// transient reports whether the operation may be repeated: the connection broke, and the session lives.
func transient(err error) bool {
	return errors.Is(err, session.ErrNoReply) || errors.Is(err, session.ErrConnection)
}
