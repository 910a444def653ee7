package queue

import (
	"context"
	"path"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/locker/internal/session"
)

// newPrefixes gives each entry a new id, so that no search takes znodes of its old id for its own.
func (t *Ticket) newPrefixes() {
	for _, e := range t.entries {
		e.createPath = e.q.newCreatePath()
		e.prefix = e.createPath[len(e.q.Dir)+len("/"):]
	}
}

// create makes the znodes and lists the directories, in one round trip. Unless the creation itself
// fails, the entries are placed; the error is then that of a list.
func (t *Ticket) create(ctx context.Context) error {
	if len(t.entries) == 1 {
		return t.createOne(ctx, t.entries[0])
	}
	b := t.s.Grouped()
	ops := make([]session.Op, len(t.entries))
	for i, e := range t.entries {
		ops[i] = e.request()
	}
	made, lists := b.Multi(ops...), t.addLists(b)
	err := b.Do(ctx)
	if made.Err != nil {
		return err
	}
	t.czxid = made.Value.Zxid
	for i, e := range t.entries {
		l := lists[i].Value
		e.placed(made.Value.Responses[i].String, newListing(l.Names, l.Stat))
	}
	return err
}

// createOne is create for one entry. A plain create is cheaper than a transaction.
func (t *Ticket) createOne(ctx context.Context, e *entry) error {
	if t.old != nil {
		return t.createForOld(ctx, e)
	}
	b := t.s.Grouped()
	made := b.Create(e.createPath, e.q.Data, session.EphemeralSequential, e.q.ACL)
	list := b.List(e.q.Dir)
	err := b.Do(ctx)
	if made.Err != nil {
		return err
	}
	t.czxid = made.Value.Czxid
	e.placed(made.Value.Path, newListing(list.Value.Names, list.Value.Stat))
	return err
}

// createWithDir makes the directory and the znode in one transaction. The znode is then the only
// child, so no list is needed.
func (t *Ticket) createWithDir(ctx context.Context, e *entry) error {
	b := t.s.Grouped()
	made := b.Multi(e.q.request(e.size), e.request())
	if err := b.Do(ctx); err != nil {
		return err
	}
	t.czxid = made.Value.Zxid
	node := made.Value.Responses[1].String
	e.placed(node, newListing([]string{path.Base(node)}, zk.Stat{}))
	return nil
}

// request returns the create of the znode, for a transaction.
func (e *entry) request() session.OpCreate {
	return session.OpCreate{
		Path: e.createPath,
		Data: e.q.Data,
		ACL:  e.q.ACL,
		Mode: session.EphemeralSequential,
	}
}

func (t *Ticket) addLists(b *session.Batch) []*session.Result[session.Children] {
	lists := make([]*session.Result[session.Children], len(t.entries))
	for i, e := range t.entries {
		lists[i] = b.List(e.q.Dir)
	}
	return lists
}
