package queue

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/locker/internal/session"
)

// Check asks whether the znodes are still the ticket's: behind a write, since a server that is cut off, or a leader that is no
// leader any more, would answer without one. ErrGone: one of them is not.
func (t *Ticket) Check(ctx context.Context) error {
	nodes := t.Nodes()
	for {
		b := t.s.Batch()
		b.Multi(checks(nodes)...)
		looks := make([]*session.Result[zk.Stat], len(nodes))
		for i, node := range nodes {
			looks[i] = b.Exists(node)
		}
		err := b.Do(ctx)
		if transient(err) && !isEnd(ctx, t.s, err) {
			continue // on the next connection
		}
		for i, look := range looks {
			if errors.Is(look.Err, zk.ErrNoNode) || look.Err == nil && look.Value.EphemeralOwner != t.s.ID() {
				t.Missing(nodes[i])
				return ErrGone
			}
		}
		return err
	}
}

// checks are operations that are refused if one of nodes does not exist.
func checks(nodes []string) (ops []session.Op) {
	for _, node := range nodes {
		ops = append(ops, session.OpCheck{Path: node, Version: -1})
	}
	return ops
}

// Multi carries out writes in one transaction that commits only if all of the ticket's znodes exist. If check returns an
// error, Multi returns it, and does nothing. Otherwise it is session.Session.Multi; the
// responses are those to ops. ErrGone: a znode does not exist, and nothing was done.
func (t *Ticket) Multi(ctx context.Context, check func() error, ops ...session.Op) ([]zk.MultiResponse, error) {
	if err := check(); err != nil {
		return nil, err
	}
	nodes := t.Nodes()
	resps, err := t.s.Multi(ctx, append(checks(nodes), ops...)...)
	if len(resps) < len(nodes) {
		return resps, err
	}
	gone := slices.IndexFunc(resps[:len(nodes)], func(r zk.MultiResponse) bool { return errors.Is(r.Error, zk.ErrNoNode) })
	if gone < 0 {
		return resps[len(nodes):], err
	}
	t.Missing(nodes[gone])
	return nil, errors.Join(err, ErrGone, check())
}

// SetData replaces the data of the ticket's only znode. It repeats the write when a reply was lost; an error then matches
// session.ErrUnknownOutcome, whatever the last attempt's error is.
func (t *Ticket) SetData(ctx context.Context, data []byte) error {
	node := t.Nodes()[0]
	var before Doubt
	for {
		_, err := t.s.Set(ctx, node, data, -1)
		switch {
		case transient(err) && !isEnd(ctx, t.s, err):
			before.Note(err)
			continue // on the next connection
		case errors.Is(err, zk.ErrNoNode):
			t.Missing(node)
		}
		return before.Add(err)
	}
}

// Doubt remembers, while a write is repeated, that an attempt may have been carried out. The zero value is ready.
type Doubt struct{ unknown bool }

// Note notes the error of one attempt.
func (d *Doubt) Note(err error) { d.unknown = d.unknown || errors.Is(err, session.ErrUnknownOutcome) }

// Add returns err, that of the last attempt, so that it matches session.ErrUnknownOutcome if any attempt's did.
func (d *Doubt) Add(err error) error {
	if err == nil || !d.unknown || errors.Is(err, session.ErrUnknownOutcome) {
		return err
	}
	return fmt.Errorf("%w (%w)", err, session.ErrUnknownOutcome)
}
