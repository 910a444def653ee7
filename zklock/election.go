package zklock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/locker/recipe"
	"github.com/zklock/locker/session"
)

// Election chooses one leader among the candidates of a path, in order of arrival. It is a Mutex whose holder has a
// value that others can read and watch. Like a Mutex it is a description and stores no leadership.
type Election struct{ b base }

// Election returns the election whose candidates queue below path. It does no I/O; a path or option that can't work is
// reported by every call on it (ErrPath, ErrOption). WithData and WithReentrancy do not apply: the data are the value.
func (c *Client) Election(path string, opts ...LockOption) *Election {
	return &Election{c.newBase(path, opts)}
}

// Leadership is one term of office: the hold of the election's lock, and what only a leader can do.
type Leadership struct {
	*Hold
	e *Election
}

// Campaign waits until this candidate leads, with value for others to read. Contract and errors are those of
// Mutex.Lock. A term ends as a hold ends: see Hold.Context.
func (e *Election) Campaign(ctx context.Context, value []byte) (*Leadership, error) {
	e.b.need(ctx)
	b, err := e.candidate(value)
	if err != nil {
		return nil, err
	}
	h, err := b.lock(ctx, request{op: "campaign", kind: "election", queue: b.queue(recipe.Lock), again: b.reenter})
	if err != nil {
		return nil, err
	}
	return &Leadership{h, e}, nil
}

// candidate returns e's base with value as its data.
func (e *Election) candidate(value []byte) (*base, error) {
	b := e.b
	if b.err == nil {
		if len(value) > maxData {
			return nil, fmt.Errorf("zklock: campaign: %w: value of %d bytes: is longer than 64 KB", ErrOption, len(value))
		}
		b.o.data, b.o.reentrant = value, false
		b.data, b.err = b.o.identity()
	}
	return &b, nil
}

// Proclaim replaces the value that others read. Nil: they see it from now on. ErrLost: this is the leader no more, and
// the value was not changed. It blocks for one round trip; an error that matches ErrUnknownOutcome says that the
// value may have been changed.
func (l *Leadership) Proclaim(ctx context.Context, value []byte) error {
	l.need(ctx)
	if err := l.Err(); err != nil {
		return l.fail("proclaim", err)
	}
	b, err := l.e.candidate(value)
	if err == nil {
		err = b.err
	}
	if err != nil {
		return l.fail("proclaim", err)
	}
	p := l.g.place()
	s := p.Session()
	for {
		_, err = s.Set(ctx, l.Node(), b.data, -1)
		if !errors.Is(err, ErrUnknownOutcome) || ctx.Err() != nil || s.Err() != nil {
			break
		} // else setting it twice does no harm: ask again, on the next connection
	}
	if errors.Is(err, zk.ErrNoNode) {
		l.g.gone(p)
		err = errors.Join(err, l.Err())
	}
	if err != nil {
		return l.fail("proclaim", err)
	}
	return nil
}

// Resign gives up the leadership: see Hold.Unlock.
func (l *Leadership) Resign(ctx context.Context) error { return l.Unlock(ctx) }

// Run campaigns and calls lead for each term, one after the other, until ctx ends or lead returns while it leads. lead's
// context ends with ctx and with the term. lead has returned before the leadership is given up or sought again, so two
// calls of it never overlap here; one that ignores its context keeps Run waiting, and others from leading if the
// session lives. After a term that was lost, whatever lead returned, Run campaigns again.
//
// It returns lead's error (nil too) when that returned during its term, whether ctx has ended or not, after resigning (as
// Do releases); ctx's error when ctx ended while it did not lead; otherwise the error of a campaign that can't succeed
// (ErrClosed, ErrPath, zk.ErrNoAuth, …; ErrBusy after WithWait). After any other error of a campaign it campaigns again,
// a second later. So it does, once it has campaigned, while a contender of another kind of lock, or one that may not be
// read, stands at the path: whoever may create there can make one.
func (e *Election) Run(ctx context.Context, value []byte, lead func(ctx context.Context, l *Leadership) error) error {
	for first := true; ; first = false {
		asked := time.Now()
		l, err := e.Campaign(ctx, value)
		if err != nil {
			// A neighbour's znode in the way of the first attempt is somebody's mistake; later on it passes.
			passes := errors.Is(err, recipe.ErrNeighbour) && (!first || time.Since(asked) > recipe.Settle)
			if ctx.Err() != nil || hopeless(err) && !passes {
				return err
			}
			e.b.c.log.Warn("campaign failed, and is made again", "path", e.b.path, "error", err)
			e.b.c.rest(ctx, time.Second)
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
			return &lockError{"run", e.b.path, session.Waited(ctx, err)}
		case ctx.Err() != nil, errors.Is(lost, ErrClosed):
			return err
		}
		if time.Since(began) < time.Second { // a term that is lost at once must not spin
			e.b.c.rest(ctx, 100*time.Millisecond)
		}
	}
}

// hopeless reports whether the error of a campaign, or of an observer's read, is what every further attempt would meet
// as well. Whatever else a server answers, or garbles, may be better the next time, or on another server.
func hopeless(err error) bool {
	for _, end := range []error{ErrClosed, ErrPath, ErrOption, ErrConflict, ErrDeadlock, ErrBusy, ErrTooLarge, session.ErrAuth,
		zk.ErrNoAuth, zk.ErrInvalidACL, zk.ErrBadArguments} {
		if errors.Is(err, end) {
			return true
		}
	}
	return false
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

// Leader returns who leads: of those in line, the one that entered first. ErrNoLeader: nobody does. It asks the connected
// server after a sync, and blocks for five round trips at most, or as long as there is no connection and ctx lasts.
func (e *Election) Leader(ctx context.Context) (Leader, error) {
	e.b.need(ctx)
	fail := func(err error) (Leader, error) { return Leader{}, &lockError{"leader", e.b.path, err} }
	if e.b.err != nil {
		return Leader{}, fmt.Errorf("zklock: leader: %w", e.b.err)
	}
	s, err := e.b.c.Session(ctx)
	if err != nil {
		return fail(err)
	}
	if err := s.Sync(ctx, e.b.path); err != nil {
		return fail(err)
	}
	for {
		first, err := e.first(ctx, s)
		if err != nil {
			return fail(err)
		}
		if first == "" {
			return fail(ErrNoLeader)
		}
		leader, _, err := e.read(ctx, s, first)
		if errors.Is(err, zk.ErrNoNode) {
			continue // resigned since the list: who is next?
		}
		if err != nil {
			return fail(err)
		}
		return leader, nil
	}
}

// first returns the name of the candidate that leads or is to lead next: the one that entered first; "" when there is
// none.
func (e *Election) first(ctx context.Context, s *session.Session) (string, error) {
	names, _, err := s.List(ctx, e.b.path)
	if errors.Is(err, zk.ErrNoNode) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	return recipe.First(ctx, s, e.b.path, recipe.Family(names, recipe.Lock))
}
