package recipe

import (
	"context"
	"errors"
	"path"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/locker/session"
)

// Group is places in several queues at once, taken in one transaction. All groups, and all single contenders, hence
// stand in the same order in every directory that they share: the order of the transactions. So whoever waits, waits
// for somebody who entered earlier, everywhere; a circle of waiting, a deadlock, can't close, whatever order the
// directories are named in.
type Group struct {
	tickets []*Ticket
	czxid   int64
}

// EnterAll takes the last place in each of the queues, all or none, in one round trip when the directories are there.
// The queues are of one kind and one ACL and have different directories. Otherwise it is like Enter.
func EnterAll(ctx context.Context, s *session.Session, queues []Queue) (*Group, error) {
	g := &Group{}
	ops := make([]any, len(queues))
	dirs := make([]string, len(queues))
	for i, q := range queues {
		t := q.ticket(s)
		g.tickets = append(g.tickets, t)
		dirs[i] = q.Dir
		ops[i] = &zk.CreateRequest{Path: q.Dir + "/" + t.id, Data: q.Data, Acl: q.ACL, Flags: int32(session.EphemeralSequential)}
	}
	for {
		made, lists, err := s.TransactAndList(ctx, ops, dirs)
		if made.Zxid != 0 { // whatever became of the lists
			g.made(made)
		}
		switch {
		case err == nil:
			for i, t := range g.tickets {
				t.names = lists[i]
			}
			return g.checked()
		case made.Zxid != 0:
			g.discard()
			if errors.Is(err, zk.ErrNoNode) {
				return nil, ErrGone
			}
			return nil, err
		case errors.Is(err, zk.ErrNoNode):
			for _, q := range queues {
				if err := q.makeDir(ctx, s); err != nil {
					return nil, q.refused(err)
				}
			}
		case errors.Is(err, session.ErrUnknownOutcome):
			found, findErr := g.find(ctx)
			if findErr != nil {
				for _, t := range g.tickets {
					t.sweep()
				}
				if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
					return nil, err
				}
				return nil, findErr
			}
			if found {
				return g.checked()
			}
			queues[0].retried(err)
		default:
			if !refusal(err) {
				for _, t := range g.tickets {
					t.sweep()
				}
			}
			return nil, queues[0].refused(err)
		}
	}
}

func (g *Group) made(m session.Transaction) {
	g.czxid = m.Zxid
	for i, t := range g.tickets {
		t.node, t.czxid = m.Responses[i].String, m.Zxid
	}
}

// checked is Ticket.checked for each.
func (g *Group) checked() (*Group, error) {
	for _, t := range g.tickets {
		if v := Decide(t.listing(), path.Base(t.node), nil); v.Foreign != "" {
			g.discard()
			return nil, t.q.conflict(v.Foreign)
		}
	}
	for _, t := range g.tickets {
		t.strays()
	}
	return g, nil
}

// find looks for the znodes after a transaction whose reply was lost: all are there, or none. One that is missing
// beside others may have been deleted by somebody else: then those others have to go, lest they stand in our own way.
func (g *Group) find(ctx context.Context) (bool, error) {
	all := true
	for _, t := range g.tickets {
		found, err := t.find(ctx)
		if err != nil {
			return false, err
		}
		all = all && found
		g.czxid = t.czxid
	}
	if all {
		return true, nil
	}
	for _, t := range g.tickets {
		if t.node != "" {
			rest := *t // by its name of now: t stands for another znode soon
			rest.discard()
			t.node, t.names = "", nil
		}
	}
	return false, nil
}

// Wait returns nil when every ticket holds. Since all stand already, the order in which it waits for them does not
// matter. Errors are those of Ticket.Wait, for the first that has one; ErrGone also when the znode that is gone belongs
// to a ticket whose turn has come and which waits only for the others.
func (g *Group) Wait(ctx context.Context) error {
	if err := g.standAside(ctx); err != nil {
		return err
	}
	free := true
	for _, t := range g.tickets {
		free = free && Decide(t.listing(), path.Base(t.node), nil).Holds()
	}
	if free {
		return g.waitEach(ctx)
	}
	waiting, cancel := context.WithCancel(ctx)
	defer cancel()
	s := sentry{g: g, cancel: cancel, own: make([]*session.Watch, len(g.tickets)), done: make(chan struct{})}
	if !g.Session().Go(func(context.Context) { s.stand(waiting) }) {
		return g.Session().Err()
	}
	err := g.waitEach(waiting)
	cancel()
	<-s.done
	if gone := s.relieve(ctx); gone != nil && ctx.Err() == nil {
		return gone
	}
	return err
}

func (g *Group) waitEach(ctx context.Context) error {
	for _, t := range g.tickets {
		if err := t.wait(ctx); err != nil {
			return err
		}
	}
	return nil
}

// sentry watches all znodes of a group that waits for longer than Settle: a ticket whose turn has come does not look
// at its line again while the group waits for the others.
type sentry struct {
	g      *Group
	cancel context.CancelFunc // ends the wait
	done   chan struct{}      // closed when stand has returned; guards own
	own    []*session.Watch   // on the tickets' znodes; nil where none is set
	gone   atomic.Bool        // one of them was deleted
}

