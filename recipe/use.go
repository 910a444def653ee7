package recipe

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/locker/internal/trusted"
	"github.com/zklock/locker/session"
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

// Multi carries out writes in one transaction that commits only if all znodes exist that the ticket had before check was
// called. If check returns an error, Multi returns it, and does nothing. Otherwise it is session.Session.Multi; the
// responses are those to ops. ErrGone: a znode does not exist, and nothing was done.
func (t *Ticket) Multi(ctx context.Context, check func() error, ops ...any) ([]zk.MultiResponse, error) {
	for {
		nodes := t.Nodes()
		if err := check(); err != nil {
			return nil, err
		}
		var guarded []any
		for _, node := range nodes {
			guarded = append(guarded, &zk.CheckVersionRequest{Path: node, Version: -1})
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
		if moved := t.movedFrom(ctx, nodes[gone]); !moved || check() != nil {
			return nil, errors.Join(err, ErrGone, check())
		}
	}
}

// movedFrom reports whether a Downgrade has replaced node, and first waits for one that is under way.
func (t *Ticket) movedFrom(ctx context.Context, node string) bool {
	t.mu.Lock()
	move := t.movingLocked()
	t.mu.Unlock()
	if move != nil {
		select {
		case <-move:
		case <-ctx.Done():
		}
	}
	return !slices.Contains(t.Nodes(), node)
}

// SetData replaces the data of the ticket's only znode. It repeats the write when a reply was lost; an error then matches
// session.ErrUnknownOutcome, whatever the last attempt's error is.
func (t *Ticket) SetData(ctx context.Context, data []byte) error {
	node := t.Nodes()[0]
	var before Doubt
	for {
		stat, err := t.s.Set(ctx, node, data, -1)
		switch {
		case err == nil:
			t.noteVersion(node, stat.Version)
		case transient(err) && ctx.Err() == nil && t.s.Err() == nil:
			before.Note(err)
			continue // on the next connection
		case transient(err):
			err = t.ended(ctx, err)
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

// ErrLeft says that Downgrade came after Leave.
var ErrLeft = errors.New("recipe: the place was given up")

// Downgrade turns a writer that holds into a reader that holds: one transaction makes a reader's znode with the writer's
// number and deletes the writer's, so that no writer can get the lock in between, and the readers behind get it too. The
// ticket then has another znode; its czxid stays, and so do Guard and the data that other clients have set.
//
// Nil: the ticket is a reader that holds, and may have been one before. ErrLeft: Leave was called before. ErrGone: the
// writer's znode was not there, and the ticket is lost. Any other error: ctx or the session ended first, or the ensemble
// refused. The writer then still holds, unless the error matches session.ErrUnknownOutcome: then call Leave, which deletes
// whichever of the two znodes exists.
//
// It blocks for one round trip, and waits for another Downgrade that is under way. A concurrent Leave waits for it.
func (t *Ticket) Downgrade(ctx context.Context) error {
	if err := t.begin(ctx, true); err != nil {
		return err
	}
	e := t.entries[0]
	var reader *entry
	var err error
	switch {
	case t.unsure != nil:
		err = fmt.Errorf("an earlier downgrade: %w", session.ErrUnknownOutcome)
	case e.q.Kind != Read:
		reader = e.reader()
		err = e.replace(ctx, reader)
	}
	t.mu.Lock()
	node, gone := e.node, t.missed || errors.Is(err, ErrGone)
	switch {
	case reader == nil:
	case err == nil:
		t.movedLocked(reader)
	case errors.Is(err, session.ErrUnknownOutcome):
		t.unsure, e.queued, gone = reader, false, false // neither of the two znodes leaves by a mark
	}
	t.missed = false
	t.finishLocked()
	t.mu.Unlock()
	if gone {
		t.Missing(node) // after a success node is not the ticket's any more
	}
	return err
}

// movingLocked returns a channel that is closed when the Downgrade under way ends; nil: none is, or Leave was called.
func (t *Ticket) movingLocked() <-chan struct{} {
	if t.life == left {
		return nil
	}
	return t.change
}

func (t *Ticket) movedLocked(reader *entry) {
	t.entries[0].unwatch()
	t.entries[0] = reader
	if t.life == guarded {
		t.keep.Move(reader.node)
		t.guardLocked()
	}
}

// reader returns the entry of the reader that takes e's place.
func (e *entry) reader() *entry {
	q := *e.q
	q.Kind = Read
	r := &entry{t: e.t, q: &q, delayNoted: e.delayNoted}
	r.prefix = fmt.Sprintf("%s-0x%x%s", newID(), e.t.czxid, Read.label()) // the czxid keeps its place in line: see order.go
	r.node = e.q.Dir + "/" + r.prefix + e.name()[len(e.prefix):]
	return r
}

// replace makes r and deletes e, both or neither.
func (e *entry) replace(ctx context.Context, r *entry) error {
	var before Doubt    // an attempt was looked for and not found, but may have been carried out
	version := int32(0) // of e's data: no other client has set them
	for tries := 0; ; tries++ {
		err := e.moveTo(ctx, r, version)
		if errors.Is(err, zk.ErrBadVersion) { // they were set, or another holder wrote a note in between
			if version, err = e.inherit(ctx, r); tries > inheritTimes {
				version = -1
			}
			if err == nil {
				continue
			}
		}
		switch {
		case err == nil:
			return nil
		case errors.Is(err, session.ErrTooLarge) && len(r.q.Data) > len(e.q.Data): // no request has room for what was set
			r.q.Data = e.q.Data
			continue
		case errors.Is(err, zk.ErrNoNode):
			return ErrGone
		case !errors.Is(err, session.ErrUnknownOutcome) && !errors.Is(err, zk.ErrNodeExists):
			return before.Add(err)
		}
		// ErrNodeExists: an attempt whose reply was lost was carried out, though a look had not found its znode.
		b := e.t.s.Batch()
		b.Sync(r.node)
		look := b.Exists(r.node)
		lookErr := b.Do(ctx)
		switch {
		case lookErr == nil && look.Value.EphemeralOwner == e.t.s.ID():
			e.t.s.ForLocks(trusted.Caller{}).Gone(e.node) // deleted in the same transaction
			return nil
		case lookErr == nil: // another client's, which has guessed a random name
			return err
		case !errors.Is(lookErr, zk.ErrNoNode):
			return e.t.ended(ctx, fmt.Errorf("%w (%w)", err, session.ErrUnknownOutcome))
		}
		before.unknown = true
	}
}

// inheritTimes is how often a Downgrade reads data that are set again and again.
const inheritTimes = 3

// inherit gives r the data of e's znode, heeds them, and returns their version; -1: we may not read them. The client that
// has set them, to ask the holder to let go, does not know that the znode is replaced.
func (e *entry) inherit(ctx context.Context, r *entry) (version int32, err error) {
	n := e.t.heed(ctx, e.node)
	switch {
	case errors.Is(n.Err, zk.ErrNoAuth):
		return -1, nil
	case n.Err == nil:
		r.q.Data = n.Data
	}
	return n.Stat.Version, n.Err
}

// moveTo makes one attempt to make r and delete e, whose data have version. A note of e's lock delay becomes r's.
func (e *entry) moveTo(ctx context.Context, r *entry, version int32) error {
	ops := []any{
		&zk.CreateRequest{Path: r.node, Data: r.q.Data, Acl: r.q.ACL, Flags: int32(session.Ephemeral)},
		&zk.DeleteRequest{Path: e.node, Version: version},
	}
	if e.delayNoted {
		data, stat, err := e.q.readData(ctx, e.t.s)
		if err != nil {
			return err
		}
		data.note(r.name(), data.Delays[e.name()], e.t.s.ID())
		data.forget(e.name())
		ops = append(ops, &zk.SetDataRequest{Path: e.q.Dir, Data: data.encode(), Version: stat.Version})
	}
	_, err := e.t.s.Transact(ctx, ops...)
	return err
}
