package zklock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/locker/internal/contender"
	"github.com/zklock/locker/internal/queue"
	"github.com/zklock/locker/internal/session"
	"github.com/zklock/locker/internal/session/failure"
	"github.com/zklock/locker/recipe"
)

// Election chooses one leader among the candidates of a path, by rank and arrival. It is a Mutex
// whose holder has a value that others can read and watch.
type Election struct{ lock }

// Election returns the election whose candidates queue below path. WithReentrancy and
// WithLocalHandoff are refused.
func (c *Client) Election(path string, opts ...LockOption) *Election {
	return &Election{c.newLock(&electionKind, opts, path)}
}

// WithRank returns the election for candidates of rank n, 0 to 1<<31−1; without it rank 0. When the
// leader goes, the highest rank in line leads next, equal ranks by arrival: with a rank for each
// release, a rolling update hands over once.
//
// A leader is not pre-empted. Candidates of higher rank that come and go, or fail again and again
// within a session timeout after they have come to lead, do not keep a healthy one from leading:
// they delay it about as long as the order of arrival would allow, once more. To fail is to crash,
// or to return an error from Run's function.
func (e *Election) WithRank(n int) *Election {
	ranked := *e
	ranked.place.Rank = n
	if (n < 0 || n > recipe.MaxRank) && ranked.err == nil {
		ranked.err = fmt.Errorf("%w: rank %d: is not between 0 and %d", ErrInvalid, n,
			recipe.MaxRank)
	}
	return &ranked
}

// Campaign waits until this candidate leads, with value for others to read. Contract and errors are
// those of Mutex.Lock.
func (e *Election) Campaign(ctx context.Context, value []byte) (context.Context, *Hold, error) {
	return e.candidate(value).acquire(ctx, "campaign", LockInfo{Kind: KindElection})
}

// Proclaim replaces the value that others read. term is a hold of this election; another is
// ErrInvalid. It blocks for one round trip. ErrLost, ErrUnlocked or ErrClosed: this candidate no
// longer leads, and the value was not changed. ErrUnknownOutcome: it may have been changed.
func (e *Election) Proclaim(ctx context.Context, term *Hold, value []byte) error {
	return e.fail("proclaim", e.proclaim(ctx, term, value))
}

func (e *Election) proclaim(ctx context.Context, term *Hold, value []byte) error {
	c := e.candidate(value)
	if c.err != nil {
		return c.err
	}
	if term.a.c != e.c || term.a.info.Kind != KindElection || term.a.info.Path != e.path {
		return fmt.Errorf("%w: %v is no term of this election", ErrInvalid, term)
	}
	if err := term.Err(); err != nil {
		return err
	}
	err := term.a.ticket.SetData(ctx, c.place.TermData)
	if errors.Is(err, zk.ErrNoNode) {
		return errors.Join(err, cmp.Or(term.Err(), ErrNodeDeleted))
	}
	return err
}

// candidate returns the lock of a candidate with that value.
func (l lock) candidate(value []byte) *lock {
	if l.err != nil {
		return &l
	}
	if len(value) > maxData {
		l.err = fmt.Errorf("%w: value of %d bytes: is longer than 64 KB", ErrInvalid, len(value))
		return &l
	}
	id := contender.Mine(l.o.owner, value, string(KindElection))
	l.place.Data = id.Encode()
	id.Term = true
	l.place.TermData = id.Encode()
	return &l
}

// Run campaigns and calls lead for each term, one after the other, until ctx ends or lead returns
// while it leads. lead's context ends with ctx and with the term; term.Context() ends with the term
// alone. A lead that ignores its context keeps others from leading. After a lost term Run campaigns
// again; Hooks.LeadFailed and the log have lead's error if that is more than the end of its
// context.
//
// Run returns lead's error (or nil) if lead returned during its term, with ErrLost if the release
// finds the term lost. It returns ctx's error if ctx ended outside a term, and a campaign's if
// retrying can't help (ErrClosed, ErrPath, zk.ErrNoAuth, …; ErrBusy after WithMaxWait). Other
// failures are retried a second later.
func (e *Election) Run(
	ctx context.Context, value []byte, lead func(ctx context.Context, term *Hold) error,
) error {
	needFunction(lead == nil)
	for isFirst := true; ; isFirst = false {
		asked := time.Now()
		_, term, err := e.Campaign(ctx, value)
		if err == nil {
			again, leadErr := e.leadOnce(ctx, term, lead)
			if !again {
				return leadErr
			}
			continue
		}
		// A neighbour's znode that blocks the first campaign from its beginning is probably a
		// mistake, so the caller should hear of it. One that has come later will go again.
		cameLater := !isFirst || time.Since(asked) > queue.WatchAfter
		willPass := errors.Is(err, queue.ErrNeighbour) && cameLater
		if end := e.campaignFailed(ctx, err, willPass); end != nil {
			return end
		}
	}
}

