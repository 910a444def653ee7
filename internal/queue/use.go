package queue

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/locker/internal/session"
)

// Check asks the leader whether the znodes are still the ticket's. Nil: it has answered. Missing reports those that are
// not, as it does for Multi and SetData.
func (t *Ticket) Check(ctx context.Context) error {
	nodes := t.Nodes()
	b := t.s.Batch()
	b.Sync(nodes[0]) // for all that is read behind it
	looks := make([]*session.Result[zk.Stat], len(nodes))
	for i, node := range nodes {
		looks[i] = b.Exists(node)
	}
	err := b.Do(ctx)
	for i, look := range looks {
		switch {
		case errors.Is(look.Err, zk.ErrNoNode), look.Err == nil && look.Value.EphemeralOwner != t.s.ID():
			t.Missing(nodes[i])
		case look.Err != nil:
			return look.Err
		}
	}
	if err != nil && !errors.Is(err, zk.ErrNoNode) {
		return err // of the sync
	}
	return nil
}

// Multi carries out writes in one transaction that commits only if all of the ticket's znodes exist. If check returns an
// error, Multi returns it, and does nothing. Otherwise it is session.Session.Multi; the
// responses are those to ops. ErrGone: a znode does not exist, and nothing was done.
func (t *Ticket) Multi(ctx context.Context, check func() error, ops ...session.Op) ([]zk.MultiResponse, error) {
	if err := check(); err != nil {
		return nil, err
	}
	nodes := t.Nodes()
	var guarded []session.Op
	for _, node := range nodes {
		guarded = append(guarded, session.OpCheck{Path: node, Version: -1})
	}
	resps, err := t.s.Multi(ctx, append(guarded, ops...)...)
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
