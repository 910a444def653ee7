package queue

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"path"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/locker/internal/session"
	"github.com/zklock/locker/recipe"
)

// newPrefixes gives each entry a new id, so that no search takes znodes of the old one for its own.
func (t *Ticket) newPrefixes() {
	for _, e := range t.entries {
		e.create = e.q.newCreate()
		e.prefix = e.create[len(e.q.Dir)+len("/"):]
	}
}

// newCreate returns the path of a new contender up to the number.
func (q *Queue) newCreate() string {
	name := recipe.Name{Kind: q.Kind, Permits: q.Permits, Rank: q.Rank, Since: q.Since}
	path := make([]byte, 0, 128) // enough for most
	path = append(path, q.Dir...)
	path = append(path, '/')
	path = appendID(path)
	path = append(path, name.Label()...)
	return string(path)
}

// appendID appends a new id for one znode: "_c_" and a random UUID (version 4, lower case).
func appendID(path []byte) []byte {
	var b [16]byte
	rand.Read(b[:]) // never fails: crypto/rand ends the program instead
	b[6] = b[6]&0x0f | 0x40
	b[8] = b[8]&0x3f | 0x80
	path = append(path, "_c"...)
	separator := byte('_')
	for _, part := range [][]byte{b[:4], b[4:6], b[6:8], b[8:10], b[10:]} {
		path = append(path, separator)
		path = hex.AppendEncode(path, part)
		separator = '-'
	}
	return path
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
	made := b.Create(e.create, e.q.Data, session.EphemeralSequential, e.q.ACL)
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
		Path: e.create,
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