// campaignFailed returns the error with which Run ends after a campaign failed with err. If another
// campaign may succeed, it returns nil, a second later. willPass says that the reason of err will
// pass, although err looks hopeless.
func (e *Election) campaignFailed(ctx context.Context, err error, willPass bool) error {
	switch {
	case hopeless(err) && !willPass:
		return err
	case ctx.Err() != nil:
		return e.fail("run", e.c.ended(ctx, err))
	}
	e.c.log.Warn("zklock: campaign failed; the next one begins in a second",
		"path", e.path, "error", bare(err))
	e.c.rest(ctx, time.Second)
	return nil
}

// leadOnce calls lead for one term, and releases the term. again is true if the term was lost, so
// that Run has to campaign again. Otherwise err is the error with which Run ends.
func (e *Election) leadOnce(
	ctx context.Context, term *Hold, lead func(context.Context, *Hold) error,
) (again bool, err error) {
	var leadErr error // lead's
	var endedBy error // why the term had ended when lead returned; nil if it had not
	began := time.Now()
	doErr := term.do(ctx, func(work context.Context) error {
		leadErr = callLead(ctx, work, term, lead)
		endedBy = term.Err()
		return leadErr
	})
	switch {
	case endedBy == nil:
		return false, doErr
	case errors.Is(endedBy, ErrUnlocked):
		// lead itself gave up the term, by Unlock. doErr calls that a loss.
		return false, leadErr
	case ctx.Err() != nil, errors.Is(endedBy, ErrClosed):
		return false, e.fail("run", e.c.ended(ctx, doErr))
	}
	if leadErr != nil && !isOnlyEnd(leadErr) {
		e.c.tell(slog.LevelWarn, "lead failed after its term was lost; the campaign begins again",
			e.c.opts.hooks.LeadFailed, term.a.after(leadErr))
	}
	if time.Since(began) < time.Second { // a term that is lost at once must not spin
		e.c.rest(ctx, 100*time.Millisecond)
	}
	return true, nil
}

// callLead calls lead, and returns its error. The term has failed if lead panics, or if it returns
// an error that has nothing to do with the end of its context.
func callLead(
	ctx, work context.Context, term *Hold, lead func(context.Context, *Hold) error,
) error {
	hasFailed := true // until lead has returned
	defer func() {
		if hasFailed {
			term.termFailed()
		}
	}()
	err := lead(work, term)
	wasStopped := ctx.Err() != nil || isOnlyEnd(err)
	hasFailed = err != nil && !wasStopped
	return err
}

// termFailed says that what the leader does under h has failed: see queue.Ticket.TermFailed.
func (h *Hold) termFailed() {
	if t, ok := h.a.ticket.(*queue.Ticket); ok {
		t.TermFailed()
	}
}

// isOnlyEnd reports whether err, which lead has returned, is no more than the end of its context,
// or of its term. One of several joined errors may be more.
func isOnlyEnd(err error) bool {
	if joined, ok := err.(interface{ Unwrap() []error }); ok { //nolint:errorlint // the join itself
		return !slices.ContainsFunc(joined.Unwrap(), func(one error) bool {
			return !isOnlyEnd(one)
		})
	}
	return failure.IsOne(err, context.Canceled, ErrLost)
}

// hopeless reports whether every further campaign, or read of an observer, would fail with err as
// well. After any other error the next attempt may succeed, perhaps on another server.
func hopeless(err error) bool {
	return failure.IsOne(err, ErrClosed, ErrPath, ErrInvalid, ErrConflict, ErrDeadlock, ErrBusy,
		ErrTooLarge, ErrAuth,
		zk.ErrNoAuth, zk.ErrInvalidACL, zk.ErrBadArguments)
}

// Leader is the candidate that leads. Its client wrote Value, Owner and Host, at any length.
type Leader struct {
	Value   []byte // nil when it is longer than 256 KB
	Owner   string // WithOwner
	Host    string
	PID     int
	Token   Token
	Node    string    // its znode
	Session int64     // the ZooKeeper session that owns it
	Since   time.Time // when it entered the line, or last stepped aside, by the ensemble's clock
}

// Leader returns the candidate that leads. It returns ErrNoLeader if there is none. A candidate
// that had resigned before the call is not named: Leader costs a write without an effect, which a
// majority confirms.
//
// It blocks for five round trips, usually, or as long as there is no connection and ctx lasts. A
// candidate whose turn has come may need a moment until it says that it leads. Leader waits up to
// 0.3 s for that.
func (e *Election) Leader(ctx context.Context) (Leader, error) {
	var leader Leader
	err := e.withSession(ctx, "leader", func(s *session.Session) (err error) {
		if err := s.Settle(ctx, e.path); err != nil {
			return err
		}
		leader, err = e.findLeader(ctx, s)
		return err
	})
	return leader, err
}

