package zklock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/locker/internal/trusted"
	"github.com/zklock/locker/recipe"
	"github.com/zklock/locker/session"
)

// Election chooses one leader among the candidates of a path, in order of arrival. It is a Mutex whose holder has a value
// that others can read and watch. Like a Mutex it is a description and stores no leadership.
type Election struct{ lock }

// Election returns the election whose candidates queue below path. It does no I/O; a path or option that can't work is
// reported by every call on it (ErrPath, ErrOption). WithData and WithReentrancy do not apply: the data are the value.
func (c *Client) Election(path string, opts ...LockOption) *Election {
	return &Election{c.newLock("election", opts, path)}
}

// Leadership is one term of office: the hold of the election's lock, and what only a leader can do.
type Leadership struct {
	*Hold
	e *Election
}

// Campaign waits until this candidate leads, with value for others to read. Contract and errors are those of Mutex.Lock.
// A term ends as a hold ends: see Hold.Context.
func (e *Election) Campaign(ctx context.Context, value []byte) (*Leadership, error) {
	h, err := use(ctx, e).candidate(value).acquire(ctx, request{op: "campaign", kind: KindElection})
	if err != nil {
		return nil, err
	}
	return &Leadership{h, e}, nil
}

// candidate returns the lock with value as its data.
func (l lock) candidate(value []byte) *lock {
	switch {
	case l.err != nil:
	case len(value) > maxData:
		l.err = fmt.Errorf("%w: value of %d bytes: is longer than 64 KB", ErrOption, len(value))
	default:
		l.o.data, l.o.reentrant, l.o.kind = value, false, KindElection
		l.data, l.err = l.o.identity()
	}
	return &l
}

// Proclaim replaces the value that others read. Nil: they see it from now on. ErrLost, ErrUnlocked or ErrClosed: this
// candidate no longer leads, and the value was not changed. ErrUnknownOutcome: the value may have been changed. It blocks
// for one round trip.
func (l *Leadership) Proclaim(ctx context.Context, value []byte) error {
	l.need()
	needContext(ctx)
	err := l.Err()
	if err == nil {
		c := l.e.candidate(value)
		if err = c.err; err == nil {
			err = l.a.ticket.SetData(ctx, c.data)
		}
	}
	if errors.Is(err, zk.ErrNoNode) {
		err = errors.Join(err, l.Err())
	}
	return l.fail("proclaim", err)
}

// Resign gives up the leadership: see Hold.Unlock.
func (l *Leadership) Resign(ctx context.Context) error {
	l.need()
	return l.Unlock(ctx)
}

// Run campaigns and calls lead for each term, one after the other, until ctx ends or lead returns while it leads. lead's
// context ends with ctx and with the term. lead has returned before the leadership is given up or sought again, so two
// calls of it never overlap in this process. A lead that ignores its context keeps Run waiting, and, while the session
// lasts, keeps others from leading. After a term that was lost, whatever lead returned, Run campaigns again.
//
// It returns lead's error (nil too) when lead returned during its term, whether ctx has ended or not, after resigning (as
// Do releases); ctx's error when ctx ended while it did not lead; otherwise the error of a campaign that can't succeed
// (ErrClosed, ErrPath, zk.ErrNoAuth, …; ErrBusy after WithWait). After any other error of a campaign it campaigns again,
// a second later. Once it has campaigned it does so, too, while a contender of another kind of lock, or one that may not
// be read, is at the path: any client that may create znodes there can make one.
func (e *Election) Run(ctx context.Context, value []byte, lead func(ctx context.Context, l *Leadership) error) error {
	c := use(ctx, e).c
	needFunction(lead == nil)
	for first := true; ; first = false {
		asked := time.Now()
		l, err := e.Campaign(ctx, value)
		if err != nil {
			// A neighbour's znode that is in the way of the first attempt is a mistake that the caller should hear of.
			passes := errors.Is(err, recipe.ErrNeighbour) && (!first || time.Since(asked) > recipe.WatchAfter)
			if ctx.Err() != nil || hopeless(err) && !passes {
				return err
			}
			c.log.Warn("campaign failed, and is made again", "path", e.path, "error", err)
			c.rest(ctx, time.Second)
			continue
		}
		var leadErr, lost error
		began := time.Now()
		err = l.do(ctx, func(work context.Context) error {
			leadErr = lead(work, l)
			lost = l.Err()
			return leadErr
		})
		switch {
		case lost == nil:
			return err
		case errors.Is(lost, ErrUnlocked): // lead resigned by itself
			return leadErr
		case ctx.Err() != nil && !errors.Is(err, ctx.Err()):
			return e.fail("run", session.Waited(ctx, trusted.Caller{}, err))
		case ctx.Err() != nil, errors.Is(lost, ErrClosed):
			return err
		}
		if time.Since(began) < time.Second { // a term that is lost at once must not spin
			c.rest(ctx, 100*time.Millisecond)
		}
	}
}

// hopeless reports whether the error of a campaign, or of an observer's read, is what every further attempt would meet as
// well. Whatever else a server answers, or garbles, may be better the next time, or on another server.
func hopeless(err error) bool {
	return isAny(err, ErrClosed, ErrPath, ErrOption, ErrConflict, ErrDeadlock, ErrBusy, ErrTooLarge, session.ErrAuth,
		zk.ErrNoAuth, zk.ErrInvalidACL, zk.ErrBadArguments)
}

// rest waits for d, or until ctx ends or the Client is closed.
func (c *Client) rest(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	case <-c.ctx.Done():
	}
}

// Leader is who leads, as others see it.
type Leader struct {
	Value []byte // nil when it is longer than 256 KB, which no value of this library's is: see Size
	Contender
}

// Leader returns who leads: the candidate that entered first of those in line. ErrNoLeader: there is none. It asks the
// connected server after a sync, and blocks for five round trips at most, or as long as there is no connection and ctx
// lasts.
func (e *Election) Leader(ctx context.Context) (Leader, error) {
	var leader Leader
	err := use(ctx, e).withSession(ctx, "leader", func(s *session.Session) error {
		if err := s.Sync(ctx, e.path); err != nil {
			return err
		}
		for {
			first, err := e.first(ctx, s)
			if err == nil && first == "" {
				err = ErrNoLeader
			}
			if err != nil {
				return err
			}
			if leader, _, err = e.read(ctx, s, first); !errors.Is(err, zk.ErrNoNode) {
				return err
			} // else it has resigned since the list: who is next?
		}
	})
	return leader, err
}

// first returns the name of the candidate that leads or is to lead next: the one that entered first; "" when there is
// none.
func (e *Election) first(ctx context.Context, s *session.Session) (string, error) {
	names, _, err := s.List(ctx, e.path)
	if errors.Is(err, zk.ErrNoNode) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	return recipe.First(ctx, s, e.path, recipe.Family(names, recipe.Lock))
}
