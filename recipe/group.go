package recipe

import (
	"context"
	"errors"
	"path"
	"slices"
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
			return g.checked(ctx)
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
				return g.checked(ctx)
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
func (g *Group) checked(ctx context.Context) (*Group, error) {
	for _, t := range g.tickets {
		if v := Decide(t.listing(), path.Base(t.node), nil); v.Foreign != "" {
			g.discard()
			return nil, t.q.conflict(v.Foreign)
		}
	}
	for _, t := range g.tickets {
		if err := t.verify(ctx); err != nil {
			g.discard()
			return nil, err
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
// matter. One request watches all the znodes, as soon as one of the tickets has to wait: ErrGone also when the znode that
// is gone belongs to a ticket whose turn has come and which waits only for the others. Other errors are those of
// Ticket.Wait, for the first that has one.
func (g *Group) Wait(ctx context.Context) error {
	if err := g.standAside(ctx); err != nil {
		return err
	}
	alarm := make(chan struct{}, 1)
	for _, t := range g.tickets {
		t.mates, t.alarm = g.tickets, alarm
	}
	for _, t := range g.tickets {
		if err := t.wait(ctx); err != nil {
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
			t.unwatch()
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

// Gone reports whether Wait's watches have told that one of the znodes is gone. It does not block.
func (g *Group) Gone() bool { return slices.ContainsFunc(g.tickets, (*Ticket).Gone) }

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