// stand sets the watches, if the wait lasts.
func (s *sentry) stand(waiting context.Context) {
	defer close(s.done)
	// A little later than the ticket that waits, whose watch on its own znode is then shared.
	timer := time.NewTimer(Settle + Settle/8)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-waiting.Done():
		return
	}
	alarm := func() { s.gone.Store(true); s.cancel() }
	for i, t := range s.g.tickets {
		w, err := t.watchOwn(waiting)
		if errors.Is(err, ErrGone) {
			alarm()
		}
		if err != nil {
			return
		}
		s.own[i] = w
		w.Then(func(e zk.EventType) {
			if e == zk.EventNodeDeleted {
				alarm()
			}
		})
	}
}

// relieve hands the watches to the tickets after the wait, which costs no request, and returns ErrGone if one has told
// of a deletion. The word of a deletion comes before that of a later one, the one that ended the wait: none is missed.
func (s *sentry) relieve(ctx context.Context) (err error) {
	defer func() {
		for _, w := range s.own {
			if w != nil {
				w.Close()
			}
		}
	}()
	if s.gone.Load() {
		return ErrGone
	}
	for i, t := range s.g.tickets {
		if s.own[i] == nil {
			continue
		}
		if t.own != nil {
			select {
			case <-t.own.Fired():
				t.own = nil
			default:
				continue
			}
		}
		if t.own, err = t.watchOwn(ctx); err != nil {
			return err
		}
	}
	return nil
}

// TryAll is EnterAll and Wait for queues that nobody stands in: it returns ErrBusy, without a write, when somebody
// stands in one of them.
func TryAll(ctx context.Context, s *session.Session, queues []Queue) (*Group, error) {
	dirs := make([]string, len(queues))
	for i, q := range queues {
		dirs[i] = q.Dir
	}
	lists, err := s.ListAll(ctx, dirs)
	if err != nil {
		return nil, err
	}
	for i, q := range queues {
		line, err := q.survey(lists[i])
		if err != nil {
			return nil, err
		}
		if line.Ahead > 0 {
			return nil, &busyError{line}
		}
	}
	g, err := EnterAll(ctx, s, queues)
	if err != nil {
		return nil, err
	}
	for _, t := range g.tickets {
		v, decideErr := t.decide(ctx)
		switch {
		case decideErr != nil:
			err = decideErr
		case !v.Present:
			err = ErrGone
		case !v.Holds():
			t.place(v)
			err = &busyError{t.line}
		default:
			continue
		}
		break
	}
	if err == nil {
		return g, nil
	}
	if leaveErr := g.Leave(ctx); leaveErr != nil && !errors.Is(leaveErr, ErrGone) && ctx.Err() != nil {
		return nil, leaveErr
	}
	return nil, err
}

// Leave gives up every place, in one transaction when all are still there. Otherwise it is like Ticket.Leave.
func (g *Group) Leave(ctx context.Context) error {
	for _, t := range g.tickets {
		if t.delayed {
			return g.leaveEach(ctx)
		}
	}
	ops := make([]any, len(g.tickets))
	for i, t := range g.tickets {
		ops[i] = &zk.DeleteRequest{Path: t.node, Version: -1}
	}
	_, err := g.Session().Multi(ctx, ops...)
	switch {
	case err == nil:
		for _, t := range g.tickets {
			t.renewed()
		}
		return nil
	case errors.Is(err, zk.ErrNoNode):
		// One was deleted by somebody else, and so none has been deleted here.
		if leaveErr := g.leaveEach(ctx); leaveErr != nil {
			return leaveErr
		}
		return ErrGone
	case g.Session().Err() != nil:
		return err
	case ctx.Err() == nil && transient(err):
		err := g.leaveEach(ctx)
		if errors.Is(err, ErrGone) {
			return nil // the transaction whose reply was lost was ours
		}
		return err
	}
	g.discard()
	return ended(ctx, err)
}

// leaveEach leaves one after the other, and reports the first failure.
func (g *Group) leaveEach(ctx context.Context) (first error) {
	for _, t := range g.tickets {
		if err := t.Leave(ctx); err != nil && first == nil {
			first = err
		}
	}
	return first
}

func (g *Group) discard() {
	for _, t := range g.tickets {
		t.discard()
	}
}

// Claim is Ticket.Claim for each, all at once: delays are waited out side by side. It returns the first error.
func (g *Group) Claim(ctx context.Context, delay time.Duration, try bool) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	errs := make(chan error, len(g.tickets))
	for _, t := range g.tickets {
		go func() { errs <- t.Claim(ctx, delay, try) }() // joined below
	}
	var first error
	for range g.tickets {
		if err := <-errs; err != nil && first == nil {
			first = err
			cancel()
		}
	}
	return first
}

// Forfeit is Ticket.Forfeit for each.
func (g *Group) Forfeit() {
	for _, t := range g.tickets {
		t.Forfeit()
	}
}

// OnGone has fn called when any of the znodes is deleted; it may be called more than once.
func (g *Group) OnGone(ctx context.Context, fn func()) error {
	for _, t := range g.tickets {
		if err := t.OnGone(ctx, fn); err != nil {
			return err
		}
	}
	return nil
}

// Settled reports whether every znode is watched already.
func (g *Group) Settled() bool {
	for _, t := range g.tickets {
		if !t.Settled() {
			return false
		}
	}
	return true
}

// Session returns the session that owns the group.
func (g *Group) Session() *session.Session { return g.tickets[0].s }

// Czxid returns the zxid of the transaction: greater than that of every earlier contender in any of the queues.
func (g *Group) Czxid() int64 { return g.czxid }

// Nodes returns the znodes' paths, in the order of the queues.
func (g *Group) Nodes() []string {
	nodes := make([]string, len(g.tickets))
	for i, t := range g.tickets {
		nodes[i] = t.node
	}
	return nodes
}