// findLeader returns the candidate that leads, or ErrNoLeader.
func (e *Election) findLeader(ctx context.Context, s *session.Session) (Leader, error) {
	patience := time.NewTimer(queue.WatchAfter)
	defer patience.Stop()
	for {
		first, err := e.first(ctx, s)
		if err != nil {
			return Leader{}, err
		}
		if first == "" {
			return Leader{}, ErrNoLeader
		}
		c, err := e.read(ctx, s, first)
		if err == nil && !c.leads {
			c, err = e.awaitTerm(ctx, s, first, patience.C)
		}
		if !errors.Is(err, zk.ErrNoNode) {
			return c.Leader, err
		}
		// The candidate has resigned or stepped aside since the list.
	}
}

// awaitTerm waits until the first in line, called name, announces that it leads. It returns
// zk.ErrNoNode if the candidate goes, and ErrNoLeader once patience has fired.
func (e *Election) awaitTerm(
	ctx context.Context, s *session.Session, name string, patience <-chan time.Time,
) (firstInLine, error) {
	for {
		w, err := s.Watch(ctx, e.path+"/"+name)
		if err != nil {
			return firstInLine{}, err
		}
		c, err := e.read(ctx, s, name)
		if err != nil || c.leads {
			w.Close()
			return c, err
		}
		fired := make(chan struct{}, 1)
		w.Wake(fired)
		select {
		case <-fired:
			err = nil
		case <-patience:
			err = ErrNoLeader
		case <-s.Done():
			err = s.Err()
		case <-ctx.Done():
			err = e.c.ended(ctx, errors.New("waiting for the next leader"))
		}
		w.Close()
		if err != nil {
			return firstInLine{}, err
		}
	}
}

// Observe yields who leads now, and then every change, in order: a new leader or a new value, and
// ErrNoLeader between two leaders. If values change faster than they can be read, only the last is
// yielded. It survives disconnects and sessions that end.
//
// It ends with ctx, or when nothing more can be observed (ErrClosed, ErrPath); the last pair has
// the reason. Each use of the sequence starts over.
func (e *Election) Observe(ctx context.Context) iter.Seq2[Leader, error] {
	return func(yield func(Leader, error) bool) {
		if e.err != nil {
			yield(Leader{}, e.fail("observe", e.err))
			return
		}
		o := observer{e: e, yield: yield}
		for !o.stopped {
			s, err := e.c.await(ctx)
			if err == nil {
				err = o.watch(ctx, s)
			}
			switch {
			case o.stopped:
				return
			case ctx.Err() != nil, e.c.ctx.Err() != nil, s == nil:
				err = e.c.ended(ctx, err)
			case failure.IsOne(err, s.Err()):
				continue // in the next session
			case !hopeless(err):
				e.c.log.Warn("zklock: observing an election failed; trying again in a second",
					"path", e.path, "error", bare(err))
				e.c.rest(ctx, time.Second)
				continue
			}
			yield(Leader{}, e.fail("observe", err))
			return
		}
	}
}

// first returns the name of the first candidate in line, or "" if there is none. That candidate
// leads, or is about to lead or to step aside, or its session is over.
func (e *Election) first(ctx context.Context, s *session.Session) (string, error) {
	names, _, err := s.List(ctx, e.path)
	if err != nil && !errors.Is(err, zk.ErrNoNode) {
		return "", err
	}
	first, err := queue.First(ctx, s, e.path, recipe.Family(names, recipe.Lock))
	return strings.Clone(first), err // a copy: an observer keeps the name, but not the list
}

// firstInLine is the first in line of an election.
type firstInLine struct {
	Leader
	leads bool  // whether it has announced its term
	mzxid int64 // of the write that set its value
}

// read reads the znode called name, which was the first in line by the latest list.
func (e *Election) read(ctx context.Context, s *session.Session, name string) (firstInLine, error) {
	n, err := queue.ReadChild(ctx, s, e.path, name)
	if err != nil {
		return firstInLine{}, err
	}
	id := contender.Parse(n.Data)
	leader := Leader{
		Value:   id.Data,
		Owner:   id.Owner,
		Host:    id.Host,
		PID:     id.PID,
		Token:   Token(n.Stat.Czxid),
		Node:    e.path + "/" + name,
		Session: n.Stat.EphemeralOwner,
		Since:   time.UnixMilli(n.Stat.Ctime),
	}
	return firstInLine{leader, id.Leads(), n.Stat.Mzxid}, nil
}
